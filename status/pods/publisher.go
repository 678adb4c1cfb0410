package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/few"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/runtime"
)

const (
	// gather is the minimum time between two passes.
	gather = time.Second
	// compareInterval is how often all objects are read, to find changes by others.
	compareInterval = 10 * time.Minute
	// passTimeout bounds a pass. The next pass continues an incomplete one.
	passTimeout = 2 * time.Minute
	// tries bounds the attempts of a write that conflicts with others.
	tries = 5
	// mostNamed is how many objects a message names.
	mostNamed = 5
	// mostKnown bounds the memory for stored objects, in bytes. 500 of our own need about 50 MB.
	mostKnown = 128 << 20
)

// Store has the objects of one Node. Each call sets a deadline. The error classes are those of
// package controlplane.
type Store interface {
	// List returns a page of the objects. page is empty for the first.
	List(ctx context.Context, page string) (controlplane.PodPage, error)
	// Put stores an object if the stored version is instead. It returns the object that is stored
	// afterwards, even with ErrConflict.
	Put(ctx context.Context, path string, value []byte, instead controlplane.PodVersion) (controlplane.StoredPod, error)
	// Delete removes an object if it has that version. With ErrConflict, it returns the stored
	// object.
	Delete(ctx context.Context, path string, version controlplane.PodVersion) (controlplane.StoredPod, error)
	// Current reports whether a connection is still in use. It makes no call.
	Current(connection int64) bool
}

// Options configure a Publisher.
type Options struct {
	Store Store
	// Node returns the name and addresses of this host's Node. The UID comes from Named.
	Node func() NodeFacts
	// Unseen reports whether there may be pods that no runtime lists. Then no object of an unlisted
	// pod is deleted.
	Unseen func() bool
	// Network returns the network of a pod, which never changes while the pod runs. The error is
	// runtime.ErrUnsupported if the runtime does not report it.
	Network func(context.Context, runtime.Pod) (runtime.PodNetwork, error)
	// Written is called before the first object is written, and after the last one was removed.
	Written func(bool)
	// Heartbeat is called with the result of each pass.
	Heartbeat func(error)
	Log       *slog.Logger
}

// Publisher keeps the objects up to date. Observe, Named and Lost may be called concurrently with
// the other methods; Run and Remove may not run concurrently.
type Publisher struct {
	o    Options
	seen atomic.Pointer[[]runtime.Pod]
	uid  atomic.Pointer[types.UID]
	wake loop.Signal
}

// New returns a Publisher that has done nothing yet.
func New(o Options) *Publisher { return &Publisher{o: o, wake: loop.NewSignal()} }

// Observe sets the latest complete list of pods, which must not be modified afterwards.
func (p *Publisher) Observe(pods []runtime.Pod) {
	p.seen.Store(&pods)
	p.wake.Send()
}

// Named sets the Node's UID on the control plane. The Node owns the objects.
func (p *Publisher) Named(uid types.UID) {
	p.uid.Store(&uid)
	p.wake.Send()
}

// Lost records that the Node was deleted or belongs to another machine, which may use the same
// paths.
func (p *Publisher) Lost() { p.uid.Store(nil) }

// Run keeps the objects up to date until ctx ends. It first compares all objects.
func (p *Publisher) Run(ctx context.Context) error {
	s, owner := session{o: p.o}, p.uid.Load()
	return p.repeat(ctx, func(ctx context.Context) (time.Duration, error) {
		pods, uid := p.seen.Load(), p.uid.Load()
		if uid != owner { // another machine may have written since
			s.known, owner = nil, uid
		}
		if pods == nil || uid == nil {
			return compareInterval, nil // Observe or Named wakes it earlier
		}
		node := p.o.Node()
		node.UID = *uid
		return s.pass(ctx, Facts{Node: node, Pods: *pods})
	})
}

// RunRemoval removes all objects, retries until that succeeds, and then waits until ctx ends. It is
// for a host that does not publish objects any more.
func (p *Publisher) RunRemoval(ctx context.Context) error {
	done := false
	return p.repeat(ctx, func(ctx context.Context) (time.Duration, error) {
		if done || p.uid.Load() == nil {
			return compareInterval, nil
		}
		err := p.remove(ctx)
		done = err == nil
		p.o.Heartbeat(err)
		return compareInterval, err
	})
}

