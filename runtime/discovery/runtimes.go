// Package discovery finds the container runtimes of this host, checks their health, and follows
// their events.
//
// It owns the intervals of searches and checks, and decides which runtimes belong to the set. It
// does not judge what a runtime reports.
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
	// Interval is how often the health of runtimes is checked. A change is noticed within it.
	Interval = 10 * time.Second
	// searchInterval is the interval of searches. A runtime that starts late still has half of
	// Interval to answer, so that it is known within Interval.
	searchInterval = Interval / 2
)

// patience is how long a round waits for a runtime whose health is known already.
const patience = 4 * time.Second

// startPatience is how long a process at a socket may take after the start of the agent until it answers as a runtime.
// Until then, it is not known whether the host has one.
const startPatience = 3 * Interval

// Runtimes is the set of this host's container runtimes. It finds them, checks their health, and
// follows their events. A runtime that was found stays in the set when it stops, because a host
// without its runtime is not ready. Runtimes is safe for concurrent use.
type Runtimes struct {
	set        *runtime.Set
	candidates []local.Candidate // where to search; nil if the runtimes are configured
	usual      []local.Candidate // usual places of CRI runtimes, even if the runtimes are configured
	observe    func(runtime, method string, took time.Duration, err error)
	units      local.Units
	log        *slog.Logger
	proc       string        // proc filesystem
	found      chan struct{} // has a token if the set has grown

	discovering chan struct{} // has one token; its holder may search
	sockets     local.Detector
	roots       runc.Finder // finds containers that only runc or crun manages
	asks        sync.WaitGroup

	started time.Time // by the monotonic clock
	results results
}

// results has the results of calls to the runtimes and of searches.
type results struct {
	mu           sync.Mutex // guards the fields below
	asked        bool
	searched     bool                      // at least one search for candidates has finished
	types        map[string]string         // by name in the set
	states       map[string]runtime.Health // by name in the set
	faults       map[string]error          // errors of health checks, by name in the set
	pending      map[runtime.Runtime]<-chan struct{}
	dead         []Dead   // candidates without a usable runtime
	unresponsive []string // paths of dead candidates behind which there may be a runtime with pods
	others       []Dead   // candidates that answered, but not as a runtime, even those that are not in dead
	gone         []Gone   // runtimes that were in the set and are not expected any more
	unreachable  []runtime.Health
}

// Options say which runtimes there are.
type Options struct {
	Auto bool // search at the usual places
	// Configured are the runtimes if Auto is false, with types and sockets. They need no names.
	Configured []local.Candidate
	// Observe is called after each call to a runtime.
	Observe func(runtime, method string, took time.Duration, err error)
	// Units are the units of systemd; nil if there is no systemd.
	Units local.Units
	Log   *slog.Logger
}

