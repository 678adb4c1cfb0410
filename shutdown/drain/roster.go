package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/plan"
)

// Runtime is the part of the container runtimes that a drain needs. If a list fails for some
// runtimes, it has the pods of the others.
type Runtime interface {
	runtime.PodLister
	runtime.Stopper
}

// Roster lists pods, and keeps the last list for the case that a runtime hangs.
type Roster struct {
	Runtime
	// Living returns the IDs of containers that have a process; nil if unknown. It is called if the
	// runtime of a container has stopped.
	Living func() (map[string]bool, error)

	living living

	mu    sync.Mutex
	pods  []runtime.Pod // guarded by mu
	ok    bool          // guarded by mu: there was at least one list
	setAt time.Time     // guarded by mu: time of the last Set

	changes int // guarded by mu: number of calls of Change
	listed  int // guarded by mu: number of those before the current list
}

// List lists the pods until ctx ends. For a runtime that does not answer, it returns the last known
// pods, with an error.
func (r *Roster) List(ctx context.Context) ([]runtime.Pod, error) {
	pods, _, err := r.ask(ctx, false)
	return pods, err
}

// list is List for a drain. It also returns which runtimes did not answer. A stopped runtime whose
// containers have all ended counts as answered.
func (r *Roster) list(ctx context.Context) (pods []runtime.Pod, unreachable func(name string) bool, err error) {
	return r.ask(ctx, true)
}

func (r *Roster) ask(ctx context.Context, drains bool) (pods []runtime.Pod, unreachable func(name string) bool, err error) {
	type answer struct {
		pods []runtime.Pod
		err  error
	}
	// Stop this call before ctx ends, so that the answers of the other runtimes are returned.
	inner, cancel := ctx, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		inner, cancel = context.WithTimeout(ctx, time.Until(deadline)*4/5)
	}
	defer cancel()
	answers := make(chan answer, 1)
	r.mu.Lock()
	changes := r.changes
	r.mu.Unlock()
	go func() {
		pods, err := r.Pods(inner)
		answers <- answer{pods, err}
	}()
	var got answer
	select {
	case got = <-answers:
	case <-ctx.Done():
		got.err = ctx.Err()
	}
	if got.err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if changes >= r.listed { // otherwise a newer list exists
			r.pods, r.ok, r.listed = got.pods, true, changes
		}
		return got.pods, func(string) bool { return false }, nil
	}
	known, ok := r.Last()
	if ok && drains {
		got.pods, got.err = r.withoutEnded(got.pods, got.err, known)
	}
	unreachable = unreachableOf(got.pods, got.err)
	for _, p := range known {
		if unreachable(p.Runtime) {
			got.pods = append(got.pods, p)
		}
	}
	if got.err == nil {
		return got.pods, unreachable, nil
	}
	return got.pods, unreachable, fmt.Errorf("list pods: %w", got.err)
}

// withoutEnded removes stopped runtimes whose containers have all ended from an error, because their
// last known pods are correct.
func (r *Roster) withoutEnded(pods []runtime.Pod, err error, known []runtime.Pod) ([]runtime.Pod, error) {
	failed, whole := err.(*runtime.SetError)
	if !whole {
		return pods, err
	}
	var left []runtime.MemberError
	for _, f := range failed.Failed {
		ended := true
		var own []runtime.Pod
		for _, p := range known {
			if p.Runtime != f.Runtime {
				continue
			}
			p.Containers = slices.Clone(p.Containers)
			for i := range p.Containers {
				if c := &p.Containers[i]; plan.Alive(*c) {
					c.State = runtime.Exited
					ended = ended && r.ended(c.ID, f.Err)
				}
			}
			p.Ready = false
			own = append(own, p)
		}
		if ended && isAbsent(f.Err) && r.Living != nil {
			pods = append(pods, own...)
		} else {
			left = append(left, f)
		}
	}
	if len(left) == 0 {
		return pods, nil
	}
	return pods, &runtime.SetError{Failed: left}
}

// isAbsent reports whether the error means that the runtime is absent, not slow.
func isAbsent(err error) bool {
	return errors.Is(err, runtime.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded)
}

// ended reports whether a container of a failed runtime has certainly ended: the runtime is absent,
// and the container has no process.
func (r *Roster) ended(id string, err error) bool {
	if r.Living == nil || !isAbsent(err) || len(id) != idLength {
		return false
	}
	living, err := r.living.get(r.Living)
	return err == nil && !living[id]
}

// idLength is the length of container IDs in the cgroups of processes. Other IDs cannot be found
// there.
const idLength = 64

const (
	// livingAge is how long a result is reused, because a scan reads all processes.
	livingAge = time.Second
	// livingBound bounds the wait for a scan: a process may hang in the kernel and block it.
	livingBound = 500 * time.Millisecond
)

var errLivingHangs = errors.New("search for container processes does not return")

// living scans for containers that have processes. It is safe for concurrent use.
type living struct {
	mu   sync.Mutex
	scan *scan     // guarded by mu: running or last scan; nil before the first
	at   time.Time // guarded by mu: when the scan returned; zero while it runs
}

// scan is one scan of all processes.
type scan struct {
	done chan struct{} // closed when the scan has returned
	ids  map[string]bool
	err  error
}

// get returns a recent result. It waits at most for livingBound.
func (l *living) get(ask func() (map[string]bool, error)) (map[string]bool, error) {
	now := l.latest(ask)
	timer := time.NewTimer(livingBound)
	defer timer.Stop()
	select {
	case <-now.done:
		return now.ids, now.err
	case <-timer.C:
		return nil, errLivingHangs
	}
}

// latest returns the running scan, a recent one, or a new one.
func (l *living) latest(ask func() (map[string]bool, error)) *scan {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.scan != nil && (l.at.IsZero() || time.Since(l.at) < livingAge) {
		return l.scan
	}
	now := &scan{done: make(chan struct{})}
	l.scan, l.at = now, time.Time{}
	go func() {
		now.ids, now.err = ask()
		l.mu.Lock()
		l.at = time.Now()
		l.mu.Unlock()
		close(now.done)
	}()
	return now
}

// unreachableOf returns which runtimes did not answer a list with error err: those in err. If err
// does not name all, it is those without listed pods.
func unreachableOf(pods []runtime.Pod, err error) func(name string) bool {
	names := map[string]bool{}
	if err == nil {
		return func(string) bool { return false }
	}
	if failed, whole := err.(*runtime.SetError); whole { // if it is joined with another error, it does not name all runtimes
		for _, f := range failed.Failed {
			names[f.Runtime] = true
		}
		return func(name string) bool { return names[name] }
	}
	for _, p := range pods {
		names[p.Runtime] = true
	}
	return func(name string) bool { return !names[name] }
}

// Set stores the pods of all runtimes that the agent has listed.
func (r *Roster) Set(pods []runtime.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods, r.ok, r.setAt, r.listed = pods, true, time.Now(), r.changes
}

// Change records that pods appeared or ended since the last list.
func (r *Roster) Change() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
}

// outdated reports whether pods appeared or ended since the last list.
func (r *Roster) outdated() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes > r.listed
}

// freshSince returns the pods, and whether Set was called after since.
func (r *Roster) freshSince(since time.Time) ([]runtime.Pod, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods, r.setAt.After(since)
}

// Last returns the last list, and whether there was one.
func (r *Roster) Last() ([]runtime.Pod, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods, r.ok
}

// Closed reports whether a channel is closed on which nothing is sent. A nil channel is not.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
