package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

func checkRegister(ctx context.Context, b *Backend) error {
	wanted := newNode(b.Name("new"), here)
	node, err := register(ctx, b, b.Name("new"), here)
	if err != nil {
		return err
	}
	if node.UID == "" || node.ResourceVersion == "" || node.CreationTimestamp.IsZero() {
		return fmt.Errorf("Register() = uid %q, resourceVersion %q, created %v, want all three set", node.UID, node.ResourceVersion, node.CreationTimestamp)
	}
	for key, value := range wanted.Labels {
		if node.Labels[key] != value {
			return fmt.Errorf("Register() gave label %s=%q, want %q", key, node.Labels[key], value)
		}
	}
	if node.Annotations["example.com/note"] != "by hostler" {
		return fmt.Errorf("Register() gave annotations %v, want the wanted one among them", node.Annotations)
	}
	if !slices.Contains(node.Spec.Taints, wanted.Spec.Taints[0]) {
		return fmt.Errorf("Register() gave taints %v, want %v", node.Spec.Taints, wanted.Spec.Taints)
	}
	if got := node.Status.NodeInfo.MachineID; got != here.MachineID {
		return fmt.Errorf("Register() gave machine ID %q, want %q", got, here.MachineID)
	}
	read, err := b.Client.Node(ctx, b.Name("new"))
	if err != nil || read.UID != node.UID || read.ResourceVersion != node.ResourceVersion {
		return fmt.Errorf("Node() = %v, %w, want what Register() returned", read, orNone(err))
	}
	_, err = b.Client.Node(ctx, b.Name("other"))
	return wantError("Node() of a node that is not there", err, controlplane.ErrNotFound)
}

func checkRegisterAgain(ctx context.Context, b *Backend) error {
	first, err := register(ctx, b, b.Name("again"), here)
	if err != nil {
		return err
	}
	second, err := register(ctx, b, b.Name("again"), here)
	if err != nil {
		return err
	}
	if second.UID != first.UID || second.ResourceVersion != first.ResourceVersion {
		return fmt.Errorf("Register() again = uid %s version %s, want %s and %s: nothing has changed", second.UID, second.ResourceVersion, first.UID, first.ResourceVersion)
	}
	return nil
}

func checkReconcile(ctx context.Context, b *Backend) error {
	if _, err := register(ctx, b, b.Name("labels"), here); err != nil {
		return err
	}
	err := b.edit(ctx, b.Name("labels"), func(node *corev1.Node) {
		node.Labels["theirs.example.com/label"] = "kept"
		node.Labels["example.com/rack"] = "changed"
		node.Annotations["theirs.example.com/note"] = "kept"
	})
	if err != nil {
		return err
	}
	wanted := newNode(b.Name("labels"), here)
	delete(wanted.Labels, "kubernetes.io/hostname")
	delete(wanted.Annotations, "example.com/note")
	wanted.Labels["example.com/zone"] = "z1"
	node, err := b.Client.Register(ctx, wanted, controlplane.RegisterOptions{})
	if err != nil {
		return fmt.Errorf("Register() with other labels = %w, want no error", err)
	}
	labels := map[string]string{"example.com/rack": "r1", "example.com/zone": "z1", "theirs.example.com/label": "kept"}
	for key, value := range labels {
		if node.Labels[key] != value {
			return fmt.Errorf("label %s = %q, want %q", key, node.Labels[key], value)
		}
	}
	if value, ok := node.Labels["kubernetes.io/hostname"]; ok {
		return fmt.Errorf("label that is no longer wanted = %q, want it gone", value)
	}
	if node.Annotations["theirs.example.com/note"] != "kept" {
		return fmt.Errorf("annotations = %v, want the foreign one kept", node.Annotations)
	}
	if value, ok := node.Annotations["example.com/note"]; ok {
		return fmt.Errorf("annotation that is no longer wanted = %q, want it gone", value)
	}
	return nil
}