// New opens the configured runtimes. With Auto it opens none: Refresh finds them. Close closes
// them.
func New(o Options) (*Runtimes, error) {
	set, err := runtime.NewSet()
	if err != nil {
		return nil, err
	}
	r := &Runtimes{
		set: set, usual: cri.DefaultCandidates(), observe: o.Observe, units: o.Units, log: o.Log.With("component", "runtimes"), proc: "/proc",
		found: make(chan struct{}, 1), discovering: make(chan struct{}, 1), started: time.Now(),
		results: results{
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

// Set returns all runtimes as one.
func (r *Runtimes) Set() *runtime.Set { return r.set }

// Close closes all connections, and returns when no request is in progress.
func (r *Runtimes) Close() error {
	defer r.asks.Wait()
	return r.set.Close()
}

// OnRequest returns the runtimes in which users build images and keep stopped containers, in the
// order of the set. Nothing is removed there without a request.
func (r *Runtimes) OnRequest() []string {
	r.results.mu.Lock()
	defer r.results.mu.Unlock()
	var names []string
	for _, m := range r.set.Members() {
		if kinds()[r.results.types[m.Name()]].asked {
			names = append(names, m.Name())
		}
	}
	return names
}

// LeftAlone returns the runtimes from which a job removes nothing automatically. These are the
// runtimes of OnRequest, unless the job is enabled explicitly.
func (r *Runtimes) LeftAlone(switchedOn bool) []string {
	if switchedOn {
		return nil
	}
	return r.OnRequest()
}

// Refresh searches for new runtimes and checks the health of all. The error names runtimes that do
// not answer. A runtime that hangs delays only one Refresh: its late answer or timeout is recorded
// later.
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

	asked := r.Complete() == nil || time.Since(r.started) >= startPatience
	r.results.mu.Lock()
	defer r.results.mu.Unlock()
	r.results.asked = r.results.asked || asked
	var errs []error
	for _, m := range members {
		if err := r.results.faults[m.Name()]; err != nil {
			errs = append(errs, runtime.MemberError{Runtime: m.Name(), Err: err})
		}
	}
	r.removeGone(time.Now())
	return errors.Join(errs...)
}

// known reports whether the first health check of a runtime has ended.
func (r *Runtimes) known(m runtime.Runtime) bool {
	r.results.mu.Lock()
	defer r.results.mu.Unlock()
	_, known := r.results.states[m.Name()]
	return known
}

// ask requests the health of a runtime, and closes answered once it is recorded. While a request is
// in progress, it sends no second one.
func (r *Runtimes) ask(ctx context.Context, m runtime.Runtime) (answered <-chan struct{}) {
	r.results.mu.Lock()
	defer r.results.mu.Unlock()
	if asked, pending := r.results.pending[m]; pending {
		return asked
	}
	done := make(chan struct{})
	r.results.pending[m] = done
	r.asks.Go(func() {
		info, err := m.Info(ctx)
		r.note(m, info, err)
		close(done)
	})
	return done
}

// note records the health that a runtime returned, or its error.
func (r *Runtimes) note(m runtime.Runtime, info runtime.Info, err error) {
	now := time.Now()
	r.results.mu.Lock()
	defer r.results.mu.Unlock()
	delete(r.results.pending, m)
	if !slices.Contains(r.set.Members(), m) { // removed meanwhile
		return
	}
	name := m.Name()
	next := runtime.Health{Info: info, Since: now}
	before, known := r.results.states[name]
	if err != nil {
		next.Info = runtime.Info{Name: name, Endpoint: m.Endpoint(), Message: err.Error()}
		if known {
			next.Name, next.Version, next.SandboxImage = before.Name, before.Version, before.SandboxImage
		}
	}
	if known && before.Ready == next.Ready {
		next.Since = before.Since
	}
	if !known { // later changes are reported by the condition Ready
		r.log.Info("found runtime", "name", next.Name, "version", next.Version, "endpoint", next.Endpoint, "ready", next.Ready, "message", next.Message)
	}
	r.results.states[name], r.results.faults[name] = next, err
}

// Current returns the last health of every runtime, in the order of the set. If runtimes are
// discovered, CRI runtimes come first, because they run the Node's pods. asked is true once all
// runtimes have been found and checked, or had the time for that.
func (r *Runtimes) Current() (states []runtime.Health, asked bool) {
	r.results.mu.Lock()
	defer r.results.mu.Unlock()
	var others []runtime.Health
	for _, m := range r.set.Members() {
		s, known := r.results.states[m.Name()]
		switch {
		case !known:
		case r.candidates != nil && r.results.types[m.Name()] != cri.Type:
			others = append(others, s)
		default:
			states = append(states, s)
		}
	}
	return append(states, others...), r.results.asked
}

// Named is Current with the names that pods, containers and images carry. These names are unique.
func (r *Runtimes) Named() []runtime.Health {
	r.results.mu.Lock()
	defer r.results.mu.Unlock()
	var list []runtime.Health
	for _, m := range r.set.Members() {
		if s, known := r.results.states[m.Name()]; known {
			s.Name = m.Name()
			list = append(list, s)
		}
	}
	return list
}
