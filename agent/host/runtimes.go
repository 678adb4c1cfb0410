package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/docker"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runc"
	"hostler.io/hostler/status"
)

// Interval is how often runtimes are to be asked how they are, and looked for: one
// that comes late, goes away or returns is noticed within it.
const Interval = 10 * time.Second

// patience is how long one look waits for a runtime that was asked before.
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

	mu       sync.Mutex // guards what follows
	asked    bool
	searched bool                      // for candidates, once or more
	types    map[string]string         // by name in the set
	states   map[string]status.Runtime // by name in the set
	faults   map[string]error          // why they have not said how they are, likewise
	pending  map[runtime.Runtime]<-chan struct{}
	dead     []Dead   // those that are of no use now
	silent   []string // those among them behind which there may be a runtime with pods
	gone     []Gone   // those that were found and are not expected any more
}

// Dead is a candidate whose socket is there, and why it is of no use.
type Dead struct {
	local.Candidate
	Err error
}

// RuntimesOptions say which runtimes there are.
type RuntimesOptions struct {
	Auto bool // look for them where they usually are
	// Configured are they else: their types and sockets. They need no names.
	Configured []local.Candidate
	// Observe is told of each call to a runtime.
	Observe func(runtime, method string, took time.Duration, err error)
	// Units are those of the service manager; nil where there is none.
	Units local.Units
	Log   *slog.Logger
}

