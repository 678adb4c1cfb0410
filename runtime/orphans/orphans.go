// Package orphans stops containers whose runtime has stopped while they still run. An example is
// the containerd of k3s, RKE2 or k0s, which is a child of their service and stops with it. Its
// shims keep the containers alive, but nothing serves CRI any more.
//
// It owns the known data of such containers: the last list of their runtime, and the state of runc
// or crun in containerd's state root. It stops them through package runc, with the stop signal of
// their image, and discards their output. It does not touch containers of a running runtime, and
// supports only containers of runc and crun.
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

// DefaultRoot is the state root that containerd's shim passes to runc for CRI's containers. It does
// not depend on the place of containerd's own state, such as /run/k3s (RuncRoot in containerd's
// pkg/process, and CRI's namespace).
const DefaultRoot = "/run/containerd/runc/k8s.io"

const (
	// learnAtOnce bounds parallel image requests to a runtime, and learnBound their total time,
	// because the caller waits for them.
	learnAtOnce = 8
	learnBound  = 2 * time.Second
	// readBound bounds reading runc's state.
	readBound = time.Second
)

// Runtime is the set of the host's runtimes. It is always called first.
type Runtime interface {
	runtime.PodLister
	runtime.Stopper
}

// Options configure a Stopper. Runtime, Member and Log are required.
type Options struct {
	Runtime Runtime
	// Member reports whether the set has a runtime of that name now.
	Member func(name string) bool
	// StopSignal requests the stop signal of an image from a runtime; nil if no runtime reports it.
	StopSignal func(ctx context.Context, runtime, imageID string) (string, error)
	// Discover searches for runtimes that have just started, as during boot, and reports whether it
	// found any; nil if not supported.
	Discover func(ctx context.Context) bool
	// Root is the state root of the containers. The default is DefaultRoot.
	Root string
	Log  *slog.Logger
}

// Stopper lists and stops pods through the runtimes, and by itself if their runtime is gone. It is
// safe for concurrent use.
type Stopper struct {
	options Options
	log     *slog.Logger
	runc    *runc.Runtime
	logs    logs // of containers whose runtime is gone

	mu      sync.Mutex
	on      bool                     // guarded by mu: between Adopt and Release
	known   map[string][]runtime.Pod // guarded by mu: last known pods of each runtime; slices are never modified
	kept    map[string]bool          // guarded by mu: IDs of containers of which runc had a state; never modified, only replaced
	asked   map[string]string        // guarded by mu: stop signals by container ID
	signals map[image]string         // guarded by mu: stop signals that runtimes reported
}

// image identifies an image of a runtime.
type image struct{ runtime, id string }

// New returns a Stopper that only calls the runtimes until Adopt.
func New(o Options) (*Stopper, error) {
	if o.Root == "" {
		o.Root = DefaultRoot
	}
	s := &Stopper{options: o, log: o.Log.With("component", "orphans"), signals: map[image]string{}}
	var err error
	s.runc, err = runc.NewFor(runc.Containerd, s.signalOf, local.Options{Endpoint: o.Root, Logger: s.log})
	return s, err
}

// Learn records which containers of these pods have a state of runc. It requests the stop signals
// of new images while a runtime still answers.
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
	signals := map[image]string{} // forgets images that are gone
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
				return nil // other images may succeed
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.signals[i] = signal
			return nil
		})
	}
	_ = asking.Wait() // no function returns an error
}

// note records which containers have a state of runc. If such a container has none later, it has
// ended. Containers that are not listed any more are forgotten.
func (s *Stopper) note(ctx context.Context, pods []runtime.Pod) {
	states, err := s.states(ctx)
	if err != nil {
		return // Adopt logs this if it matters
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

// signalOf returns the stop signal of a container, or "" if it is unknown.
func (s *Stopper) signalOf(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[id]
}

// Adopt makes the Stopper manage the pods of sandbox runtimes that do not answer from now on. These
// are the pods in the last list or, if a runtime has none there, the pods that an earlier process
// recorded. Later containers, and containers of recorded pods, are found in runc's state. Adopt
// returns the known stop signals by container ID; known are those of an earlier process.
func (s *Stopper) Adopt(ctx context.Context, listed, recorded []runtime.Pod, known map[string]string) (signals map[string]string) {
	if s.options.Discover != nil && s.options.Discover(ctx) { // later its pods could not be found
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
	here, cancel := context.WithTimeout(context.WithoutCancel(ctx), readBound) // independent of the time that others took
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
	if len(adopted) == 0 { // runc's state belongs to a runtime that was never found
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

// keep records which containers have a state of runc. The caller holds mu.
func (s *Stopper) keep(states map[string]state) {
	kept := maps.Clone(s.kept) // copied, because Pods uses the old map
	if kept == nil {
		kept = map[string]bool{}
	}
	for id := range states {
		kept[id] = true
	}
	s.kept = kept
}

// Release makes the Stopper only call the runtimes again, because they return.
func (s *Stopper) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on, s.known, s.asked = false, nil, nil
	s.logs.end()
}

// adopted reports whether the Stopper manages that runtime's pods if it does not answer.
func (s *Stopper) adopted(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.on && s.known[name] != nil
}

// StopContainer calls the runtime and, if that does not answer, stops the processes. If the
// connection is lost during the call, the container has already been sent the stop signal. Then it
// keeps the rest of its grace, and gets no second signal.
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

// StopPod calls the runtime and, if that does not answer, kills the remaining processes of the pod.
// Only the runtime can tear down the network, which disappears with the host's shutdown.
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

// takesOver reports whether, after this error of the runtime, the Stopper acts by itself.
func (s *Stopper) takesOver(ctx context.Context, name string, err error) bool {
	return errors.Is(err, runtime.ErrUnavailable) && ctx.Err() == nil && s.adopted(name)
}

// stop ends a container that is in runc's state.
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
			return nil // it has ended, and its shim has removed the state
		}
		return fmt.Errorf("%s: %w: its runtime has stopped, and %s has no state of runc or crun", what, runtime.ErrUnsupported, s.options.Root)
	}
	return end(runtime.Container{ID: id})
}
