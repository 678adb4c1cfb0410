// Package discovery finds the container runtimes of this host, asks each how it is, and
// follows its events.
//
// It owns how often it searches and asks, and which runtimes belong to the set. It does not
// judge what a runtime reports.
package discovery

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runc"
)

const (
	// Interval is how often runtimes are asked how they are: one that disappears or
	// returns is noticed within it.
	Interval = 10 * time.Second
	// searchInterval is the interval of searches by Look or Search. A late runtime has half of
	// Interval to answer, so that it is known within Interval.
	searchInterval = Interval / 2
)

// patience is how long one check waits for a runtime that was asked before.
const patience = 4 * time.Second

// Runtimes keeps the set of this host's container runtimes: finds them, asks
// them how they are, and follows what happens in them. A runtime that was found
// once stays in the set when it is down, for a host without its runtime is not
// ready. It is safe for concurrent use.
type Runtimes struct {
	set        *runtime.Set
	candidates []local.Candidate // where to look; nil where the runtimes are configured
	usual      []local.Candidate // where there may be some of CRI all the same
	observe    func(runtime, method string, took time.Duration, err error)
	units      local.Units
	log        *slog.Logger
	found      chan struct{} // holds one token when the set has grown

	discovering chan struct{} // one token, whose holder may search
	sockets     local.Detector
	roots       runc.Finder // of containers of runc and crun alone
	asks        sync.WaitGroup

	learned learned
}

// learned is what calls to the runtimes and searches have shown.
type learned struct {
	mu           sync.Mutex // guards what follows
	asked        bool
	searched     bool                      // for candidates, once or more
	types        map[string]string         // by name in the set
	states       map[string]runtime.Health // by name in the set
	faults       map[string]error          // why they have not said how they are, likewise
	pending      map[runtime.Runtime]<-chan struct{}
	dead         []Dead   // those that are invalid now
	unresponsive []string // those among them behind which there may be a runtime with pods
	others       []Dead   // those that answered, but not as a runtime, whether reported or not
	gone         []Gone   // those that were found and are not expected any more
	unreachable  []runtime.Health
}

// Options say which runtimes there are.
type Options struct {
	Auto bool // search for them where they usually are
	// Configured are they else: their types and sockets. They need no names.
	Configured []local.Candidate
	// Observe is called for each call to a runtime.
	Observe func(runtime, method string, took time.Duration, err error)
	// Units are those of systemd; nil where there is none.
	Units local.Units
	Log   *slog.Logger
}

// New opens the runtimes that a person names, or none yet: they are found
// by Look. Close them.
func New(o Options) (*Runtimes, error) {
	set, err := runtime.NewSet()
	if err != nil {
		return nil, err
	}
	r := &Runtimes{
		set: set, usual: cri.DefaultCandidates(), observe: o.Observe, units: o.Units, log: o.Log.With("component", "runtimes"),
		found: make(chan struct{}, 1), discovering: make(chan struct{}, 1),
		learned: learned{
			types: map[string]string{}, states: map[string]runtime.Health{}, faults: map[string]error{},
			pending: map[runtime.Runtime]<-chan struct{}{},
		},
	}
	r.discovering <- struct{}{}
	if o.Auto {
		r.candidates = usualCandidates()
		return r, nil
	}
	for _, c := range o.Configured {
		if err := r.configured(c); err != nil {
			return nil, errors.Join(err, set.Close())
		}
	}
	return r, nil
}

// Set is all of them used as one.
func (r *Runtimes) Set() *runtime.Set { return r.set }

// Close closes all connections, and returns when no request is in progress.
func (r *Runtimes) Close() error {
	defer r.asks.Wait()
	return r.set.Close()
}

// OnRequest returns the runtimes, in order of the set, in which users build images and keep stopped
// containers: nothing is removed there without a request.
func (r *Runtimes) OnRequest() []string {
	r.learned.mu.Lock()
	defer r.learned.mu.Unlock()
	var names []string
	for _, m := range r.set.Members() {
		if kinds()[r.learned.types[m.Name()]].asked {
			names = append(names, m.Name())
		}
	}
	return names
}

