package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

func checkAddressesKept(ctx context.Context, b *Backend) error {
	node, err := register(ctx, b, b.Name("addresses"), here)
	if err != nil {
		return err
	}
	for _, step := range []struct{ write, want []corev1.NodeAddress }{
		{write: addresses("10.0.0.1"), want: addresses("10.0.0.1")},
		{write: nil, want: addresses("10.0.0.1")},
		{write: addresses("10.0.0.2"), want: addresses("10.0.0.2")},
	} {
		node.Status.Addresses = step.write
		stored, err := b.Client.UpdateStatus(ctx, node)
		if err != nil {
			return fmt.Errorf("UpdateStatus() = %w, want no error", err)
		}
		if !slices.Equal(stored.Status.Addresses, step.want) {
			return fmt.Errorf("UpdateStatus() with addresses %v gave %v, want %v", step.write, stored.Status.Addresses, step.want)
		}
	}
	return nil
}

func addresses(ip string) []corev1.NodeAddress {
	return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}, {Type: corev1.NodeHostName, Address: "host"}}
}

// theirs is a condition of another client.
const theirs corev1.NodeConditionType = "theirs.example.com/Fine"

// addTheirs writes a condition as another client.
func addTheirs(ctx context.Context, b *Backend, name string) error {
	err := b.edit(ctx, name, func(node *corev1.Node) {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: theirs, Status: corev1.ConditionTrue, Reason: "Theirs"})
	})
	if err != nil {
		return err
	}
	return nil
}

// reasons returns the reasons of a Node's conditions, by type.
func reasons(node *corev1.Node) map[corev1.NodeConditionType]string {
	all := map[corev1.NodeConditionType]string{}
	for _, c := range node.Status.Conditions {
		all[c.Type] = c.Reason
	}
	return all
}

func checkConditionsKept(ctx context.Context, b *Backend) error {
	if _, shared := as[controlplane.NodeWatcher](b); !shared {
		return &AbsentError{noOthers}
	}
	node, err := register(ctx, b, b.Name("conditions"), here)
	if err != nil {
		return err
	}
	ready := node.Status.Conditions[0]
	write := func(kinds ...corev1.NodeConditionType) error {
		node.Status.Conditions = []corev1.NodeCondition{ready}
		for _, kind := range kinds {
			node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, Reason: "Ours"})
		}
		if _, err := b.Client.UpdateStatus(ctx, node); err != nil {
			return fmt.Errorf("UpdateStatus() = %w, want no error", err)
		}
		return nil
	}
	if err := write("hostler.io/A", "hostler.io/B"); err != nil {
		return err
	}
	if err := addTheirs(ctx, b, b.Name("conditions")); err != nil {
		return err
	}
	for range 2 {
		if err := write("hostler.io/B"); err != nil {
			return err
		}
		read, err := b.Client.Node(ctx, b.Name("conditions"))
		if err != nil {
			return fmt.Errorf("Node() = %w, want no error", err)
		}
		if got := reasons(read); len(got) != 3 || got[theirs] != "Theirs" || got["hostler.io/B"] != "Ours" {
			return fmt.Errorf("conditions = %v, want Ready, hostler.io/B, %s, and hostler.io/A gone, which is not written any more", got, theirs)
		}
	}
	return nil
}

// noOthers is why there are no changes of other clients to keep or to watch.
const noOthers = "only the agent writes here"

// noKubelet is why a control plane does not have to share a Node with a kubelet.
const noKubelet = "kubelets do not register here"

func checkConditionsAdded(ctx context.Context, b *Backend) error {
	writer, able := as[controlplane.ConditionWriter](b)
	if !able {
		return &AbsentError{noKubelet}
	}
	ours := newNode(b.Name("kubelets"), here)
	ours.Status.Conditions = []corev1.NodeCondition{{Type: "hostler.io/Own", Status: corev1.ConditionTrue, Reason: "Ours"}}
	_, err := writer.UpdateConditions(ctx, ours, nil)
	if err := wantError("UpdateConditions() where there is no node", err, controlplane.ErrNotFound); err != nil {
		return err
	}
	if _, err := register(ctx, b, b.Name("kubelets"), here); err != nil {
		return err
	}
	err = b.edit(ctx, b.Name("kubelets"), func(node *corev1.Node) {
		node.Annotations, node.Labels = nil, map[string]string{"theirs.example.com/label": "kept"}
		node.Status.Addresses = addresses("10.0.0.1")
	})
	if err == nil {
		err = addTheirs(ctx, b, b.Name("kubelets"))
	}
	if err != nil {
		return err
	}
	for _, reason := range []string{"First", "Second"} {
		ours.Status.Conditions[0].Reason = reason
		stored, err := writer.UpdateConditions(ctx, ours, nil)
		if err != nil {
			return fmt.Errorf("UpdateConditions() = %w, want no error", err)
		}
		read, err := b.Client.Node(ctx, b.Name("kubelets"))
		if err != nil {
			return fmt.Errorf("Node() = %w, want no error", err)
		}
		for call, node := range map[string]*corev1.Node{"UpdateConditions()": stored, "Node()": read} {
			got := reasons(node)
			if len(got) != 3 || got["hostler.io/Own"] != reason || got[theirs] != "Theirs" || got[corev1.NodeReady] != "AgentReady" {
				return fmt.Errorf("%s gave conditions %v, want hostler's own with reason %s and the others as they were", call, got, reason)
			}
			if node.Labels["theirs.example.com/label"] != "kept" || node.Labels["example.com/rack"] != "" ||
				node.Annotations[controlplane.AnnotationMachineID] != "" || len(node.Status.Addresses) != 2 || node.Status.NodeInfo.MachineID != here.MachineID {
				return fmt.Errorf("%s gave labels %v, annotations %v, addresses %v, want all of them untouched", call, node.Labels, node.Annotations, node.Status.Addresses)
			}
		}
	}
	stored, err := writer.UpdateConditions(ctx, ours, []corev1.NodeConditionType{corev1.NodeReady, "hostler.io/Never"})
	if err != nil {
		return fmt.Errorf("UpdateConditions() with some to go = %w, want no error", err)
	}
	if got := reasons(stored); len(got) != 2 || got["hostler.io/Own"] != "Second" || got[theirs] != "Theirs" {
		return fmt.Errorf("conditions = %v, want Ready gone, and no other", got)
	}
	ours.Status.NodeInfo.MachineID, ours.Status.NodeInfo.SystemUUID = there.MachineID, there.SystemUUID
	_, err = writer.UpdateConditions(ctx, ours, nil)
	return wantOwner("UpdateConditions() on another machine's node", err, here, there)
}

