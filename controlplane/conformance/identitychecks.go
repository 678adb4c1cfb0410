package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// registerDead registers a Node of that name for a machine that has died. Another client has
// written to the Node, too. The returned watch knows that the machine is dead.
func registerDead(ctx context.Context, b *Backend, name string) (*corev1.Node, *watch, error) {
	wanted := newNode(name, there)
	wanted.Labels["example.com/old"] = "yes"
	if _, err := b.Client.Register(ctx, wanted, controlplane.RegisterOptions{}); err != nil {
		return nil, nil, fmt.Errorf("Register() of a new node = %w, want no error", err)
	}
	if _, err := renew(ctx, b, name, there); err != nil {
		return nil, nil, err
	}
	err := b.edit(ctx, name, func(n *corev1.Node) {
		n.Labels["theirs.example.com/label"] = "left"
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "theirs.example.com/taint", Effect: corev1.TaintEffectNoSchedule})
		n.Spec.Unschedulable = true
		n.Status.Addresses = addresses("10.0.0.9")
		n.Status.Images = []corev1.ContainerImage{{Names: []string{"old:1"}, SizeBytes: 1}}
		n.Status.VolumesInUse = []corev1.UniqueVolumeName{"old"}
		n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "old"}}
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: theirs, Status: corev1.ConditionTrue, Reason: "Theirs"})
	})
	if err != nil {
		return nil, nil, err
	}
	w := newWatch()
	lease, err := b.Client.Lease(ctx, name)
	if err != nil {
		return nil, nil, fmt.Errorf("Lease() = %w, want no error", err)
	}
	w.See(lease)
	w.now = w.now.Add(40 * time.Second)
	node, err := b.Client.Node(ctx, name)
	return node, w, err
}

// wantOurs returns an error unless the Node belongs to this machine, and everything removable of
// the previous machine is gone.
func wantOurs(node, before *corev1.Node, replaced []*corev1.Node) error {
	if got := controlplane.IdentityOf(node); got != here {
		return fmt.Errorf("node of a dead machine belongs to %v, want %v", got, here)
	}
	if len(replaced) != 1 || replaced[0].UID != before.UID || controlplane.IdentityOf(replaced[0]) != there {
		return fmt.Errorf("Register() reported replaced nodes %v, want the previous one", replaced)
	}
	s := node.Status
	if reasons := reasons(node); reasons[theirs] != "" || reasons[corev1.NodeReady] != "AgentReady" {
		return fmt.Errorf("conditions = %v, want those of this machine alone", reasons)
	}
	old := func(a corev1.NodeAddress) bool { return a.Address == "10.0.0.9" }
	if slices.ContainsFunc(s.Addresses, old) || len(s.Images) > 0 || len(s.VolumesInUse) > 0 || len(s.VolumesAttached) > 0 || s.NodeInfo.MachineID != here.MachineID {
		return fmt.Errorf("status = %+v, want nothing of the machine before", s)
	}
	if _, stays := node.Labels["example.com/old"]; stays || node.Labels["example.com/rack"] != "r1" {
		return fmt.Errorf("labels = %v, want those that this machine wants", node.Labels)
	}
	if !node.Spec.Unschedulable {
		return errors.New("unschedulable = false, want a cordon to outlive the machine")
	}
	if left := controlplane.RemainsOn(node); left == nil || !left.Unschedulable || left.Machine != there {
		return fmt.Errorf("remains of the previous machine = %+v, want the cordon among them", left)
	}
	return nil
}

