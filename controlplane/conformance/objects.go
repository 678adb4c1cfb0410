package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
)

// The machines of the checks.
var (
	here  = controlplane.Identity{MachineID: "11111111111111111111111111111111", SystemUUID: "aaaaaaaa-0000-4000-8000-000000000001"}
	there = controlplane.Identity{MachineID: "22222222222222222222222222222222", SystemUUID: "aaaaaaaa-0000-4000-8000-000000000002"}
	clone = controlplane.Identity{MachineID: here.MachineID, SystemUUID: there.SystemUUID}
)

// newNode returns a Node as an agent on that machine wants it.
func newNode(name string, id controlplane.Identity) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{"kubernetes.io/hostname": "host", "example.com/rack": "r1"},
			Annotations: map[string]string{"example.com/note": "by hostler"},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "example.com/new", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{MachineID: id.MachineID, SystemUUID: id.SystemUUID, BootID: "boot-1"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "AgentReady"}},
		},
	}
}

// register registers a new Node of that name for that machine.
func register(ctx context.Context, b *Backend, name string, id controlplane.Identity) (*corev1.Node, error) {
	node, err := b.Client.Register(ctx, newNode(name, id), controlplane.RegisterOptions{})
	if err != nil {
		return nil, fmt.Errorf("Register() of a new node = %w, want no error", err)
	}
	return node, nil
}

// newLease returns a Lease that the machine renews for the first time at that time.
func newLease(name string, id controlplane.Identity, renewed time.Time) *coordinationv1.Lease {
	lease, err := controlplane.NewLease(name, id, 40*time.Second)
	if err != nil {
		panic(err) // 40 s are whole seconds
	}
	return controlplane.Renew(lease, renewed)
}

// renew stores the first Lease of that name.
func renew(ctx context.Context, b *Backend, name string, id controlplane.Identity) (*coordinationv1.Lease, error) {
	lease, err := b.Client.RenewLease(ctx, newLease(name, id, time.Now()))
	if err != nil {
		return nil, fmt.Errorf("RenewLease() of a new lease = %w, want no error", err)
	}
	return lease, nil
}

// watch is a LeaseWatch whose clock the check controls.
type watch struct {
	*controlplane.LeaseWatch
	now time.Time
}

func newWatch() *watch {
	w := &watch{now: time.Now()}
	w.LeaseWatch = controlplane.NewLeaseWatch(func() time.Time { return w.now })
	return w
}

// registerWatching registers a Node with that watch, and returns which Nodes were replaced.
func registerWatching(ctx context.Context, b *Backend, node *corev1.Node, w *watch, o controlplane.RegisterOptions) (stored *corev1.Node, replaced []*corev1.Node, err error) {
	o.Watch = w.LeaseWatch
	o.Replaces = func(before *corev1.Node) { replaced = append(replaced, before) }
	stored, err = b.Client.Register(ctx, node, o)
	return stored, replaced, err
}

// wantError returns an error unless err wraps class.
func wantError(call string, err, class error) error {
	if !errors.Is(err, class) {
		return fmt.Errorf("%s = %w, want an error that is %q", call, orNone(err), class)
	}
	return nil
}

// wantOwner returns an error unless err is an IdentityError that names both machines.
func wantOwner(call string, err error, theirs, ours controlplane.Identity) error {
	var identity *controlplane.IdentityError
	if !errors.As(err, &identity) {
		return fmt.Errorf("%s = %w, want an IdentityError", call, orNone(err))
	}
	if identity.Theirs != theirs || identity.Ours != ours {
		return fmt.Errorf("%s = %w, want one that names %v and %v", call, err, theirs, ours)
	}
	return nil
}
