// Package orphans stops containers whose runtime has stopped while they still run. An example is the
// containerd of k3s, RKE2 or k0s: it is a child of their service and stops with it, but its shims
// keep the containers alive and nothing serves CRI any more.
//
// It owns what is known of such containers: what their runtime listed before it stopped, and the
// state of runc or crun in containerd's state root. It stops them through package runc, with the
// stop signal of their image, and discards their output. It touches no container of a
// running runtime, and only containers of runc and crun.
package orphans

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runc"
)

// DefaultRoot is where containerd's shim has runc keep the state of CRI's containers. It is
// the same wherever containerd keeps its own, as below /run/k3s (RuncRoot in containerd's
// pkg/process, and CRI's namespace).
const DefaultRoot = "/run/containerd/runc/k8s.io"

const (
	// learnAtOnce bounds parallel image requests to a runtime, and learnBound their total time: the
	// caller waits for them.
	learnAtOnce = 8
	learnBound  = 2 * time.Second
	// readBound is how long it may take to read what runc keeps.
	readBound = time.Second
)

// Runtime is the set of runtimes of the host, which is used first.
type Runtime interface {
	runtime.PodLister
	runtime.Stopper
}

// Options are the runtimes that are used first. Runtime, Member and Log are required.
type Options struct {
	Runtime Runtime
	// Member reports whether a runtime of that name is among them now.
	Member func(name string) bool
	// StopSignal asks a runtime for the stop signal of an image; nil if none reports it.
	StopSignal func(ctx context.Context, runtime, imageID string) (string, error)
	// Discover searches for runtimes that have just appeared, as during boot, and reports whether
	// it found any; nil if not supported.
	Discover func(ctx context.Context) bool
	// Root is the state root of the containers; DefaultRoot if empty.
	Root string
	Log  *slog.Logger
}

// Stopper lists and stops pods as the runtimes do, and in their stead once they are gone. It
// is safe for concurrent use.
type Stopper struct {
	options Options
	log     *slog.Logger
	runc    *runc.Runtime
	logs    logs // of containers whose runtime is gone

	mu      sync.Mutex
	on      bool                     // guarded by mu: runtimes may be gone
	known   map[string][]runtime.Pod // guarded by mu: pods of each runtime before; their slices are never changed
	kept    map[string]bool          // guarded by mu: IDs of containers of which runc kept a state; never changed
	asked   map[string]string        // guarded by mu: by which signal containers are sent the stop signal, by ID
	signals map[image]string         // guarded by mu: as runtimes reported them
}

// image is one of a runtime.
type image struct{ runtime, id string }

// New makes a Stopper that passes all on until Adopt.
func New(o Options) (*Stopper, error) {
	if o.Root == "" {
		o.Root = DefaultRoot
	}
	s := &Stopper{options: o, log: o.Log.With("component", "orphans"), signals: map[image]string{}}
	var err error
	s.runc, err = runc.NewFor(runc.Containerd, s.signalOf, local.Options{Endpoint: o.Root, Logger: s.log})
	return s, err
}

// Learn records which containers of these pods runc has a state of, and requests the stop signals
// of new images, as long as a runtime answers.
func (s *Stopper) Learn(ctx context.Context, pods []runtime.Pod) {
	s.note(ctx, pods)
	if s.options.StopSignal == nil {
		return
	}
	used := map[image]bool{}
	for _, p := range pods {
		for _, c := range p.Containers {
			if p.Sandbox && c.State == runtime.Running {
				used[image{c.Runtime, c.ImageID}] = true
			}
		}
	}
	s.mu.Lock()
	var unknown []image
	signals := map[image]string{} // those of images that are gone are forgotten
	for i := range used {
		if signal, known := s.signals[i]; known {
			signals[i] = signal
		} else {
			unknown = append(unknown, i)
		}
	}
	s.signals = signals
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, learnBound)
	defer cancel()
	var asking errgroup.Group
	asking.SetLimit(learnAtOnce)
	for _, i := range unknown {
		asking.Go(func() error {
			signal, err := s.options.StopSignal(ctx, i.runtime, i.id)
			if err != nil {
				s.log.Debug("cannot read stop signal of image", "runtime", i.runtime, "image", i.id, "error", err)
				return nil // the others' are
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.signals[i] = signal
			return nil
		})
	}
	_ = asking.Wait() // none fails
}