func checkWatch(ctx context.Context, b *Backend) error {
	watcher, able := as[controlplane.NodeWatcher](b)
	if !able {
		return &AbsentError{noOthers}
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	seen, ended := make(chan *corev1.Node), make(chan error, 1)
	go func() { ended <- watcher.WatchNode(watching, b.Name("watched"), seen) }()
	// until receives from the watch until the wanted state arrives.
	until := func(what string, is func(*corev1.Node) bool) error {
		var last *corev1.Node
		for {
			select {
			case last = <-seen:
				if is(last) {
					return nil
				}
			case err := <-ended:
				ended <- err
				return fmt.Errorf("WatchNode() = %w before it reported %s", err, what)
			case <-ctx.Done():
				return fmt.Errorf("WatchNode() did not report %s: %v is the last it reported", what, last)
			}
		}
	}
	rack := func(value string) func(*corev1.Node) bool {
		return func(n *corev1.Node) bool { return n != nil && n.UID != "" && n.Labels["example.com/rack"] == value }
	}
	steps := []struct {
		what string
		do   func() error
		is   func(*corev1.Node) bool
	}{
		{"there being no node", func() error { return nil }, func(n *corev1.Node) bool { return n == nil }},
		{"its creation", func() error { _, err := registerAlive(ctx, b, b.Name("watched"), here); return err }, rack("r1")},
		{"a label", func() error {
			return b.edit(ctx, b.Name("watched"), func(n *corev1.Node) { n.Labels["example.com/rack"] = "r2" })
		}, rack("r2")},
		{"the last of many changes", func() error {
			for i := range 20 {
				if err := b.edit(ctx, b.Name("watched"), func(n *corev1.Node) { n.Labels["example.com/rack"] = strings.Repeat("x", i+1) }); err != nil {
					return err
				}
			}
			return nil
		}, rack(strings.Repeat("x", 20))},
		{"its end", func() error { return b.delete(ctx, b.Name("watched")) }, func(n *corev1.Node) bool { return n == nil }},
		{"its return", func() error { _, err := register(ctx, b, b.Name("watched"), here); return err }, rack("r1")},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return err
		}
		if err := until(s.what, s.is); err != nil {
			return err
		}
	}
	stop()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			return fmt.Errorf("WatchNode() after its context's end = %w, want that it was cancelled", err)
		}
		return nil
	case <-ctx.Done():
		return errors.New("WatchNode() did not end with its context")
	}
}

func checkAnnotate(ctx context.Context, b *Backend) error {
	client, able := as[controlplane.Annotator](b)
	if !able {
		return &AbsentError{"a host cannot request a reboot slot"}
	}
	node, err := register(ctx, b, b.Name("annotate"), here)
	if err != nil {
		return err
	}
	const key = "theirs.example.com/annotation"
	for _, value := range []string{`{"step":"Waiting"}`, "", "again"} {
		stored, err := client.Annotate(ctx, node.Name, node.UID, key, value)
		if err != nil {
			return fmt.Errorf("Annotate(%q) = %w, want no error", value, err)
		}
		read, err := b.Client.Node(ctx, node.Name)
		if err != nil {
			return err
		}
		for _, n := range []*corev1.Node{stored, read} {
			got, found := n.Annotations[key]
			if got != value || found != (value != "") {
				return fmt.Errorf("annotation after Annotate(%q) = %q, present %t", value, got, found)
			}
			delete(n.Annotations, key)
			if !maps.Equal(n.Annotations, node.Annotations) || !maps.Equal(n.Labels, node.Labels) || n.UID != node.UID {
				return fmt.Errorf("Annotate(%q) has changed more than that annotation: %v", value, n.ObjectMeta)
			}
		}
	}
	if _, err := client.Annotate(ctx, node.Name, "another", key, "x"); !errors.Is(err, controlplane.ErrConflict) {
		return fmt.Errorf("Annotate() of another UID = %w, want %w", err, controlplane.ErrConflict)
	}
	if _, err := client.Annotate(ctx, b.Name("absent"), node.UID, key, "x"); !errors.Is(err, controlplane.ErrNotFound) {
		return fmt.Errorf("Annotate() of no Node = %w, want %w", err, controlplane.ErrNotFound)
	}
	return nil
}
