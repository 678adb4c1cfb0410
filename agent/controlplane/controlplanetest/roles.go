package controlplanetest

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/controlplane"
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
		fault := f.faults[WatchNode]
		if fault == nil {
			fault = f.faults[Any]
		}
		f.mu.Unlock()
		var news chan<- *corev1.Node
		if version != sent {
			news = seen
		}
		switch {
		case fault != nil && fault.Hang:
			<-ctx.Done()
		case fault != nil && fault.Err != nil:
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
