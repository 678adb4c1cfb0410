package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/conformance"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/objects/objectstest"
)

func TestConformance(t *testing.T) {
	controlplanetest.RunInBubbles(t, func(*testing.T) controlplanetest.Backend {
		store := &tamperer{Store: objectstest.New()}
		return controlplanetest.Backend{
			Client:      objects.New(store, objects.Options{}),
			RequestPace: func(ctx context.Context, duration string) error { return objectstest.RequestPace(ctx, store, duration) },
			Restart: func(context.Context) (controlplane.Client, error) {
				return objects.New(store, objects.Options{}), nil
			},
			Expires: true,
			Inject:  store.injectFault,
		}
	})
}

// tamperer is a store that can return another object than the requested one.
type tamperer struct {
	*objectstest.Store
	tampers atomic.Bool
}

func (s *tamperer) Get(ctx context.Context, key objects.Key) (objects.Object, error) {
	o, err := s.Store.Get(ctx, key)
	if s.tampers.Load() {
		o.Value = bytes.ReplaceAll(o.Value, []byte(key.Node), []byte("another"))
	}
	return o, err
}

// injectFault is the Inject of a conformance.Backend.
func (s *tamperer) injectFault(f conformance.Fault) (restore func(), err error) {
	switch f {
	case conformance.Slow:
		s.Inject(objectstest.Any, objectstest.Fault{Delay: 250 * time.Millisecond})
	case conformance.NoAnswer:
		s.Inject(objectstest.Any, objectstest.Fault{Hang: true})
	case conformance.Lost:
		s.Inject(objectstest.Any, objectstest.Fault{LoseAnswer: true})
	case conformance.WrongObject:
		s.tampers.Store(true)
	}
	return func() { s.tampers.Store(false); s.Heal() }, nil
}

// The machines of the tests.
var (
	here  = controlplane.Identity{MachineID: "here"}
	there = controlplane.Identity{MachineID: "there"}
)

func newNode(name string, id controlplane.Identity) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"rack": "r1"}},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{MachineID: id.MachineID},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "AgentReady"}},
		},
	}
}

func newLease(t *testing.T, name string, id controlplane.Identity) *coordinationv1.Lease {
	t.Helper()
	lease, err := controlplane.NewLease(name, id, 40*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return controlplane.Renew(lease, time.Now())
}

// agent is the client of one machine.
type agent struct {
	*objects.Client
	t     *testing.T
	id    controlplane.Identity
	watch *controlplane.LeaseWatch
}

func newAgent(t *testing.T, store *objectstest.Store, id controlplane.Identity) *agent {
	t.Helper()
	return &agent{Client: objects.New(store, objects.Options{}), t: t, id: id, watch: controlplane.NewLeaseWatch(nil)}
}

// register registers the Node n for the machine.
func (a *agent) register(o controlplane.RegisterOptions) (*corev1.Node, error) {
	o.Watch = a.watch
	return a.Register(a.t.Context(), newNode("n", a.id), o)
}

// registered does the same. An error ends the test.
func (a *agent) registered() *corev1.Node {
	a.t.Helper()
	node, err := a.register(controlplane.RegisterOptions{})
	if err != nil {
		a.t.Fatalf("Register() = %v, want no error", err)
	}
	return node
}

// renewed stores a new Lease. An error ends the test.
func (a *agent) renewed() *coordinationv1.Lease {
	a.t.Helper()
	lease, err := a.RenewLease(a.t.Context(), newLease(a.t, "n", a.id))
	if err != nil {
		a.t.Fatalf("RenewLease() = %v, want no error", err)
	}
	return lease
}

func TestAHostThatMayNotListIsReported(t *testing.T) {
	store := objectstest.New()
	a := newAgent(t, store, here)
	store.Inject(objectstest.List, objectstest.Fault{Err: controlplane.ErrForbidden})
	for call, run := range map[string]func() error{
		"Nodes()":  func() error { _, err := a.Nodes(t.Context()); return err },
		"Events()": func() error { _, err := a.Events(t.Context()); return err },
	} {
		if err := run(); !errors.Is(err, controlplane.ErrForbidden) {
			t.Errorf("%s = %v, want %v", call, err, controlplane.ErrForbidden)
		}
	}
}

// A call without a deadline gets one.
func TestEveryCallIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objectstest.New()
		a := newAgent(t, store, here)
		a.registered()
		store.Inject(objectstest.Any, objectstest.Fault{Hang: true})
		for call, run := range map[string]func() error{
			"Node()":         func() error { _, err := a.Node(t.Context(), "n"); return err },
			"Register()":     func() error { _, err := a.register(controlplane.RegisterOptions{}); return err },
			"UpdateStatus()": func() error { _, err := a.UpdateStatus(t.Context(), newNode("n", here)); return err },
			"RenewLease()":   func() error { _, err := a.RenewLease(t.Context(), newLease(t, "n", here)); return err },
			"PublishEvent()": func() error { return a.PublishEvent(t.Context(), newEvent("n", "n.1", 1)) },
			"Leave()":        func() error { return a.Leave(t.Context(), "n", here) },
			"Cordon()":       func() error { _, err := a.Cordon(t.Context(), "n", true, false); return err },
			"Nodes()":        func() error { _, err := a.Nodes(t.Context()); return err },
		} {
			began := time.Now()
			if err := run(); !errors.Is(err, controlplane.ErrUnavailable) || time.Since(began) > time.Minute {
				t.Errorf("%s of a store that hangs = %v after %v, want %v soon", call, err, time.Since(began), controlplane.ErrUnavailable)
			}
		}
	})
}