// NewRuntimes opens the runtimes that a person names, or none yet: they are found
// by Look. Close them.
func NewRuntimes(o RuntimesOptions) (*Runtimes, error) {
	set, err := runtime.NewSet()
	if err != nil {
		return nil, err
	}
	r := &Runtimes{
		set: set, usual: cri.DefaultCandidates(), observe: o.Observe, units: o.Units, log: o.Log.With("component", "runtimes"),
		types: map[string]string{}, states: map[string]status.Runtime{}, faults: map[string]error{}, pending: map[runtime.Runtime]<-chan struct{}{},
		found: make(chan struct{}, 1), discovering: make(chan struct{}, 1),
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

// Close closes the connections to all of them, and returns when nobody is asked any more.
func (r *Runtimes) Close() error {
	defer r.asks.Wait()
	return r.set.Close()
}

// configured opens what a person names. Of two runtimes of one name, such as two
// containerds, the second goes by its socket.
func (r *Runtimes) configured(c local.Candidate) error {
	if m := r.at(c.Path); m != nil {
		return fmt.Errorf("runtimes: %s leads to the same socket as %s; leave one out", c.Path, m.Endpoint())
	}
	if c.Name = local.NameOf(usualCandidates(), c.Path); slices.ContainsFunc(r.set.Members(), func(m runtime.Runtime) bool { return m.Name() == c.Name }) {
		c.Name = strings.TrimPrefix(c.Path, "unix://")
	}
	return r.open(c)
}

// at returns the runtime whose socket the path or endpoint leads to, or nil.
func (r *Runtimes) at(endpoint string) runtime.Runtime {
	members := r.set.Members()
	i := slices.IndexFunc(members, func(m runtime.Runtime) bool { return socket(m.Endpoint()) == socket(endpoint) })
	if i < 0 {
		return nil
	}
	return members[i]
}

// socket is the path of an endpoint, with links resolved as far as it exists.
func socket(endpoint string) string {
	path := filepath.Clean(strings.TrimPrefix(endpoint, "unix://"))
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// open adds a runtime to the set. It connects at the first call.
func (r *Runtimes) open(c local.Candidate) error {
	k, known := kinds()[c.Type]
	if !known {
		return fmt.Errorf("runtimes: %q is not a type of runtime that this version has", c.Type)
	}
	adapter, err := k.open(local.Options{
		Endpoint: c.Path, Name: c.Name, Logger: r.log, Units: r.units,
		Observe: func(method string, took time.Duration, err error) { r.observe(c.Name, method, took, err) },
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.types[c.Name] = c.Type
	r.mu.Unlock()
	if err := r.set.Add(adapter); err != nil {
		return errors.Join(err, adapter.Close())
	}
	select {
	case r.found <- struct{}{}:
	default: // told already
	}
	return nil
}

// OnRequest names those of runtimes, in order of the set, where people build images and
// keep stopped containers, so that nothing is removed before somebody asks for it.
func (r *Runtimes) OnRequest() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, m := range r.set.Members() {
		if kinds()[r.types[m.Name()]].asked {
			names = append(names, m.Name())
		}
	}
	return names
}

// Look finds runtimes that came since and asks all how they are. The error names
// those that do not answer. One that hangs is waited for once: after that it says how it is
// when it does, or its time is over, and keeps nobody from being found meanwhile.
func (r *Runtimes) Look(ctx context.Context) error {
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

	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = true
	var errs []error
	for _, m := range members {
		errs = append(errs, r.faults[m.Name()])
	}
	r.letGo(time.Now())
	return errors.Join(errs...)
}

// known tells whether a runtime has said how it is, or failed to.
func (r *Runtimes) known(m runtime.Runtime) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.states[m.Name()]
	return known
}

// ask asks a runtime how it is, and closes answered once that is noted. One that has not
// answered yet is not asked a second time.
func (r *Runtimes) ask(ctx context.Context, m runtime.Runtime) (answered <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if asked, pending := r.pending[m]; pending {
		return asked
	}
	done := make(chan struct{})
	r.pending[m] = done
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
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, m)
	if !slices.Contains(r.set.Members(), m) { // it was let go meanwhile
		return
	}
	name := m.Name()
	next := status.Runtime{Info: info, Since: now}
	before, known := r.states[name]
	if err != nil {
		next.Info = runtime.Info{Name: name, Endpoint: m.Endpoint(), Message: err.Error()}
		if known {
			next.Name, next.Version, next.SandboxImage = before.Name, before.Version, before.SandboxImage
		}
	}
	if known && before.Ready == next.Ready {
		next.Since = before.Since
	}
	if !known { // what becomes of it is told by the condition Ready
		r.log.Info("runtime found", "name", next.Name, "version", next.Version, "endpoint", next.Endpoint, "ready", next.Ready, "message", next.Message)
	}
	r.states[name], r.faults[name] = next, err
}

// Pods lists the pods of all runtimes for the shutdown guard, who must not take
// a runtime that is still starting for one without pods: as long as there may be
// one that nobody knows yet, or runc has its first container, it looks for it first, and the
// error names what does not answer.
func (g Guarded) Pods(ctx context.Context) ([]runtime.Pod, error) {
	known := len(g.Members())
	pods, err := g.Set.Pods(ctx)
	if g.runtimes.Complete() == nil && !g.runtimes.unfound() {
		return pods, err
	}
	g.runtimes.discover(ctx)
	if len(g.Members()) > known {
		pods, err = g.Set.Pods(ctx)
	}
	return pods, together(err, g.runtimes.Complete())
}

// unfound tells whether a state root that was not found yet has containers.
func (r *Runtimes) unfound() bool {
	return slices.ContainsFunc(r.candidates, func(c local.Candidate) bool {
		return c.Type == runc.Type && r.at(c.Path) == nil && r.roots.Inhabited(c.Path)
	})
}

// together is both errors, and one that names all runtimes where both name some.
func together(a, b error) error {
	failed, deserted := (*runtime.SetError)(nil), (*runtime.SetError)(nil)
	if errors.As(a, &failed) && errors.As(b, &deserted) {
		return &runtime.SetError{Failed: slices.Concat(failed.Failed, deserted.Failed)}
	}
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return errors.Join(a, b) // which names not all
}

// Discover finds runtimes that came since they were looked for, and tells whether there are
// any: for who cannot wait for the next Look.
func (r *Runtimes) Discover(ctx context.Context) (grown bool) {
	known := len(r.set.Members())
	r.discover(ctx)
	return len(r.set.Members()) > known
}

// Guarded is the set as the shutdown guard sees it.
type Guarded struct {
	*runtime.Set
	runtimes *Runtimes
}

// Guarded is the set for the shutdown guard.
func (r *Runtimes) Guarded() Guarded { return Guarded{r.set, r} }

// Complete tells why there may be runtimes that are not in the set; nil if there
// are none.
func (r *Runtimes) Complete() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.candidates == nil:
		return nil
	case !r.searched:
		return fmt.Errorf("%w: nobody has looked for runtimes yet", runtime.ErrUnavailable)
	case len(r.silent) > 0:
		return fmt.Errorf("%w: somebody listens at %s, but does not answer as a runtime yet", runtime.ErrUnavailable, strings.Join(r.silent, ", "))
	}
	// As those of the set that are down: somebody may stand in for them.
	var failed []runtime.MemberError
	for _, c := range r.deserted() {
		failed = append(failed, runtime.MemberError{Runtime: c.Name, Err: fmt.Errorf("%w: nothing listens at %s, but containers of it are there", runtime.ErrUnavailable, c.Path)})
	}
	if len(failed) == 0 {
		return nil
	}
	return &runtime.SetError{Failed: failed}
}

