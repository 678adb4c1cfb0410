package report

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/objects/objectstest"
	"hostler.io/hostler/status"
)

// archive is a desk with a store of objects and a LeaseKeeper.
type archive struct {
	*desk
	store  *objectstest.Store
	client *objects.Client
	keeper *controlplane.LeaseKeeper
}

// inArchive runs a test in a synctest bubble.
func inArchive(t *testing.T, test func(t *testing.T, a *archive)) {
	t.Helper()
	bubble(t, func(t *testing.T, d *desk) {
		a := &archive{desk: d, store: objectstest.New()}
		a.client = objects.New(a.store, objects.Options{})
		d.o.Client, d.o.Watch = a.client, controlplane.NewLeaseWatch(nil)
		var err error
		a.keeper, err = controlplane.NewLeaseKeeper(a.client, controlplane.LeasePolicy{
			Node: nodeName, Holder: controlplane.Identity{MachineID: d.machine.MachineID, SystemUUID: d.machine.SystemUUID},
			Duration: leaseDuration, Interval: leaseInterval, Watch: d.o.Watch,
		}, discard())
		if err != nil {
			t.Fatal(err)
		}
		d.o.Named = func(uid types.UID) { a.keeper.SetOwner(uid) }
		test(t, a)
	})
}

// runs runs the agent until the bubble ends, with a watch on its Node if watched is set. Its Lease
// is paused while the Node is awaited.
func (a *archive) runs(t *testing.T, watched bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	pauses := make(chan string)
	a.o.Waits = func(why string) {
		select {
		case pauses <- why:
		case <-ctx.Done():
		}
	}
	done.Go(func() { // the gate comes before the keeper
		for why := ""; ctx.Err() == nil; {
			keeping, rest := context.WithCancel(ctx)
			var keeper sync.WaitGroup
			if why == "" {
				keeper.Go(func() { _ = a.keeper.Run(keeping) })
			}
			select {
			case why = <-pauses:
			case <-ctx.Done():
			}
			rest()
			keeper.Wait()
		}
	})
	done.Go(func() { _ = a.Run(ctx, func(error) {}) })
	if watched {
		done.Go(func() { _ = a.Watch(ctx, a.client, func(error) {}) })
	}
	t.Cleanup(func() { cancel(); done.Wait() })
	time.Sleep(2 * a.o.Update) // the first Lease may be older than its Node
	synctest.Wait()
}

// wantKept checks that the Node belongs to this host, is Ready and as configured, and that the
// Lease belongs to it and is valid.
func (a *archive) wantKept(t *testing.T, when string) *corev1.Node {
	t.Helper()
	node, err := a.client.Node(t.Context(), nodeName)
	if err != nil {
		t.Fatalf("%s: Node() = %v, want it there", when, err)
	}
	if c := ready(node); c.Status != corev1.ConditionTrue || c.Reason != status.ReasonHostReady || node.Labels["rack"] != "r1" || controlplane.IdentityOf(node).MachineID != a.machine.MachineID {
		t.Errorf("%s: the node is %s's, Ready %v, labels %v, want it this host's and as it is", when, controlplane.IdentityOf(node), c, node.Labels)
	}
	lease, err := a.client.Lease(t.Context(), nodeName)
	if err != nil || len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != node.UID || time.Since(lease.Spec.RenewTime.Time) > 2*leaseInterval {
		t.Errorf("%s: Lease() = %v, %v, want it renewed, and the node's", when, lease, err)
	}
	return node
}

func TestARestoredStoreIsWrittenAgain(t *testing.T) {
	for name, watched := range map[string]bool{"with a watch": true, "without a watch": false} {
		t.Run(name, func(t *testing.T) {
			inArchive(t, func(t *testing.T, a *archive) {
				a.configure(func(o *status.Options) { o.Labels = map[string]string{"rack": "r1"} })
				backups := map[string]func(){"before the node": a.store.Backup()}
				otherMachine := objects.New(a.store, objects.Options{})
				other := bare()
				other.Status.NodeInfo.MachineID = "another"
				if _, err := otherMachine.Register(t.Context(), other, controlplane.RegisterOptions{}); err != nil {
					t.Fatal(err)
				}
				backups["another machine's node"] = a.store.Backup()
				a.runs(t, watched)
				backups["the node at its beginning"] = a.store.Backup()
				time.Sleep(10 * time.Minute)
				a.wantKept(t, "before all")
				if err := objectstest.EditNode(t.Context(), a.store, nodeName, func(n *corev1.Node) {
					n.Labels["rack"] = "r0"
					n.Status.Conditions = nil
				}); err != nil {
					t.Fatal(err)
				}
				backups["the node as somebody else had it"] = a.store.Backup()
				time.Sleep(10 * time.Minute)
				a.wantKept(t, "later")
				for range 2 {
					for what, restore := range backups {
						restore()
						time.Sleep(20 * time.Minute) // enough for a regular write, and for another machine's Lease to expire
						synctest.Wait()
						a.wantKept(t, "set back to "+what)
					}
				}
			})
		})
	}
}

