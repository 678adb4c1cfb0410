package clones_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/clones"
	"hostler.io/hostler/controlplane/controllers/controllertest"
	"hostler.io/hostler/controlplane/election"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// rig is a fleet in a store, in a bubble of synctest.
type rig struct {
	*testing.T
	store *memory.Store
}

func inBubble(t *testing.T, test func(rig)) {
	synctest.Test(t, func(t *testing.T) { test(rig{t, memory.New(memory.Options{EndsLeases: true})}) })
}

// interval is the time between two reports of a host.
const interval = 5 * time.Minute

// known is how long after its start a clone must be found.
const known = time.Minute + interval + 20*time.Second

// soon is the longest delay of any other change.
const soon = 11 * time.Second

// report stores a Node as its host does, which keeps the annotation.
func (r rig) report(name, machine, boot string, ready corev1.ConditionStatus) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if before, err := r.store.Get(context.Background(), store.Nodes, name); err == nil {
		node.Annotations = before.GetAnnotations()
	}
	node.Status.NodeInfo.MachineID, node.Status.NodeInfo.BootID = machine, boot
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastHeartbeatTime: metav1.Now()}}
	r.store.Put(store.Nodes, node)
}

// host reports until it is killed. Then its Node becomes Unknown.
func (r rig) host(name, machine, boot string) (kill func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			r.report(name, machine, boot, corev1.ConditionTrue)
			select {
			case <-ticker.C:
			case <-stop:
				return
			}
		}
	}()
	stopped := false
	kill = func() {
		if !stopped {
			stopped = true
			close(stop)
			<-ended
			r.report(name, machine, boot, corev1.ConditionUnknown)
		}
	}
	r.Cleanup(kill)
	synctest.Wait()
	return kill
}

// want checks the annotation of a Node.
func (r rig) want(name, value string) {
	r.Helper()
	synctest.Wait()
	o, err := r.store.Get(context.Background(), store.Nodes, name)
	if err != nil {
		r.Fatal(err)
	}
	if got := o.GetAnnotations()[controlplane.AnnotationSameMachine]; got != value {
		r.Errorf("annotation of %s = %q, want %q", name, got, value)
	}
}

// replica is one server.
type replica struct {
	*clones.Controller
	election *election.Election
	stop     func()
}

// serve starts a server on a store. The end of the test stops it.
func (r rig) serve(name string, s store.Store) *replica {
	log, contact := slog.New(slog.DiscardHandler), &store.Contact{}
	c := &replica{Controller: clones.New(s, contact, log), election: election.New(s, clones.Name, name, log)}
	ignore := func(error) {}
	c.stop = controllertest.Run(r,
		func(ctx context.Context) error { return contact.Run(ctx, s.Ping, ignore) },
		func(ctx context.Context) error { return s.Follow(ctx, store.Nodes, store.AllChanges, c.Nodes()) },
		func(ctx context.Context) error { return c.Run(ctx, ignore) },
		func(ctx context.Context) error { return c.election.Run(ctx, c.Lead, ignore) },
	)
	return c
}

func TestAClonesLife(t *testing.T) {
	inBubble(t, func(r rig) {
		r.host("a", "m", "1")
		r.host("other", "o", "2")
		s := r.serve("s", r.store)
		time.Sleep(time.Hour)
		kill := r.host("copy", "m", "3")
		time.Sleep(time.Minute - time.Second)
		r.want("a", "")
		time.Sleep(known - time.Minute)
		r.want("a", "copy")
		r.want("copy", "a")
		r.want("other", "")
		if d := s.Report().Decision; len(d.Groups) != 1 {
			r.Errorf("groups = %v, want one", d.Groups)
		}
		// The host boots again.
		kill()
		time.Sleep(soon)
		r.want("a", "")
		r.want("copy", "")
		kill = r.host("copy", "m", "4")
		time.Sleep(known)
		r.want("a", "copy")
		// The host gets another machine ID.
		kill()
		r.host("copy", "n", "5")
		time.Sleep(soon)
		r.want("a", "")
		r.want("copy", "")
		// The Node of the host is deleted.
		r.host("third", "m", "6")
		time.Sleep(known)
		r.want("a", "third")
		r.store.Remove(store.Nodes, "third")
		time.Sleep(soon)
		r.want("a", "")
		if w := s.Report().Writes; w.Failed != 0 {
			r.Errorf("writes = %+v, want none that failed", w)
		}
	})
}