func checkDeadReplaced(ctx context.Context, b *Backend) error {
	before, w, err := registerDead(ctx, b, b.Name("dead"))
	if err != nil {
		return err
	}
	node, replaced, err := registerWatching(ctx, b, newNode(b.Name("dead"), here), w, controlplane.RegisterOptions{})
	if err != nil {
		return fmt.Errorf("Register() in the place of a dead machine = %w, want no error", err)
	}
	if err := wantOurs(node, before, replaced); err != nil {
		return err
	}
	fixed := controlplane.RemainsOn(node).Fixed()
	if b.Keeps {
		if want := "labels theirs.example.com/label; taints theirs.example.com/taint:NoSchedule"; node.UID != before.UID || fixed != want {
			return fmt.Errorf("Register() without the right to delete = uid %s, remains %q, want %s and %q", node.UID, fixed, before.UID, want)
		}
	} else if node.UID == before.UID || fixed != "" || node.Labels["theirs.example.com/label"] != "" {
		return fmt.Errorf("Register() = uid %s as before or remains %q, labels %v, want a new node", node.UID, fixed, node.Labels)
	}
	if _, err := b.Client.UpdateStatus(ctx, node); err != nil {
		return fmt.Errorf("UpdateStatus() by the new machine = %w, want no error", err)
	}
	again, replaced, err := registerWatching(ctx, b, newNode(b.Name("dead"), here), w, controlplane.RegisterOptions{})
	if err != nil || again.UID != node.UID || len(replaced) > 0 {
		return fmt.Errorf("Register() again = %v, %w, want the same node", again, orNone(err))
	}
	return nil
}

func checkAdoptOnlyTakenOver(ctx context.Context, b *Backend) error {
	before, w, err := registerDead(ctx, b, b.Name("kept"))
	if err != nil {
		return err
	}
	node, replaced, err := registerWatching(ctx, b, newNode(b.Name("kept"), here), w, controlplane.RegisterOptions{AdoptOnly: true})
	if err != nil {
		return fmt.Errorf("Register() = %w, want no error", err)
	}
	if node.UID != before.UID {
		return fmt.Errorf("uid = %s, want %s: no node may be created", node.UID, before.UID)
	}
	return wantOurs(node, before, replaced)
}

func checkWatched(ctx context.Context, b *Backend) error {
	if _, err := register(ctx, b, b.Name("watched-one"), there); err != nil {
		return err
	}
	lease, err := b.Client.RenewLease(ctx, newLease(b.Name("watched-one"), there, time.Now().Add(-24*time.Hour)))
	if err != nil {
		return fmt.Errorf("RenewLease() = %w, want no error", err)
	}
	w := newWatch()
	started := w.now
	for _, step := range []struct {
		pass    time.Duration
		renew   bool
		refused bool
		seen    bool // to be renewed
	}{
		{0, false, true, false},
		{39 * time.Second, false, true, false},
		{0, true, true, true},
		{39 * time.Second, false, true, true},
		{time.Second, false, false, false},
	} {
		w.now = w.now.Add(step.pass)
		if step.renew {
			if lease, err = b.Client.RenewLease(ctx, controlplane.Renew(lease, time.Now().Add(-23*time.Hour))); err != nil {
				return fmt.Errorf("RenewLease() = %w, want no error", err)
			}
		}
		_, _, err := registerWatching(ctx, b, newNode(b.Name("watched-one"), here), w, controlplane.RegisterOptions{})
		if !step.refused {
			if err != nil {
				return fmt.Errorf("Register() after %v = %w, want the other's lease expired", w.now.Sub(started), err)
			}
			continue
		}
		if err := wantOwner(fmt.Sprintf("Register() after %v", w.now.Sub(started)), err, there, here); err != nil {
			return err
		}
		var identity *controlplane.IdentityError
		errors.As(err, &identity)
		if identity.Renewed != step.seen || identity.Watching() == step.seen {
			return fmt.Errorf("Register() after %v = %+v, want seen to be renewed = %v", w.now.Sub(started), identity, step.seen)
		}
	}
	return nil
}

// checkLeaveOwn lets a machine leave whose name belongs to another machine.
func checkLeaveOwn(ctx context.Context, b *Backend) error {
	if _, err := register(ctx, b, b.Name("stays"), there); err != nil {
		return err
	}
	lease, err := renew(ctx, b, b.Name("stays"), there)
	if err != nil {
		return err
	}
	if err := wantOwner("Leave() by another machine", b.Client.Leave(ctx, b.Name("stays"), here), there, here); err != nil {
		return err
	}
	if _, err := b.Client.Node(ctx, b.Name("stays")); err != nil {
		return fmt.Errorf("Node() after another machine has left = %w, want it there", err)
	}
	if _, err := b.Client.RenewLease(ctx, controlplane.Renew(lease, time.Now())); err != nil {
		return fmt.Errorf("RenewLease() after another machine has left = %w, want it as it was", err)
	}
	if err := b.Client.Leave(ctx, b.Name("stays"), there); !b.Keeps && err != nil {
		return fmt.Errorf("Leave() by the machine itself = %w, want no error", err)
	}
	return nil
}