// A slow receiver may miss earlier states, but not the last one.
func TestAWatchReportsTheLastStateHoweverSlowTheReceiverIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objectstest.New()
		a := newAgent(t, store, here)
		a.registered()
		seen, ended := make(chan *corev1.Node), make(chan error, 1)
		go func() { ended <- a.WatchNode(t.Context(), "n", seen) }()
		for _, rack := range []string{"r2", "r3", "r4"} {
			synctest.Wait() // without a receiver
			if err := objectstest.EditNode(t.Context(), store, "n", func(n *corev1.Node) { n.Labels["rack"] = rack }); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := <-seen; n.Labels["rack"] != "r4" || n.UID == "" || n.ResourceVersion == "" {
			t.Errorf("WatchNode() reported %v, want the node with its last label", n)
		}
		synctest.Wait()
		select {
		case n := <-seen:
			t.Errorf("WatchNode() reported %v though nothing has changed", n)
		default:
		}
		store.Inject(objectstest.Watch, objectstest.Fault{Err: controlplane.ErrUnavailable})
		if err := <-ended; !errors.Is(err, controlplane.ErrUnavailable) {
			t.Errorf("WatchNode() of a store that is lost = %v, want %v", err, controlplane.ErrUnavailable)
		}
	})
}

// Hundreds of agents use one store in which every other write has a conflict, and all of them use
// one client.
func TestManyAgentsAtOnce(t *testing.T) {
	store := objectstest.New()
	shared := objects.New(store, objects.Options{})
	var all sync.WaitGroup
	for i := range 300 {
		client, name := shared, fmt.Sprintf("n-%d", i)
		if i%2 == 0 {
			client = objects.New(store, objects.Options{})
		}
		all.Go(func() {
			id := controlplane.Identity{MachineID: name}
			node, err := client.Register(t.Context(), newNode(name, id), controlplane.RegisterOptions{})
			if err != nil {
				t.Errorf("Register() = %v, want no error", err)
				return
			}
			lease := newLease(t, name, id)
			for range 5 {
				if lease, err = client.RenewLease(t.Context(), controlplane.Renew(lease, time.Now())); err != nil {
					t.Errorf("RenewLease() = %v, want no error", err)
					return
				}
				if err := objectstest.EditNode(t.Context(), store, name, func(n *corev1.Node) { n.Labels["theirs"] += "x" }); err != nil {
					t.Error(err)
				}
				if node, err = client.UpdateStatus(t.Context(), node); err != nil {
					t.Errorf("UpdateStatus() = %v, want no error", err)
					return
				}
				if err := client.PublishEvent(t.Context(), newEvent(name, name+".1", 1)); err != nil {
					t.Errorf("PublishEvent() = %v, want no error", err)
				}
			}
			if node.Labels["theirs"] != "xxxxx" || controlplane.IdentityOf(node) != id {
				t.Errorf("UpdateStatus() = %v, want %s's, and what others wrote", node, name)
			}
		})
	}
	all.Wait()
	nodes, err := shared.Nodes(t.Context())
	if err != nil || len(nodes) != 300 {
		t.Errorf("Nodes() = %d, %v, want 300", len(nodes), err)
	}
	if events, err := shared.Events(t.Context()); err != nil || len(events) != 300 {
		t.Errorf("Events() = %d, %v, want 300", len(events), err)
	}
}

func TestAFleetIsReportedButForWhatCannotBeRead(t *testing.T) {
	store := objectstest.New()
	client := objects.New(store, objects.Options{})
	for _, name := range []string{"a", "b", "c", "d"} {
		if _, err := client.Register(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, controlplane.RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Edit(objects.Key{Kind: objects.Node, Node: "b"}, func([]byte) []byte { return []byte("{") }); err != nil {
		t.Fatal(err)
	}
	var reported []string
	err := client.Fleet(t.Context(), func(node *corev1.Node, _ *coordinationv1.Lease) error {
		reported = append(reported, node.Name)
		return nil
	})
	if !errors.Is(err, controlplane.ErrIncomplete) || !strings.Contains(err.Error(), "nodes/b") || !slices.Equal(reported, []string{"a", "c", "d"}) {
		t.Errorf("Fleet() = %v after %q, want the others, and which cannot be read", err, reported)
	}
}

// unsorted is a store whose second page has the objects that belong before the first.
type unsorted struct{ *objectstest.Store }

func (s unsorted) List(ctx context.Context, kind objects.Kind, node, page string) ([]objects.Object, string, error) {
	list, _, err := s.Store.List(ctx, kind, node, "")
	if err != nil || len(list) < 2 {
		return list, "", err
	}
	if page == "" {
		return list[1:], "the others", nil
	}
	return list[:1], "", nil
}

func TestAFleetThatIsReportedOutOfOrderIsNotBelieved(t *testing.T) {
	client := objects.New(unsorted{objectstest.New()}, objects.Options{})
	for _, name := range []string{"a", "b"} {
		if _, err := client.RenewLease(t.Context(), newLease(t, name, here)); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Register(t.Context(), newNode(name, here), controlplane.RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	err := client.Fleet(t.Context(), func(*corev1.Node, *coordinationv1.Lease) error { return nil })
	if !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), "nodes/a after one with nodes/b") {
		t.Errorf("Fleet() = %v, want which page is out of order", err)
	}
}

func TestAStoreThatKeepsItsFleetToItselfReportsIt(t *testing.T) {
	store := objectstest.New()
	store.Inject(objectstest.List, objectstest.Fault{Err: controlplane.ErrForbidden})
	err := objects.New(store, objects.Options{}).Fleet(t.Context(), func(*corev1.Node, *coordinationv1.Lease) error { return nil })
	if !errors.Is(err, controlplane.ErrForbidden) || !strings.Contains(err.Error(), "list nodes") {
		t.Errorf("Fleet() = %v, want that it is forbidden", err)
	}
}