// discover adds the candidates whose socket answers and that are not known yet,
// by whatever path. A search by somebody else is waited for no longer than ctx.
func (r *Runtimes) discover(ctx context.Context) {
	select {
	case <-r.discovering:
		defer func() { r.discovering <- struct{}{} }()
	case <-ctx.Done():
		return
	}
	unknown := slices.DeleteFunc(slices.Clone(r.candidates), func(c local.Candidate) bool {
		return r.at(c.Path) != nil || r.member(c.Name) || borrowed(c)
	})
	var dead []Dead
	var silent []string
	for _, d := range r.detect(ctx, unknown) {
		err := d.Err
		if err == nil && !r.driven(d.Type) {
			err = r.open(d.Candidate)
		}
		if err == nil || d.Asleep { // it has no pods
			continue
		}
		dead = append(dead, Dead{d.Candidate, err})
		if d.Silent() {
			silent = append(silent, d.Path)
		}
	}
	// A containerd without CRI is Docker's, which tells of its containers.
	docked := r.has(docker.Type)
	dead = slices.DeleteFunc(dead, func(d Dead) bool { return docked && errors.Is(d.Err, cri.ErrSwitchedOff) })
	for _, d := range dead {
		if !slices.ContainsFunc(r.Dead(), func(known Dead) bool { return known.Path == d.Path }) {
			r.log.Warn("socket is there, but no usable runtime behind it", "path", d.Path, "error", d.Err)
		}
	}
	r.mu.Lock()
	// A search that was cut short has heard nothing of those that would answer.
	r.dead, r.silent, r.searched = dead, silent, r.searched || ctx.Err() == nil
	r.mu.Unlock()
	r.leaveToCRI()
}

// has tells whether a runtime of a type is in the set.
func (r *Runtimes) has(kind string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(slices.Collect(maps.Values(r.types)), kind)
}

// Dead are those of candidates that did not answer last time.
func (r *Runtimes) Dead() []Dead {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dead
}

// Unseen says why there may be pods of CRI on this host that no runtime of the set lists,
// and nothing if there are none: a runtime that does not answer, that was not looked
// for yet, that was stopped, or that the configuration leaves out.
func (r *Runtimes) Unseen() string {
	if r.candidates == nil {
		for _, c := range r.usual {
			if info, err := os.Stat(c.Path); err == nil && info.Mode().Type() == fs.ModeSocket && r.at(c.Path) == nil {
				return "the runtime at " + c.Path + " is not among those that are configured"
			}
		}
		return r.desertion()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.searched {
		return "runtimes are being looked for"
	}
	mayHave := func(d Dead) bool { return d.Type == cri.Type && !errors.Is(d.Err, cri.ErrSwitchedOff) }
	if i := slices.IndexFunc(r.dead, mayHave); i >= 0 {
		return "the runtime at " + r.dead[i].Path + " does not answer"
	}
	return r.desertion()
}

// Current returns every runtime's last answer in order of the set, where they were looked
// for those of CRI first, whose pods a Node's are, and whether all have been asked yet.
func (r *Runtimes) Current() (states []status.Runtime, asked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var others []status.Runtime
	for _, m := range r.set.Members() {
		s, known := r.states[m.Name()]
		switch {
		case !known:
		case r.candidates != nil && r.types[m.Name()] != cri.Type:
			others = append(others, s)
		default:
			states = append(states, s)
		}
	}
	return append(states, others...), r.asked
}

// Named is as Current, but by the names that pods, containers and images carry, of
// which no two runtimes have the same.
func (r *Runtimes) Named() []status.Runtime {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []status.Runtime
	for _, m := range r.set.Members() {
		if s, known := r.states[m.Name()]; known {
			s.Name = m.Name()
			list = append(list, s)
		}
	}
	return list
}

// Watch hands every runtime's events to receive until ctx ends, and tells blind
// when a runtime's stream opens and ends. A stream that breaks is opened again; a
// runtime without one is left to those who poll.
func (r *Runtimes) Watch(ctx context.Context, receive func(runtime.Event), blind func(runtime string, blind bool)) error {
	watched, lost := map[string]bool{}, map[string]bool{}
	events := make(chan runtime.Event, 64)
	ended := make(chan string)
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	var streams sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer streams.Wait()
	defer cancel()
	start := func() {
		for name := range lost {
			if delete(lost, name); !r.member(name) {
				blind(name, false) // it is let go: nobody waits for its events
			}
		}
		for _, m := range r.set.Members() {
			if watched[m.Name()] {
				continue
			}
			watched[m.Name()] = true
			streams.Go(func() {
				blind(m.Name(), false)
				err := m.Watch(ctx, events)
				blind(m.Name(), true)
				r.log.Debug("event stream ended", "runtime", m.Name(), "error", err)
				if errors.Is(err, runtime.ErrUnsupported) {
					<-ctx.Done() // asking again would not help
				}
				select {
				case ended <- m.Name():
				case <-ctx.Done():
				}
			})
		}
	}
	for start(); ; {
		select {
		case e := <-events:
			receive(e)
		case name := <-ended:
			delete(watched, name) // opened again at the next tick
			lost[name] = true
		case <-r.found:
			start()
		case <-tick.C:
			start()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