// LeftAlone returns the runtimes from which a job removes nothing automatically: those of
// OnRequest, unless the job is enabled explicitly.
func (r *Runtimes) LeftAlone(switchedOn bool) []string {
	if switchedOn {
		return nil
	}
	return r.OnRequest()
}

// Refresh searches for new runtimes and checks the health of all. The error names runtimes that do
// not answer. A hanging runtime delays only one Refresh: its late answer is recorded, or its
// time-out.
func (r *Runtimes) Refresh(ctx context.Context) error {
	r.discover(ctx)
	brief, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	members := r.set.Members()
	answers := make([]<-chan struct{}, len(members))
	for i, m := range members {
		answers[i] = r.ask(ctx, m)
	}
	for i, m := range members {
		over := brief.Done()
		if !r.known(m) {
			over = nil
		}
		select {
		case <-answers[i]:
		case <-over:
		}
	}

	r.learned.mu.Lock()
	defer r.learned.mu.Unlock()
	r.learned.asked = true
	var errs []error
	for _, m := range members {
		if err := r.learned.faults[m.Name()]; err != nil {
			errs = append(errs, runtime.MemberError{Runtime: m.Name(), Err: err})
		}
	}
	r.letGo(time.Now())
	return errors.Join(errs...)
}

// known reports whether a runtime has said how it is, or failed to.
func (r *Runtimes) known(m runtime.Runtime) bool {
	r.learned.mu.Lock()
	defer r.learned.mu.Unlock()
	_, known := r.learned.states[m.Name()]
	return known
}

// ask requests the health of a runtime, and closes answered once it is recorded. While a request is
// in progress, there is no second one.
func (r *Runtimes) ask(ctx context.Context, m runtime.Runtime) (answered <-chan struct{}) {
	r.learned.mu.Lock()
	defer r.learned.mu.Unlock()
	if asked, pending := r.learned.pending[m]; pending {
		return asked
	}
	done := make(chan struct{})
	r.learned.pending[m] = done
	r.asks.Go(func() {
		info, err := m.Info(ctx)
		r.note(m, info, err)
		close(done)
	})
	return done
}

// note takes in what a runtime has said of itself, or why it has not.
func (r *Runtimes) note(m runtime.Runtime, info runtime.Info, err error) {
	now := time.Now()
	r.learned.mu.Lock()
	defer r.learned.mu.Unlock()
	delete(r.learned.pending, m)
	if !slices.Contains(r.set.Members(), m) { // it was let go meanwhile
		return
	}
	name := m.Name()
	next := runtime.Health{Info: info, Since: now}
	before, known := r.learned.states[name]
	if err != nil {
		next.Info = runtime.Info{Name: name, Endpoint: m.Endpoint(), Message: err.Error()}
		if known {
			next.Name, next.Version, next.SandboxImage = before.Name, before.Version, before.SandboxImage
		}
	}
	if known && before.Ready == next.Ready {
		next.Since = before.Since
	}
	if !known { // the condition Ready reports it
		r.log.Info("found runtime", "name", next.Name, "version", next.Version, "endpoint", next.Endpoint, "ready", next.Ready, "message", next.Message)
	}
	r.learned.states[name], r.learned.faults[name] = next, err
}

// Current returns the last health of every runtime, in order of the set; discovered CRI runtimes
// come first, because the Node runs their pods. It also reports whether all have been checked.
func (r *Runtimes) Current() (states []runtime.Health, asked bool) {
	r.learned.mu.Lock()
	defer r.learned.mu.Unlock()
	var others []runtime.Health
	for _, m := range r.set.Members() {
		s, known := r.learned.states[m.Name()]
		switch {
		case !known:
		case r.candidates != nil && r.learned.types[m.Name()] != cri.Type:
			others = append(others, s)
		default:
			states = append(states, s)
		}
	}
	return append(states, others...), r.learned.asked
}

// Named is as Current, but by the names that pods, containers and images carry, of
// which no two runtimes have the same.
func (r *Runtimes) Named() []runtime.Health {
	r.learned.mu.Lock()
	defer r.learned.mu.Unlock()
	var list []runtime.Health
	for _, m := range r.set.Members() {
		if s, known := r.learned.states[m.Name()]; known {
			s.Name = m.Name()
			list = append(list, s)
		}
	}
	return list
}