// A fleet must not use the state of a backup until something changes on the host.
func TestARestoredStatusIsWrittenAgainSoon(t *testing.T) {
	inArchive(t, func(t *testing.T, a *archive) {
		a.configure(func(o *status.Options) { o.Labels = map[string]string{"rack": "r1"} })
		a.runs(t, true)
		for what, change := range map[string]func(*corev1.Node){
			"another status": func(n *corev1.Node) {
				for i := range n.Status.Conditions {
					n.Status.Conditions[i].Status = corev1.ConditionFalse
				}
			},
			"no conditions": func(n *corev1.Node) { n.Status.Conditions = nil },
		} {
			if err := objectstest.EditNode(t.Context(), a.store, nodeName, change); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * a.o.Update)
			synctest.Wait()
			a.wantKept(t, "set back to "+what)
			puts := a.store.Calls(objectstest.Put)
			time.Sleep(time.Minute)
			if n := a.store.Calls(objectstest.Put) - puts; n > 7 {
				t.Errorf("writes in the minute after = %d, want those of the lease alone", n)
			}
		}
	})
}

func TestAHostFixesItsOwnTaintsInAStore(t *testing.T) {
	inArchive(t, func(t *testing.T, a *archive) {
		ours := corev1.Taint{Key: "example.com/gpu", Value: "true", Effect: corev1.TaintEffectNoSchedule}
		later := corev1.Taint{Key: "example.com/later", Effect: corev1.TaintEffectNoExecute}
		theirs := corev1.Taint{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}
		options := a.o.Node()
		var mu sync.Mutex
		options.Labels, options.Taints = map[string]string{"rack": "r1"}, []corev1.Taint{ours}
		a.o.Node = func() status.Options { mu.Lock(); defer mu.Unlock(); return options }
		a.runs(t, true)
		wantTaints := func(when string, want ...corev1.Taint) {
			t.Helper()
			node := a.wantKept(t, when)
			if missing := controlplane.MissingTaints(node, want); len(missing) > 0 || len(node.Spec.Taints) != len(want) {
				t.Errorf("%s: taints = %v, want %v", when, node.Spec.Taints, want)
			}
			for _, d := range a.NodeState().Drift {
				t.Errorf("%s: drift = %q, fix %q, want none", when, d.Message, d.Fix)
			}
		}
		wantTaints("at first", ours)
		err := objectstest.EditNode(t.Context(), a.store, nodeName, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{theirs} })
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantTaints("as soon as somebody has removed it", ours, theirs)
		if got := a.events("NodeRestored"); len(got) != 1 || !strings.Contains(got[0], "taint example.com/gpu=true:NoSchedule") {
			t.Errorf("Events = %q, want one of the taint that is set again", got)
		}
		mu.Lock()
		options.Taints = []corev1.Taint{later}
		mu.Unlock()
		a.Changed()
		synctest.Wait()
		wantTaints("after a new configuration", theirs, later)
		if got := a.events("TaintsMissing", "NodeRestored"); len(got) != 1 {
			t.Errorf("Events = %q, want no more", got)
		}
	})
}

// What an earlier machine has left can be fixed on the host: there may be no kubectl.
func TestRemainsInAStoreAreFixedFromTheHost(t *testing.T) {
	inArchive(t, func(t *testing.T, a *archive) {
		other := bare()
		other.Labels = map[string]string{"old": "1"}
		other.Spec.PodCIDR = "10.1.0.0/24"
		other.Status.NodeInfo.MachineID = "another"
		if _, err := objects.New(a.store, objects.Options{}).Register(t.Context(), other, controlplane.RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		a.configure(func(o *status.Options) { o.Labels = map[string]string{"rack": "r1"} })
		a.o.AdoptOnly = "nobody may"
		a.runs(t, true)
		time.Sleep(leaseDuration) // the other machine may be alive
		synctest.Wait()
		drift := a.NodeState().Drift
		if len(drift) != 1 || !strings.Contains(drift[0].Message, "10.1.0.0/24") || strings.Contains(drift[0].Fix, "kubectl") || !strings.Contains(drift[0].Fix, "hostler leave") {
			t.Errorf("NodeState() has drift %+v, want what remains, and a fix on this host", drift)
		}
		if got := a.events("NodeTakenOver"); len(got) != 1 || slices.ContainsFunc(got, func(e string) bool { return strings.Contains(e, "kubectl") }) {
			t.Errorf("Events = %q, want one, without kubectl", got)
		}
	})
}

func TestAnUnavailableStoreIsWaitedFor(t *testing.T) {
	inArchive(t, func(t *testing.T, a *archive) {
		a.configure(func(o *status.Options) { o.Labels = map[string]string{"rack": "r1"} })
		a.runs(t, true)
		uid := a.wantKept(t, "at first").UID
		for what, fault := range map[string]objectstest.Fault{
			"unavailable":            {Err: controlplane.ErrUnavailable},
			"silent":                 {Hang: true},
			"losing all answers":     {LoseAnswer: true},
			"slow":                   {Delay: 3 * time.Second},
			"written by others, too": {Conflict: true},
		} {
			a.store.Inject(objectstest.Any, fault)
			time.Sleep(7 * time.Minute)
			a.store.Heal()
			time.Sleep(WriteTimeout + 2*a.o.Update)
			synctest.Wait()
			if node := a.wantKept(t, "after the store was "+what); node.UID != uid {
				t.Errorf("after the store was %s: uid = %s, want %s", what, node.UID, uid)
			}
			if _, _, connected, err := a.Current(); !connected || err != nil {
				t.Errorf("after the store was %s: connected %v, %v, want it so", what, connected, err)
			}
		}
		if err := a.keeper.Stats().LastError; err != nil && !errors.Is(err, controlplane.ErrConflict) {
			t.Errorf("the lease's last error = %v, want none", err)
		}
	})
}
