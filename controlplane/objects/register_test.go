package objects_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/objects/objectstest"
)

// A machine that has taken the Node from this process counts as dead some time after its Lease has ended,
// even if this host never saw that Lease. Otherwise the Node of a dead next machine would stay lost
// until the agent restarts.
func TestAMachineGetsTheNodeBackThatItHasLost(t *testing.T) {
	lost := controlplane.RegisterOptions{Lost: true}
	for name, sees := range map[string]bool{"the other's lease was seen": true, "nobody saw a lease": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := objectstest.New()
				a, b := newAgent(t, store, here), newAgent(t, store, there)
				a.registered()
				if _, err := b.register(controlplane.RegisterOptions{Takeover: true}); err != nil {
					t.Fatal(err)
				}
				refused := func(when string) {
					t.Helper()
					identity := &controlplane.IdentityError{}
					if _, err := a.register(lost); !errors.As(err, &identity) || !identity.LeaseRenewed.IsZero() && when != "while it has a lease" {
						t.Fatalf("Register() %s = %v, want it refused", when, err)
					}
				}
				patience := 40 * time.Second
				if sees {
					b.renewed()
					refused("while it has a lease")
					time.Sleep(40 * time.Second) // then it has none
				} else {
					refused("at first")
					time.Sleep(14 * time.Minute)
					alive := newNode("n", there)
					alive.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
					if _, err := b.UpdateStatus(t.Context(), alive); err != nil { // without a Lease
						t.Fatal(err)
					}
					patience = 15 * time.Minute
				}
				refused("at first")
				time.Sleep(patience - time.Second)
				refused("before its time is over")
				time.Sleep(time.Second)
				replaced := 0
				again := lost
				again.Replaces = func(*corev1.Node) { replaced++ }
				node, err := a.register(again)
				if err != nil || controlplane.IdentityOf(node) != here || replaced != 1 {
					t.Errorf("Register() after its time is over = %v, %v, %d reports, want the node again", node, err, replaced)
				}
			})
		})
	}
}

func TestAReplacedNodeIsReportedEvenIfTheAnswerWasLost(t *testing.T) {
	for name, adoptOnly := range map[string]bool{"replaced": false, "taken over": true} {
		t.Run(name, func(t *testing.T) {
			store := objectstest.New()
			before := newAgent(t, store, there).registered()
			var reported []*corev1.Node
			o := controlplane.RegisterOptions{Takeover: true, AdoptOnly: adoptOnly, Replaces: func(n *corev1.Node) { reported = append(reported, n) }}
			a := newAgent(t, store, here)
			store.Inject(objectstest.Put, objectstest.Fault{LoseAnswer: true, Times: 1})
			if _, err := a.register(o); !errors.Is(err, controlplane.ErrUnavailable) || len(reported) > 0 {
				t.Fatalf("Register() without an answer = %v, reported %v, want %v", err, reported, controlplane.ErrUnavailable)
			}
			node, err := a.register(o)
			if err != nil || controlplane.IdentityOf(node) != here || (node.UID == before.UID) != adoptOnly {
				t.Errorf("Register() again = %v, %v, want this machine's", node, err)
			}
			if len(reported) != 1 || reported[0].UID != before.UID {
				t.Errorf("reported %v, want the previous node, once", reported)
			}
			if _, err := a.register(o); err != nil || len(reported) != 1 {
				t.Errorf("Register() once more = %v, reported %v, want no more reports", err, reported)
			}
		})
	}
}

func TestRegisterResolvesConflicts(t *testing.T) {
	store := objectstest.New()
	a := newAgent(t, store, here)
	a.registered()
	wanted := newNode("n", here)
	wanted.Labels["rack"] = "r2"
	store.Inject(objectstest.Put, objectstest.Fault{Conflict: true, Times: 3})
	counted(t, store, "somebody is faster three times", 1, 4, func() {
		if n, err := a.Register(t.Context(), wanted, controlplane.RegisterOptions{}); err != nil || n.Labels["rack"] != "r2" {
			t.Errorf("Register() = %v, %v, want it stored at last", n, err)
		}
	})
	store.Inject(objectstest.Put, objectstest.Fault{Conflict: true})
	if _, err := a.register(controlplane.RegisterOptions{}); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("Register() where somebody is always faster = %v, want %v", err, controlplane.ErrConflict)
	}
}

// A Lease that cannot be read protects its machine no longer than a missing one.
func TestANodeWhoseLeaseIsUnreadableYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objectstest.New()
		b := newAgent(t, store, there)
		b.registered()
		b.renewed()
		unreadable(t, store, objects.Lease)
		a := newAgent(t, store, here)
		if _, err := a.register(controlplane.RegisterOptions{}); err == nil {
			t.Error("Register() at once = no error, want to wait whether the other machine writes its Node")
		}
		time.Sleep(time.Minute)
		if node := a.registered(); controlplane.IdentityOf(node) != here {
			t.Errorf("Register() = %v, want the node of %v", node, here)
		}
	})
}