func checkSpecKept(ctx context.Context, b *Backend) error {
	if _, err := register(ctx, b, b.Name("spec"), here); err != nil {
		return err
	}
	theirs := corev1.Taint{Key: "theirs.example.com/taint", Value: "v", Effect: corev1.TaintEffectNoExecute}
	err := b.edit(ctx, b.Name("spec"), func(node *corev1.Node) {
		node.Spec.Taints = []corev1.Taint{theirs}
		node.Spec.Unschedulable = true
	})
	if err != nil {
		return err
	}
	wanted := newNode(b.Name("spec"), here)
	wanted.Labels["example.com/rack"] = "r2"
	node, err := b.Client.Register(ctx, wanted, controlplane.RegisterOptions{})
	if err != nil {
		return fmt.Errorf("Register() = %w, want no error", err)
	}
	_, reconciles := as[controlplane.TaintReconciler](b)
	ours := func(t corev1.Taint) bool { return t.Key == "example.com/new" }
	if !slices.Contains(node.Spec.Taints, theirs) || slices.ContainsFunc(node.Spec.Taints, ours) != reconciles {
		return fmt.Errorf("taints = %v, want %v, and ours again only where they are reconciled (%v)", node.Spec.Taints, theirs, reconciles)
	}
	if !node.Spec.Unschedulable {
		return fmt.Errorf("unschedulable = false, want it kept")
	}
	return nil
}

func checkAdoptOnly(ctx context.Context, b *Backend) error {
	opts := controlplane.RegisterOptions{AdoptOnly: true}
	_, err := b.Client.Register(ctx, newNode(b.Name("waiting"), here), opts)
	if err := wantError("Register() where there is no node", err, controlplane.ErrNotFound); err != nil {
		return err
	}
	if _, err := register(ctx, b, b.Name("waiting"), here); err != nil {
		return err
	}
	if _, err := b.Client.Register(ctx, newNode(b.Name("waiting"), here), opts); err != nil {
		return fmt.Errorf("Register() where there is a node = %w, want no error", err)
	}
	return nil
}

// registerAlive registers a Node of that name for a machine that renews its Lease.
func registerAlive(ctx context.Context, b *Backend, name string, id controlplane.Identity) (*corev1.Node, error) {
	node, err := register(ctx, b, name, id)
	if err != nil {
		return nil, err
	}
	_, err = renew(ctx, b, name, id)
	return node, err
}

func checkRefused(ctx context.Context, b *Backend) error { return refused(ctx, b, there) }

func checkCloneRefused(ctx context.Context, b *Backend) error { return refused(ctx, b, clone) }

func refused(ctx context.Context, b *Backend, other controlplane.Identity) error {
	before, err := registerAlive(ctx, b, b.Name("shared"), here)
	if err != nil {
		return err
	}
	wanted := newNode(b.Name("shared"), other)
	wanted.Labels["example.com/rack"] = "r2"
	_, err = b.Client.Register(ctx, wanted, controlplane.RegisterOptions{})
	if err := wantOwner("Register() by another machine", err, here, other); err != nil {
		return err
	}
	for _, part := range []string{b.Name("shared"), here.SystemUUID, other.SystemUUID, here.MachineID, other.MachineID, "node.takeover"} {
		if !strings.Contains(err.Error(), part) {
			return fmt.Errorf("Register() by another machine = %q, want it to name %q", err, part)
		}
	}
	after, err := b.Client.Node(ctx, b.Name("shared"))
	if err != nil || after.ResourceVersion != before.ResourceVersion {
		return fmt.Errorf("Node() after a refusal = %v, %w, want it as it was", after, orNone(err))
	}
	return nil
}

func checkTakeover(ctx context.Context, b *Backend) error {
	before, err := registerAlive(ctx, b, b.Name("taken"), here)
	if err != nil {
		return err
	}
	node, err := b.Client.Register(ctx, newNode(b.Name("taken"), there), controlplane.RegisterOptions{Takeover: true})
	if err != nil {
		return fmt.Errorf("Register() with takeover = %w, want no error", err)
	}
	if got := controlplane.IdentityOf(node); got != there {
		return fmt.Errorf("node taken over belongs to %v, want %v", got, there)
	}
	node.Status = newNode(b.Name("taken"), there).Status
	if _, err := b.Client.UpdateStatus(ctx, node); err != nil {
		return fmt.Errorf("UpdateStatus() by the new machine = %w, want no error", err)
	}
	_, err = b.Client.UpdateStatus(ctx, before)
	if node.UID != before.UID {
		return wantError("UpdateStatus() by the old machine of a node that was replaced", err, controlplane.ErrNotFound)
	}
	return wantOwner("UpdateStatus() by the old machine", err, there, here)
}