func TestARenamedHostIsNoClone(t *testing.T) {
	inBubble(t, func(r rig) {
		r.serve("s", r.store)
		// The Lease of the old name lasts for an hour, so this Node still looks as if it had a host.
		r.report("old", "m", "1", corev1.ConditionTrue)
		time.Sleep(interval)
		r.report("old", "m", "1", corev1.ConditionTrue)
		time.Sleep(soon)
		r.host("new", "m", "2")
		time.Sleep(time.Hour)
		r.want("new", "")
		r.want("old", "")
	})
}

func TestARestartOfTheServerTakesNothingBack(t *testing.T) {
	inBubble(t, func(r rig) {
		r.host("a", "m", "1")
		r.host("b", "m", "2")
		first := r.serve("first", r.store)
		time.Sleep(known)
		r.want("a", "b")
		first.stop()
		updates := r.store.Calls(memory.Update)
		r.serve("second", r.store)
		time.Sleep(known)
		r.want("a", "b")
		r.want("b", "a")
		if n := r.store.Calls(memory.Update) - updates; n != 0 {
			r.Errorf("writes after a restart = %d, want none", n)
		}
		r.store.Relist()
		time.Sleep(time.Minute)
		r.want("a", "b")
	})
}

func TestAnAnnotationIsPutBack(t *testing.T) {
	inBubble(t, func(r rig) {
		r.host("a", "m", "1")
		r.host("b", "m", "2")
		r.serve("s", r.store)
		time.Sleep(known)
		node, err := r.store.Get(r.Context(), store.Nodes, "a")
		if err != nil {
			r.Fatal(err)
		}
		node.SetAnnotations(map[string]string{"kept": "yes"})
		r.store.Put(store.Nodes, node)
		time.Sleep(20 * time.Second)
		r.want("a", "b")
		if node, _ := r.store.Get(r.Context(), store.Nodes, "a"); node.GetAnnotations()["kept"] != "yes" {
			r.Errorf("annotations = %v, want that of somebody else kept", node.GetAnnotations())
		}
	})
}

func TestFaultsOfTheStore(t *testing.T) {
	inBubble(t, func(r rig) {
		r.host("a", "m", "1")
		kill := r.host("b", "m", "2")
		s := r.serve("s", r.store)
		r.store.Inject(memory.Update, memory.Fault{Err: controlplane.ErrForbidden})
		time.Sleep(known)
		if failing := s.Report().Failing["nodes/a"]; !errors.Is(failing, controlplane.ErrForbidden) {
			r.Errorf("failing = %v, want %v", failing, controlplane.ErrForbidden)
		}
		r.store.Heal()
		time.Sleep(2 * time.Minute)
		r.want("a", "b")
		r.store.Inject(memory.Ping, memory.Fault{Err: controlplane.ErrUnavailable})
		time.Sleep(10 * time.Second)
		kill()
		time.Sleep(time.Minute)
		r.want("a", "b")
		r.store.Heal()
		time.Sleep(soon)
		r.want("a", "")
	})
}

// TestServersThatAreKilledNameTheRunningClones kills leaders while hosts appear and die. Hosts that run at
// the same time all the while stay named.
func TestServersThatAreKilledNameTheRunningClones(t *testing.T) {
	rounds := uint64(4)
	if os.Getenv("HOSTLER_TEST_LONG") != "" {
		rounds = 40
	}
	for seed := range rounds {
		inBubble(t, func(r rig) { killServers(r, seed) })
	}
}

func killServers(r rig, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 6))
	start := func() (*replica, *memory.Process) {
		m := r.store.Process()
		return r.serve(fmt.Sprint("s", random.Uint64()), m), m
	}
	r.host("a", "m", "1")
	r.host("b", "m", "2")
	first, firstStore := start()
	second, secondStore := start()
	time.Sleep(known)
	var kill func()
	for round := range 25 {
		if kill == nil {
			kill = r.host("c", "m", fmt.Sprint("boot", round))
		} else {
			kill()
			kill = nil
		}
		time.Sleep(time.Duration(random.IntN(20000)) * time.Millisecond)
		if first.election.Status().Leading {
			first, second, firstStore, secondStore = second, first, secondStore, firstStore
		}
		secondStore.Kill()
		second.stop()
		second, secondStore = start()
		for range 20 {
			time.Sleep(known / 10)
			synctest.Wait()
			o, err := r.store.Get(context.Background(), store.Nodes, "a")
			if err != nil {
				r.Fatal(err)
			}
			if v := o.GetAnnotations()[controlplane.AnnotationSameMachine]; v != "b" && v != "b,c" {
				r.Fatalf("seed %d: annotation of a = %q, want b in it", seed, v)
			}
		}
		want := "b"
		if kill != nil {
			want = "b,c"
		}
		r.want("a", want)
	}
	if kill != nil {
		kill()
	}
}