// Remove removes all objects of the Node. It marks objects with finalizers as ended. Run continues
// after the next Named.
func (p *Publisher) Remove(ctx context.Context) error {
	p.Lost()
	return p.remove(ctx)
}

func (p *Publisher) remove(ctx context.Context) error {
	o := p.o
	o.Unseen = func() bool { return false }
	s := session{o: o}
	if err := s.compare(ctx, Desired{}); err != nil {
		return err
	}
	o.Written(false)
	return nil
}

// repeat calls do when the Publisher is woken, or after the returned time. After errors, the
// intervals grow. It logs when a problem begins and ends.
func (p *Publisher) repeat(ctx context.Context, do func(context.Context) (time.Duration, error)) error {
	fresh := wait.Backoff{Duration: time.Second, Factor: 2, Steps: 7, Cap: time.Minute, Jitter: 0.1}
	pause, silent, failing := fresh, controlplane.Retry(), false
	for {
		began := time.Now()
		bound, cancel := context.WithTimeoutCause(ctx, passTimeout, controlplane.ErrNoAnswer)
		next, err := do(bound)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if !failing {
				p.o.Log.Warn("cannot update pod objects", "error", err)
			}
			failing = true
			next := &pause
			if errors.Is(err, controlplane.ErrUnavailable) { // nothing was answered: retry as often as renewals of the Lease
				next = &silent
			}
			if err := bounded.Sleep(ctx, next.Step()); err != nil {
				return err
			}
			continue
		case failing:
			p.o.Log.Info("pod objects updated again")
		}
		pause, silent, failing = fresh, controlplane.Retry(), false
		select {
		case <-p.wake:
		case <-time.After(next):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := bounded.Sleep(ctx, gather-time.Since(began)); err != nil {
			return err
		}
	}
}

// session is the state of one Run. It belongs to Run's goroutine.
type session struct {
	o          Options
	known      map[string]Stored // nil if all objects must be compared
	size       int               // memory of known, in bytes
	connection int64             // over which they were read
	compared   time.Time
	networks   map[PodKey]runtime.PodNetwork
	failed     map[PodKey]time.Time // last request for a network, if it failed
	noted      bool                 // Written was called
	waiting    []Skipped            // in this pass: pods that wait until another object is removed
}

// pass updates the stored objects, and returns the time until all must be compared.
func (s *session) pass(ctx context.Context, f Facts) (time.Duration, error) {
	f.Networks = s.ask(ctx, f.Pods)
	d := Desire(f)
	s.waiting = nil
	var err error
	if s.known == nil || time.Since(s.compared) >= compareInterval || !s.o.Store.Current(s.connection) {
		err = s.compare(ctx, d)
	} else {
		err = s.update(ctx, d)
	}
	if err != nil {
		s.known = nil // the stored objects are uncertain
		s.o.Heartbeat(err)
		return 0, err
	}
	s.o.Heartbeat(skippedError(append(d.Skipped, s.waiting...), len(d.Running)))
	return time.Until(s.compared.Add(compareInterval)), nil
}

// ask returns the networks of running pods. It requests each once. If a runtime does not answer,
// the next pass continues with the pods that were not requested for longest: the sandbox of one pod
// may hang.
func (s *session) ask(ctx context.Context, pods []runtime.Pod) map[PodKey]runtime.PodNetwork {
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(a, b runtime.Pod) int {
		return s.failed[PodKey{a.Runtime, a.ID}].Compare(s.failed[PodKey{b.Runtime, b.ID}])
	})
	known, before, failed := map[PodKey]runtime.PodNetwork{}, s.failed, false
	s.failed = map[PodKey]time.Time{}
	for _, p := range pods {
		if phase(p) != corev1.PodRunning || len(known) >= MostPods {
			continue
		}
		key := PodKey{p.Runtime, p.ID}
		network, asked := s.networks[key]
		failedAt := before[key]
		if !asked && !failed {
			var err error
			network, err = s.o.Network(ctx, p)
			asked = err == nil || errors.Is(err, runtime.ErrUnsupported)
			if failed = errors.Is(err, runtime.ErrUnavailable); failed {
				failedAt = time.Now()
			}
		}
		if asked {
			known[key] = network
		} else if !failedAt.IsZero() {
			s.failed[key] = failedAt
		}
	}
	s.networks = known
	return known
}