func checkOwnNode(ctx context.Context, b *Backend) error {
	first, err := registerAlive(ctx, b, b.Name("mine"), here)
	if err != nil {
		return err
	}
	second, err := register(ctx, b, b.Name("mine"), here)
	if err != nil {
		return err
	}
	if second.UID != first.UID {
		return fmt.Errorf("Register() by the same machine = uid %s, want %s", second.UID, first.UID)
	}
	return nil
}

func checkStatus(ctx context.Context, b *Backend) error {
	first, err := register(ctx, b, b.Name("status"), here)
	if err != nil {
		return err
	}
	err = b.edit(ctx, b.Name("status"), func(node *corev1.Node) {
		node.Spec.Unschedulable = true
		node.Labels["theirs.example.com/label"] = "kept"
	})
	if err != nil {
		return err
	}
	update := first.DeepCopy() // its resourceVersion is outdated now
	update.Labels = map[string]string{"example.com/ignored": "label"}
	update.Status.Conditions[0].Status = corev1.ConditionFalse
	update.Status.Conditions[0].Reason = "NodeShutdown"
	node, err := b.Client.UpdateStatus(ctx, update)
	if err != nil {
		return fmt.Errorf("UpdateStatus() = %w, want no error", err)
	}
	read, err := b.Client.Node(ctx, b.Name("status"))
	if err != nil {
		return fmt.Errorf("Node() = %w, want no error", err)
	}
	for call, got := range map[string]*corev1.Node{"UpdateStatus()": node, "Node()": read} {
		ready := got.Status.Conditions[slices.IndexFunc(got.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })]
		if ready.Status != corev1.ConditionFalse || ready.Reason != "NodeShutdown" {
			return fmt.Errorf("%s gave Ready %v, want False with reason NodeShutdown", call, ready)
		}
		if !got.Spec.Unschedulable || got.Labels["theirs.example.com/label"] != "kept" || got.Labels["example.com/ignored"] != "" {
			return fmt.Errorf("%s gave unschedulable %v, labels %v, want both untouched", call, got.Spec.Unschedulable, got.Labels)
		}
	}
	if read.ResourceVersion == first.ResourceVersion {
		return fmt.Errorf("resourceVersion after a change = %s as before, want another", read.ResourceVersion)
	}
	return nil
}

func checkDeleted(ctx context.Context, b *Backend) error {
	first, err := registerAlive(ctx, b, b.Name("deleted"), here)
	if err != nil {
		return err
	}
	if err := b.delete(ctx, b.Name("deleted")); err != nil {
		return fmt.Errorf("delete node: %w", err)
	}
	_, err = b.Client.UpdateStatus(ctx, first)
	if err := wantError("UpdateStatus() of a deleted node", err, controlplane.ErrNotFound); err != nil {
		return err
	}
	second, err := register(ctx, b, b.Name("deleted"), here)
	if err != nil {
		return err
	}
	if second.UID == first.UID {
		return fmt.Errorf("uid of a node registered again = %s as before, want another", second.UID)
	}
	_, err = b.Client.UpdateStatus(ctx, first)
	if err := wantError("UpdateStatus() under the old uid", err, controlplane.ErrNotFound); err != nil {
		return err
	}
	if _, err := b.Client.UpdateStatus(ctx, second); err != nil {
		return fmt.Errorf("UpdateStatus() = %w, want no error", err)
	}
	return nil
}

func checkLeave(ctx context.Context, b *Backend) error {
	if _, err := registerAlive(ctx, b, b.Name("leaving"), here); err != nil {
		return err
	}
	for range 2 {
		if err := b.Client.Leave(ctx, b.Name("leaving"), controlplane.Identity{}); err != nil {
			return fmt.Errorf("Leave() = %w, want no error", err)
		}
		_, err := b.Client.Node(ctx, b.Name("leaving"))
		if err := wantError("Node() after Leave()", err, controlplane.ErrNotFound); err != nil {
			return err
		}
		_, err = b.Client.Lease(ctx, b.Name("leaving"))
		if err := wantError("Lease() after Leave()", err, controlplane.ErrNotFound); err != nil {
			return err
		}
	}
	return nil
}