// note notes of which containers runc keeps a state: one of them that is gone later has ended,
// and is none of another program's. What is no longer listed is forgotten.
func (s *Stopper) note(ctx context.Context, pods []runtime.Pod) {
	states, err := s.states(ctx)
	if err != nil {
		return // Adopt reports it if it matters
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on {
		return
	}
	listed := map[string]bool{}
	for _, p := range pods {
		listed[p.ID] = true
		for _, c := range p.Containers {
			listed[c.ID] = true
		}
	}
	before := s.kept
	s.kept = map[string]bool{}
	for id := range before {
		if listed[id] {
			s.kept[id] = true
		}
	}
	s.keep(states)
}

// signalOf is the stop signal of a container; empty where it is not known.
func (s *Stopper) signalOf(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[id]
}

// Adopt makes it manage the pods of each sandbox runtime that does not answer from now on: the pods
// in the last list or, without a list, those that an earlier process recorded. Later containers,
// and containers of recorded pods, are found in the state of runc. Adopt returns known stop signals
// of containers, by ID; known are those of an earlier process.
func (s *Stopper) Adopt(ctx context.Context, listed, recorded []runtime.Pod, known map[string]string) (signals map[string]string) {
	if s.options.Discover != nil && s.options.Discover(ctx) { // nobody could find its pods later
		if now, err := s.options.Runtime.Pods(ctx); err == nil {
			listed = now
		}
	}
	lists := map[string]bool{}
	for _, p := range listed {
		lists[p.Runtime] = true
	}
	pods := slices.Clone(listed)
	for _, p := range recorded {
		if !lists[p.Runtime] {
			pods = append(pods, p)
		}
	}
	s.Learn(ctx, pods)
	here, cancel := context.WithTimeout(context.WithoutCancel(ctx), readBound) // however long others took to answer
	defer cancel()
	states, err := s.states(here)
	if err != nil {
		s.log.Warn("cannot stop containers without their runtime", "error", err)
	}
	adopted := map[string][]runtime.Pod{}
	for _, p := range pods {
		if p.Sandbox {
			adopted[p.Runtime] = append(adopted[p.Runtime], p)
		}
	}
	if len(adopted) == 0 { // whatever runc keeps is of one that was never found
		adopted[runc.Containerd] = []runtime.Pod{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	signals = maps.Clone(known)
	if signals == nil {
		signals = map[string]string{}
	}
	for _, p := range pods {
		for _, c := range p.Containers {
			if signal := s.signals[image{c.Runtime, c.ImageID}]; signal != "" {
				signals[c.ID] = signal
			}
		}
	}
	s.keep(states)
	s.on, s.known, s.asked = true, adopted, signals
	return maps.Clone(signals)
}

// keep notes of which containers runc keeps a state. Called with mu held.
func (s *Stopper) keep(states map[string]state) {
	kept := maps.Clone(s.kept) // what was handed out stays as it is
	if kept == nil {
		kept = map[string]bool{}
	}
	for id := range states {
		kept[id] = true
	}
	s.kept = kept
}

// Release has it pass all on again: the runtimes are coming back.
func (s *Stopper) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on, s.known, s.asked = false, nil, nil
	s.logs.end()
}

// adopted reports whether it stands in for that runtime where it does not answer.
func (s *Stopper) adopted(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.on && s.known[name] != nil
}

// StopContainer uses the runtime as long as it answers, and otherwise stops the processes. If the
// runtime stops answering in between, the container has been sent the stop signal: it keeps the
// rest of its grace, and gets no second signal.
func (s *Stopper) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	began := time.Now()
	err := s.options.Runtime.StopContainer(ctx, c, grace)
	if !s.takesOver(ctx, c.Runtime, err) {
		return err
	}
	if gone(err) {
		s.discardLog(c.ID)
	}
	end := s.runc.StopContainer
	if errors.Is(err, runtime.ErrLost) {
		end = s.runc.EndContainer
	}
	return s.stop(ctx, c.ID, local.Named("stop container", c.Name, c.ID), func(c runtime.Container) error {
		return end(ctx, c, max(0, grace-time.Since(began)))
	})
}

// StopPod uses the runtime, too, or ends the remaining processes of the pod. Only the runtime can
// tear down the network, which ends with the host.
func (s *Stopper) StopPod(ctx context.Context, p runtime.Pod) error {
	err := s.options.Runtime.StopPod(ctx, p)
	if !s.takesOver(ctx, p.Runtime, err) {
		return err
	}
	kill := func(c runtime.Container) error { return s.runc.StopContainer(ctx, c, 0) }
	states, err := s.states(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", local.Named("stop pod", p.Name, p.ID), err)
	}
	var errs []error
	for id, state := range states {
		if id != p.ID && state.pod == p.ID && state.State == runtime.Running {
			errs = append(errs, s.stop(ctx, id, local.Named("stop container", state.name, id), kill))
		}
	}
	return errors.Join(append(errs, s.stop(ctx, p.ID, local.Named("stop pod", p.Name, p.ID), kill))...)
}

// takesOver reports whether a call that ended so is to be made in the runtime's stead.
func (s *Stopper) takesOver(ctx context.Context, name string, err error) bool {
	return errors.Is(err, runtime.ErrUnavailable) && ctx.Err() == nil && s.adopted(name)
}

// stop ends a container by what runc keeps of it.
func (s *Stopper) stop(ctx context.Context, id, what string, end func(runtime.Container) error) error {
	states, err := s.states(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	s.mu.Lock()
	kept := s.kept[id]
	s.mu.Unlock()
	if _, there := states[id]; !there {
		if kept {
			return nil // it has ended, and its shim has tidied up
		}
		return fmt.Errorf("%s: %w: its runtime has stopped, and %s has no state of runc or crun", what, runtime.ErrUnsupported, s.options.Root)
	}
	return end(runtime.Container{ID: id})
}