// skippedError returns an error that names pods without an object, or nil.
func skippedError(all []Skipped, objects int) error {
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%d running pods have no object in the control plane, %d have: %s", len(all), objects, named(all))
}

// compare reads all objects, and corrects them.
func (s *session) compare(ctx context.Context, d Desired) error {
	s.known, s.size, s.connection, s.compared = map[string]Stored{}, 0, 0, time.Now()
	var errs, unreadable []error
	defer func() {
		if err := few.Errors(unreadable, mostNamed); err != nil {
			s.o.Log.Warn("found unreadable pod objects", "error", err)
		}
	}()
	seen := map[string]bool{}
	for page, first := "", true; page != "" || first; first = false {
		list, err := s.o.Store.List(ctx, page)
		if err != nil {
			return err
		}
		if first {
			s.connection = list.Connection
		}
		for _, stored := range list.Pods {
			seen[stored.Path] = d.Running[stored.Path] != nil
			have, err := read(stored)
			if err != nil {
				unreadable = append(unreadable, fmt.Errorf("%.100q: %w", stored.Path, err))
			}
			if err := s.change(ctx, d, stored.Path, have); err != nil {
				if !errors.Is(err, controlplane.ErrInvalid) {
					return err
				}
				errs = append(errs, err)
			}
		}
		page = list.Next
	}
	for _, path := range slices.Sorted(maps.Keys(d.Running)) {
		if seen[path] {
			continue
		}
		if err := s.change(ctx, d, path, Stored{}); err != nil {
			if !errors.Is(err, controlplane.ErrInvalid) {
				return err
			}
			errs = append(errs, err)
		}
	}
	return few.Errors(errs, mostNamed)
}

// update changes objects that differ from the desired ones, judging by what is known of the stored
// ones.
func (s *session) update(ctx context.Context, d Desired) error {
	paths := map[string]bool{}
	for path := range d.Running {
		paths[path] = true
	}
	for path := range s.known {
		paths[path] = true
	}
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if err := s.change(ctx, d, path, s.known[path]); err != nil {
			if !errors.Is(err, controlplane.ErrInvalid) {
				return err
			}
			errs = append(errs, err)
		}
	}
	return few.Errors(errs, mostNamed)
}

// change carries out Decide for one object, and repeats it after a conflict.
func (s *session) change(ctx context.Context, d Desired, path string, have Stored) error {
	want := d.Running[path]
	if want == nil {
		want = d.Ended[path]
	}
	running := d.Running[path] != nil
	for try := 1; ; try++ {
		var c Change
		seen := want != nil && have.Pod != nil && have.Pod.UID == want.UID
		if running || !d.Kept[path] && (seen || !s.o.Unseen()) {
			c = Decide(want, have, time.Now())
		}
		var stored controlplane.StoredPod
		var err error
		switch c.Action {
		case Keep:
			s.learn(path, have, running, c.Waits)
			return nil
		case Delete:
			stored, err = s.o.Store.Delete(ctx, path, have.Version)
		case Put:
			var value []byte
			if value, err = json.Marshal(c.Pod); err != nil {
				return fmt.Errorf("put pod object %s: %w: %w", path, controlplane.ErrInvalid, err)
			}
			if !s.noted {
				s.o.Written(true)
				s.noted = true
			}
			stored, err = s.o.Store.Put(ctx, path, value, have.Version)
		}
		if err != nil && (!errors.Is(err, controlplane.ErrConflict) || try == tries) {
			return err
		}
		if have, _ = read(stored); err == nil { // an unreadable object is replaced
			s.learn(path, have, running, c.Waits)
			return nil
		}
	}
}

// learn records a stored object. Objects beyond the memory limit are compared later. Half of it is
// only for objects of running pods.
func (s *session) learn(path string, have Stored, running, waits bool) {
	if waits {
		s.waiting = append(s.waiting, Skipped{path, "the object of an earlier pod has finalizers"})
	}
	s.size -= s.known[path].size
	delete(s.known, path)
	objects, size := MostPods, mostKnown/2
	if running {
		objects, size = 2*MostPods, mostKnown
	}
	if have.exists() && len(s.known) < objects && s.size+have.size <= size {
		s.known[path] = have
		s.size += have.size
	}
}
