package orphans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"hostler.io/hostler/runtime"
)

// Annotations that containerd's CRI sets on a container (pkg/cri/annotations).
const (
	annotationSandbox   = "io.kubernetes.cri.sandbox-id"
	annotationNamespace = "io.kubernetes.cri.sandbox-namespace"
	annotationPod       = "io.kubernetes.cri.sandbox-name"
	annotationUID       = "io.kubernetes.cri.sandbox-uid" // since containerd 1.6
	annotationContainer = "io.kubernetes.cri.container-name"
	annotationImage     = "io.kubernetes.cri.image-name"
)

// state is a container in runc's state.
type state struct {
	runtime.Container
	pod  string // ID of its sandbox; its own ID if it is a sandbox
	name string // name in its pod
}

// states returns the containers in the state root, by ID.
func (s *Stopper) states(ctx context.Context) (map[string]state, error) {
	listed, err := s.runc.Pods(ctx)
	if err != nil {
		return nil, fmt.Errorf("read state of runc in %s: %w", s.options.Root, err)
	}
	states := map[string]state{}
	for _, p := range listed {
		c := p.Containers[0] // each pod has one
		states[c.ID] = state{Container: c, pod: cmp.Or(c.Labels[annotationSandbox], c.ID), name: cmp.Or(c.Labels[annotationContainer], c.ID)}
	}
	return states, nil
}

// Pods lists the pods of the runtimes. For an adopted runtime that does not answer, it returns the
// known pods, with containers in the state that runc has now, and containers that were created
// since.
func (s *Stopper) Pods(ctx context.Context) ([]runtime.Pod, error) {
	pods, err := s.options.Runtime.Pods(ctx)
	s.mu.Lock()
	on, known, kept := s.on, s.known, s.kept
	s.mu.Unlock()
	if !on {
		return pods, err
	}
	unresponsive := s.unreachable(known, err)
	if len(unresponsive) == 0 {
		s.logs.end()
		return pods, err
	}
	states, unread := s.states(ctx)
	if unread != nil {
		return pods, errors.Join(err, unread)
	}
	orphans := newOrphanPods(unresponsive, known, kept, states)
	for _, p := range pods {
		orphans.dropSandbox(p.ID)
	}
	orphans.addRemaining(unresponsive[0])
	found := orphans.pods()
	s.discardLogs(found, err)
	return append(pods, found...), without(err, unresponsive)
}

// discardLogs discards the output of these pods' containers if their runtime is gone. A runtime
// that hangs may still read it.
func (s *Stopper) discardLogs(orphans []runtime.Pod, err error) {
	for _, p := range orphans {
		if s.options.Member(p.Runtime) && !gone(memberError(err, p.Runtime)) {
			continue
		}
		for _, c := range p.Containers {
			if c.State == runtime.Running {
				s.discardLog(c.ID)
			}
		}
	}
}

// discardLog discards a container's output, unless its runtime may read it again.
func (s *Stopper) discardLog(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.on {
		return
	}
	s.logs.discard(id, func() string { return s.runc.Bundle(id) })
}

// gone reports whether an error means that a runtime does not exist, rather than that it is slow.
func gone(err error) bool {
	return errors.Is(err, runtime.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded)
}

// memberError returns the error of one runtime in the error of a list.
func memberError(err error, name string) error {
	if set := (*runtime.SetError)(nil); errors.As(err, &set) {
		for _, f := range set.Failed {
			if f.Runtime == name {
				return f.Err
			}
		}
	}
	return nil
}

// unreachable returns the names of the known runtimes that failed or are not in the set any more,
// sorted.
func (s *Stopper) unreachable(known map[string][]runtime.Pod, err error) (names []string) {
	failed := map[string]bool{}
	if set := (*runtime.SetError)(nil); errors.As(err, &set) {
		for _, f := range set.Failed {
			failed[f.Runtime] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if failed[name] || !s.options.Member(name) {
			names = append(names, name)
		}
	}
	return names
}

// without removes the errors of these runtimes from the error of a list.
func without(err error, unresponsive []string) error {
	switch e := err.(type) {
	case *runtime.SetError:
		rest := slices.DeleteFunc(slices.Clone(e.Failed), func(f runtime.MemberError) bool { return slices.Contains(unresponsive, f.Runtime) })
		if len(rest) == 0 {
			return nil
		}
		return &runtime.SetError{Failed: rest}
	case interface{ Unwrap() []error }: // from errors.Join
		var rest []error
		for _, one := range e.Unwrap() {
			rest = append(rest, without(one, unresponsive))
		}
		return errors.Join(rest...)
	}
	return err
}

// orphanPods builds the pods of runtimes that are gone.
type orphanPods struct {
	states map[string]state // not assigned to a pod yet
	byID   map[string]*runtime.Pod
}

// newOrphanPods returns the known pods, with each container's current state. If runc never had a
// state of a container, the known state stays. If runc had one and has none now, the container has
// ended, and its exit code is unknown.
func newOrphanPods(unresponsive []string, known map[string][]runtime.Pod, kept map[string]bool, states map[string]state) *orphanPods {
	f := &orphanPods{states: maps.Clone(states), byID: map[string]*runtime.Pod{}}
	for _, name := range unresponsive {
		for _, p := range known[name] {
			p.Containers = slices.Clone(p.Containers)
			for i := range p.Containers {
				c := &p.Containers[i]
				if c.State != runtime.Exited {
					c.State = stateOf(c.ID, c.State, kept, states)
				}
				delete(f.states, c.ID)
			}
			p.Ready = p.Ready && stateOf(p.ID, runtime.Running, kept, states) == runtime.Running
			delete(f.states, p.ID)
			f.byID[p.ID] = &p
		}
	}
	return f
}

func stateOf(id string, known runtime.ContainerState, kept map[string]bool, states map[string]state) runtime.ContainerState {
	switch now, there := states[id]; {
	case there:
		return now.State
	case kept[id]:
		return runtime.Exited
	}
	return known
}

// dropSandbox drops the containers of a sandbox whose runtime answers.
func (f *orphanPods) dropSandbox(sandbox string) {
	maps.DeleteFunc(f.states, func(_ string, s state) bool { return s.pod == sandbox })
}

// addRemaining adds the remaining containers: to their pod, or to a new pod of that runtime with
// the data of their annotations.
func (f *orphanPods) addRemaining(runtimeName string) {
	for _, id := range slices.Sorted(maps.Keys(f.states)) {
		s := f.states[id]
		text := s.Labels
		p := f.byID[s.pod]
		if p == nil {
			p = &runtime.Pod{
				Runtime: runtimeName, ID: s.pod, UID: cmp.Or(text[annotationUID], s.pod), Name: text[annotationPod], Namespace: text[annotationNamespace],
				Sandbox: true, CreatedAt: s.CreatedAt,
			}
			f.byID[p.ID] = p
		}
		if id == s.pod {
			p.Ready = s.State == runtime.Running
			continue
		}
		p.Name, p.Namespace = cmp.Or(p.Name, text[annotationPod]), cmp.Or(p.Namespace, text[annotationNamespace])
		p.Containers = append(p.Containers, runtime.Container{
			Runtime: p.Runtime, ID: id, PodID: p.ID, Name: s.name, Image: text[annotationImage], State: s.State, CreatedAt: s.CreatedAt,
		})
	}
}

// pods returns all pods, sorted by creation time.
func (f *orphanPods) pods() (list []runtime.Pod) {
	for _, p := range f.byID {
		list = append(list, *p)
	}
	slices.SortFunc(list, func(a, b runtime.Pod) int { return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID)) })
	return list
}
