package controlplanetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/controlplane"
)

// checkTimeout bounds one check.
const checkTimeout = 60 * time.Second

// Backend is a control plane under test.
type Backend struct {
	// Client is the client under test.
	Client controlplane.Client

	// Edit changes the stored Node of that name as a person or another
	// controller would: metadata, spec and status.
	Edit func(ctx context.Context, name string, change func(*corev1.Node)) error

	// Delete deletes Node and Lease as someone else would; Client.Leave if nil.
	Delete func(ctx context.Context, name string) error

	// Keeps tells that Register may not delete Nodes, and takes over those of
	// machines that are dead.
	Keeps bool

	// Restart returns a client as the agent's next run will have it, after which
	// the one before is not used any more. If nil, nothing outlives the client.
	Restart func(ctx context.Context) (controlplane.Client, error)

	// MaxEvents is how many Events are kept, where the control plane counts them.
	MaxEvents int
}

// Check is one promise of the Client interface.
type Check struct {
	Name string // a sentence
	// Run tries it on an own set of Nodes, and returns what it found amiss.
	Run func(ctx context.Context, b *Backend) error
}

// Checks are all promises, each independent of the others. A control plane that
// keeps one Node at a time serves them one after another.
func Checks() []Check {
	return []Check{
		{"a new node is stored as it is wanted", checkRegister},
		{"a node that is registered again stays as it is", checkRegisterAgain},
		{"labels and annotations of hostler's follow its wishes, others stay", checkReconcile},
		{"taints and cordon stay as others left them", checkSpecKept},
		{"a node is not created where it may only be adopted", checkAdoptOnly},
		{"a node of another machine that is alive is refused, naming both", checkRefused},
		{"a clone with the same machine ID is refused", checkCloneRefused},
		{"a node of another machine is taken over if asked", checkTakeover},
		{"a node of a machine that is dead is replaced or taken over", checkDeadReplaced},
		{"a machine is dead by nobody's clock but once its lease was watched", checkWatched},
		{"a node with this machine's status is not deleted for what is noted on it", checkNotesSpoiled},
		{"a machine that leaves takes no other's node away", checkLeaveOwn},
		{"a node without a lease is nobody's who lives", checkNoLease},
		{"a node that may only be adopted is taken over with its uid", checkAdoptOnlyTakenOver},
		{"a machine with a live lease gets its own node back", checkOwnNode},
		{"a status is stored and touches nothing else", checkStatus},
		{"a status without addresses leaves those that are there", checkAddressesKept},
		{"conditions of others stay", checkConditionsKept},
		{"conditions on another's node touch nothing else", checkConditionsAdded},
		{"conditions go by who writes the status and not by what hostler noted before", checkConditionsByReporter},
		{"a machine is found in the fleet", checkNodesOf},
		{"a watch tells of each change and of the node's end", checkWatch},
		{"a node deleted while the agent runs is registered again", checkDeleted},
		{"a lease is created, renewed and read", checkLease},
		{"a lease that someone else has written is not overwritten", checkLeaseConflict},
		{"of many renewals from one version one is stored", checkLeaseRace},
		{"renewTime moves forward whatever the clock does", checkRenewTime},
		{"events keep their order", checkEvents},
		{"a repeated event takes the place of its first", checkEventRepeated},
		{"events are bounded", checkEventsBounded},
		{"a call whose context has ended ends", checkCancelled},
		{"names at the limit are served, others refused", checkNames},
		{"ten thousand labels are stored", checkManyLabels},
		{"objects given and returned are the caller's", checkCopies},
		{"leaving takes node and lease away, once or twice", checkLeave},
		{"all is there after a restart", checkRestart},
	}
}

// Run runs every check as a test of its own, each on a new Backend.
func Run(t *testing.T, newBackend func(t *testing.T) Backend) {
	for _, check := range Checks() {
		t.Run(check.Name, func(t *testing.T) {
			b := newBackend(t)
			ctx, cancel := context.WithTimeout(t.Context(), checkTimeout)
			defer cancel()
			if err := check.Run(ctx, &b); err != nil {
				t.Error(err)
			}
			if err := b.Client.Close(); err != nil {
				t.Errorf("Close() = %v, want no error", err)
			}
		})
	}
}

// Machines that the checks play.
var (
	here  = controlplane.Identity{MachineID: "11111111111111111111111111111111", SystemUUID: "aaaaaaaa-0000-4000-8000-000000000001"}
	there = controlplane.Identity{MachineID: "22222222222222222222222222222222", SystemUUID: "aaaaaaaa-0000-4000-8000-000000000002"}
	clone = controlplane.Identity{MachineID: here.MachineID, SystemUUID: there.SystemUUID}
)

// newNode is a Node as an agent on that machine wants it.
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

// lease is a Lease that that machine renews at a time, for the first time.
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

func (b *Backend) delete(ctx context.Context, name string) error {
	if b.Delete != nil {
		return b.Delete(ctx, name)
	}
	return b.Client.Leave(ctx, name, controlplane.Identity{})
}

// watch is a LeaseWatch whose time the check makes pass.
type watch struct {
	*controlplane.LeaseWatch
	now time.Time
}

func newWatch() *watch {
	w := &watch{now: time.Now()}
	w.LeaseWatch = controlplane.NewLeaseWatch(func() time.Time { return w.now })
	return w
}

// registerWatching registers a Node of that name for that machine, with that watch,
// and tells which Nodes were replaced.
func registerWatching(ctx context.Context, b *Backend, node *corev1.Node, w *watch, o controlplane.RegisterOptions) (stored *corev1.Node, replaced []*corev1.Node, err error) {
	o.Watch = w.LeaseWatch
	o.Replaces = func(before *corev1.Node) { replaced = append(replaced, before) }
	stored, err = b.Client.Register(ctx, node, o)
	return stored, replaced, err
}

// wantError returns an error unless err wraps the class.
func wantError(call string, err, class error) error {
	if !errors.Is(err, class) {
		return fmt.Errorf("%s = %v, want an error that is %q", call, err, class)
	}
	return nil
}

// wantOwner returns an error unless err is an IdentityError that names both.
func wantOwner(call string, err error, theirs, ours controlplane.Identity) error {
	var identity *controlplane.IdentityError
	if !errors.As(err, &identity) {
		return fmt.Errorf("%s = %v, want an IdentityError", call, err)
	}
	if identity.Theirs != theirs || identity.Ours != ours {
		return fmt.Errorf("%s = %v, want one that names %v and %v", call, err, theirs, ours)
	}
	return nil
}
