package controlplanetest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// wakeWatchers has every watch look again. The caller holds mu.
func (f *Fake) wakeWatchers() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// WatchNode implements controlplane.NodeWatcher.
func (f *Fake) WatchNode(ctx context.Context, name string, seen chan<- *corev1.Node) error {
	if _, err := f.call(ctx, WatchNode, name); err != nil {
		return err
	}
	const none = "none"
	for sent := ""; ; {
		node, version, changed := (*corev1.Node)(nil), none, f.look()
		f.mu.Lock()
		if stored, ok := f.nodes[name]; ok {
			node, version = stored.latest.DeepCopy(), stored.latest.ResourceVersion
		}
		f.mu.Unlock()
		fault := f.faults.Under(WatchNode, Any)
		var news chan<- *corev1.Node
		if version != sent {
			news = seen
		}
		switch {
		case fault.Hang:
			<-ctx.Done()
		case fault.Err != nil:
			return fmt.Errorf("watch node %q: %w", name, fault.Err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("watch node %q: %w", name, context.Cause(ctx))
		case news <- node:
			sent = version
		case <-changed:
		}
	}
}

// look is closed with the next change.
func (f *Fake) look() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// UpdateConditions implements controlplane.ConditionWriter.
func (f *Fake) UpdateConditions(ctx context.Context, node *corev1.Node, gone []corev1.NodeConditionType) (*corev1.Node, error) {
	fault, err := f.call(ctx, UpdateConditions, node.Name)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	stored, ok := f.nodes[node.Name]
	if !ok {
		return nil, fmt.Errorf("update conditions of node %q: %w", node.Name, controlplane.ErrNotFound)
	}
	if theirs, ours := controlplane.ReporterOf(stored.latest), controlplane.IdentityOf(node); theirs.Differs(ours) {
		return nil, fmt.Errorf("update conditions: %w", &controlplane.IdentityError{Name: node.Name, Theirs: theirs, Ours: ours})
	}
	next := stored.latest.DeepCopy()
	for _, c := range node.Status.Conditions {
		i := slices.IndexFunc(next.Status.Conditions, func(s corev1.NodeCondition) bool { return s.Type == c.Type })
		if i < 0 {
			next.Status.Conditions = append(next.Status.Conditions, c)
			continue
		}
		next.Status.Conditions[i] = c
	}
	next.Status.Conditions = slices.DeleteFunc(next.Status.Conditions, func(c corev1.NodeCondition) bool { return slices.Contains(gone, c.Type) })
	return answer(fault, f.putNode(next))
}

// NodesOf implements controlplane.MachineFinder.
func (f *Fake) NodesOf(ctx context.Context, machineID string) ([]corev1.Node, error) {
	if _, err := f.call(ctx, NodesOf, "all"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []corev1.Node
	for name, stored := range f.nodes {
		if stored.latest.Status.NodeInfo.MachineID == machineID {
			n := corev1.Node{Status: corev1.NodeStatus{NodeInfo: stored.latest.Status.NodeInfo}}
			n.Name = name
			found = append(found, n)
		}
	}
	return found, nil
}

// Fleet implements controlplane.FleetLister, with pages of two.
func (f *Fake) Fleet(ctx context.Context, each controlplane.Member) error {
	if _, err := f.call(ctx, Fleet, "all"); err != nil {
		return err
	}
	return controlplane.JoinFleet(ctx, pagesOf(f, f.nodes), pagesOf(f, f.leases), func(node *corev1.Node, lease *coordinationv1.Lease) error {
		node.Kind, node.APIVersion = "Node", "v1"
		return each(node, lease)
	})
}

// pageSize is small, so that every test of a fleet goes through several pages.
const pageSize = 2

// pagesOf reads what is stored, from the first name after the last one that was read.
func pagesOf[T any, P interface {
	*T
	DeepCopyInto(*T)
}](f *Fake, stored map[string]*history[P]) controlplane.Pages[T] {
	return func(ctx context.Context, after string) (page []T, next string, err error) {
		if ctx.Err() != nil {
			return nil, "", context.Cause(ctx)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, name := range slices.Sorted(maps.Keys(stored)) {
			if name <= after {
				continue
			}
			if len(page) == pageSize {
				return page, next, nil
			}
			page, next = append(page, *new(T)), name
			stored[name].latest.DeepCopyInto(&page[len(page)-1])
		}
		return page, "", nil
	}
}

// AskPace has it ask all hosts for Leases that are good for that long, as a person
// writes it; nothing asks for none.
func (f *Fake) AskPace(duration string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pace = duration
	f.wakeWatchers()
}

// WatchPace implements controlplane.Pacer.
func (f *Fake) WatchPace(ctx context.Context, seen chan<- string) error {
	if _, err := f.call(ctx, WatchPace, "all"); err != nil {
		return err
	}
	for sent, first := "", true; ; {
		changed := f.look()
		f.mu.Lock()
		pace := f.pace
		f.mu.Unlock()
		fault := f.faults.Under(WatchPace)
		var news chan<- string
		if first || pace != sent {
			news = seen
		}
		if fault.Err != nil {
			return fmt.Errorf("watch the pace of leases: %w", fault.Err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("watch the pace of leases: %w", context.Cause(ctx))
		case news <- pace:
			sent, first = pace, false
		case <-changed:
		}
	}
}