// checkAnnotationsChanged writes another machine into the annotations of a Node whose status and
// Lease belong to this machine.
func checkAnnotationsChanged(ctx context.Context, b *Backend) error {
	before, err := register(ctx, b, b.Name("spoiled"), here)
	if err != nil {
		return err
	}
	if _, err := renew(ctx, b, b.Name("spoiled"), here); err != nil {
		return err
	}
	if err := b.edit(ctx, b.Name("spoiled"), func(n *corev1.Node) { n.Annotations[controlplane.AnnotationMachineID] = there.MachineID }); err != nil {
		return err
	}
	node, _, err := registerWatching(ctx, b, newNode(b.Name("spoiled"), here), newWatch(), controlplane.RegisterOptions{})
	if err != nil || node.UID != before.UID || controlplane.IdentityOf(node) != here {
		return fmt.Errorf("Register() of a node with another machine's note and this one's status = %v, %w, want it kept, and noted again", node, orNone(err))
	}
	return nil
}

func checkNoLease(ctx context.Context, b *Backend) error {
	if _, err := register(ctx, b, b.Name("leaseless"), there); err != nil {
		return err
	}
	return wantLeaselessWatched(ctx, b, b.Name("leaseless"))
}

// wantLeaselessWatched returns an error unless another machine's Node without a Lease becomes this machine's
// after the duration of a Lease.
func wantLeaselessWatched(ctx context.Context, b *Backend, name string) error {
	w := newWatch()
	const call = "Register() of a node without a lease"
	_, _, err := registerWatching(ctx, b, newNode(name, here), w, controlplane.RegisterOptions{})
	if err := wantOwner(call, err, there, here); err != nil {
		return err
	}
	w.now = w.now.Add(controlplane.DefaultLease)
	node, replaced, err := registerWatching(ctx, b, newNode(name, here), w, controlplane.RegisterOptions{})
	if err != nil || len(replaced) != 1 || controlplane.IdentityOf(node) != here {
		return fmt.Errorf("%s, %v later = %v, %w, want it this machine's", call, controlplane.DefaultLease, node, orNone(err))
	}
	return nil
}

func checkConditionsByReporter(ctx context.Context, b *Backend) error {
	writer, able := as[controlplane.ConditionWriter](b)
	if !able {
		return &AbsentError{noKubelet}
	}
	if _, err := register(ctx, b, b.Name("inherited"), there); err != nil {
		return err
	}
	kubelet := func(id controlplane.Identity) error { // that machine's kubelet writes the Node from now on
		return b.edit(ctx, b.Name("inherited"), func(n *corev1.Node) {
			n.Status.NodeInfo.MachineID, n.Status.NodeInfo.SystemUUID = id.MachineID, id.SystemUUID
		})
	}
	if err := kubelet(here); err != nil {
		return err
	}
	ours := newNode(b.Name("inherited"), here)
	ours.Status.Conditions = []corev1.NodeCondition{{Type: "hostler.io/Own", Status: corev1.ConditionTrue, Reason: "Ours"}}
	stored, err := writer.UpdateConditions(ctx, ours, nil)
	if err != nil || reasons(stored)["hostler.io/Own"] != "Ours" {
		return fmt.Errorf("UpdateConditions() beside this machine's kubelet, where another's hostler was before = %v, %w, want them written", stored, orNone(err))
	}
	if err := kubelet(there); err != nil {
		return err
	}
	if _, err = b.Client.Node(ctx, b.Name("inherited")); err != nil { // there is no watch that would read it
		return err
	}
	_, err = writer.UpdateConditions(ctx, ours, nil)
	return wantOwner("UpdateConditions() on a node that another machine's kubelet keeps", err, there, here)
}
