package report

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/status"
)

// configure changes the Node's options.
func (d *desk) configure(change func(*status.Options)) {
	options := d.o.Node()
	change(&options)
	d.o.Node = func() status.Options { return options }
}

// events returns the Events so far with the given reasons: "Reason: message".
func (d *desk) events(reasons ...string) []string {
	var reported []string
	for _, e := range d.o.Recorder.Queued() {
		if slices.Contains(reasons, e.Reason) {
			reported = append(reported, e.Reason+": "+e.Message)
		}
	}
	return reported
}

// edit changes the stored Node as another client.
func (d *desk) edit(t *testing.T, change func(*corev1.Node)) {
	t.Helper()
	if err := d.client.Edit(t.Context(), nodeName, change); err != nil {
		t.Fatal(err)
	}
}

// bare returns a Node as a person creates it.
func bare() *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}} }

func TestANodeThatAnotherClientMustCreateIsAwaited(t *testing.T) {
	for name, watched := range map[string]bool{"with a watch": true, "without a watch": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				var waits []string
				d.o.AdoptOnly, d.o.Waits = "nobody may", func(why string) { waits = append(waits, why) }
				d.start(t)
				if watched {
					d.watch(t)
				}
				d.after(t, time.Hour, "as long as nobody creates it", 361, 0)
				if d.stored(t) != nil || len(d.named) > 0 || d.log.Count(`waiting until it is created" component=status reason="nobody may"`) != 1 {
					t.Errorf("stored %v, log %s, want no Node, and that reported once", d.stored(t), d.log)
				}
				if s := d.NodeState(); !strings.Contains(s.Waits, "no Node node-a exists yet: nobody may") || waits[len(waits)-1] != s.Waits {
					t.Errorf("NodeState() = %+v, the lease waits for %q, want what is waited for", s, waits)
				}
				if _, _, connected, err := d.Current(); !connected || err != nil {
					t.Errorf("Current() = %v, %v, want that the control plane answers", connected, err)
				}

				d.client.Create(bare())
				if !watched {
					time.Sleep(d.o.Update)
				}
				synctest.Wait()
				node := d.stored(t)
				if ready(node).Status != corev1.ConditionTrue || node.Labels[corev1.LabelHostname] != nodeName || d.NodeState().Waits != "" || waits[len(waits)-1] != "" {
					t.Errorf("a Node that was created = %+v, NodeState() %+v, want it filled in", node, d.NodeState())
				}

				if err := d.client.Leave(t.Context(), nodeName, controlplane.Identity{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * d.o.Rewrite)
				synctest.Wait()
				if d.stored(t) != nil || d.NodeState().Waits == "" || waits[len(waits)-1] == "" || d.log.Count("waiting until it is created") != 2 {
					t.Errorf("a Node that was deleted again = %v, NodeState() %+v, want it waited for", d.stored(t), d.NodeState())
				}
			})
		})
	}
}

func TestTheLeaseOfANodeThatIsGoneWaitsForTheNextOne(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		lease := ""
		d.o.Waits = func(why string) { lease = why }
		d.start(t)
		d.watch(t)
		d.client.Inject(controlplanetest.Register, controlplanetest.Fault{Err: controlplane.ErrForbidden})
		if err := d.client.Leave(t.Context(), nodeName, controlplane.Identity{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if lease == "" {
			t.Error("the lease of a Node that is gone waits for nothing, want it to wait for the Node")
		}
		if _, _, _, err := d.Current(); !errors.Is(err, controlplane.ErrForbidden) {
			t.Errorf("Current() = %v, want why the Node is not registered", err)
		}
		d.client.Heal()
		time.Sleep(d.o.Update)
		synctest.Wait()
		if d.stored(t) == nil || lease != "" {
			t.Errorf("the Node is %v, the lease waits for %q, want both there again", d.stored(t), lease)
		}
	})
}

func TestTheLeaseOfAForeignNodeDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		waits := "whether there is a Node is not known yet"
		d.o.AdoptOnly, d.o.Waits, d.mine = "nobody may", func(why string) { waits = why }, false
		if err := d.once(t.Context(), nil); err != nil || waits != "" {
			t.Errorf("a round = %v, the lease waits for %q, want it to continue", err, waits)
		}
	})
}

func TestTaintsThatTheNodeLacksAreReportedWithTheFix(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.configure(func(o *status.Options) {
			o.ExternalCloud = true // adds a taint that is not configured
			o.Taints = []corev1.Taint{{Key: "gpu", Value: "a", Effect: corev1.TaintEffectNoSchedule}, {Key: "x", Effect: corev1.TaintEffectNoExecute}}
		})
		d.start(t)
		d.watch(t)
		if s := d.NodeState(); len(s.Drift) != 0 || len(d.stored(t).Spec.Taints) != 3 {
			t.Errorf("a Node that hostler created: NodeState() = %+v, taints %v, want nothing amiss", s, d.stored(t).Spec.Taints)
		}
		for _, step := range []struct {
			taints []corev1.Taint
			fix    string
		}{
			{nil, "kubectl taint nodes node-a gpu=a:NoSchedule x:NoExecute"},
			{[]corev1.Taint{{Key: "gpu", Value: "b", Effect: corev1.TaintEffectNoSchedule}}, "kubectl taint nodes node-a gpu=a:NoSchedule x:NoExecute --overwrite"},
			{d.o.Node().Taints, ""},
		} {
			d.edit(t, func(n *corev1.Node) { n.Spec.Taints = step.taints })
			time.Sleep(time.Hour)
			synctest.Wait()
			s := d.NodeState()
			if step.fix == "" && len(s.Drift) > 0 || step.fix != "" && (len(s.Drift) != 1 || s.Drift[0].Fix != step.fix) {
				t.Errorf("NodeState() with taints %v = %+v, want the fix %q", step.taints, s, step.fix)
			}
			if got := d.stored(t).Spec.Taints; len(got) != len(step.taints) {
				t.Errorf("the stored taints are %v, want them left alone", got)
			}
		}
		if reported := d.events("TaintsMissing"); len(reported) != 2 || !strings.Contains(reported[0], "lacks the configured taints gpu=a:NoSchedule, x:NoExecute") || !strings.Contains(reported[0], "`kubectl taint") {
			t.Errorf("Events = %q, want each loss reported once", reported)
		}
		if d.log.Count("configured taints missing") != 2 || d.log.Count("configured taints restored") != 1 {
			t.Errorf("log = %s, want each loss reported once, and the end", d.log)
		}
	})
}

// alone is a control plane without other clients.
type alone struct{ controlplane.Client }

func TestTaintsOfAnExclusiveControlPlaneAreRestored(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		if err := d.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		d = d.again(t, "one")
		d.o.Client = alone{d.client}
		d.configure(func(o *status.Options) { o.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoExecute}} })
		d.start(t)
		if s := d.NodeState(); len(s.Drift) != 1 || s.Drift[0].Fix != "hostler leave && hostler leave --undo" {
			t.Errorf("NodeState() = %+v, want it fixed by a Node that is created again", s)
		}
	})
}

func TestAnExternalCloudKnowsTheAddresses(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.configure(func(o *status.Options) { o.ExternalCloud = true })
		d.start(t)
		d.watch(t)
		if n := d.stored(t); len(n.Status.Addresses) != 1 || n.Status.Addresses[0].Type != corev1.NodeHostName || len(n.Spec.Taints) != 1 {
			t.Errorf("a new Node has addresses %v and taints %v, want its host name, and that a cloud is waited for", n.Status.Addresses, n.Spec.Taints)
		}
		cloud := []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeHostName, Address: "ip-1"}}
		d.edit(t, func(n *corev1.Node) { n.Spec.Taints, n.Status.Addresses = nil, cloud })
		time.Sleep(2 * d.o.Rewrite)
		d.set(func() { d.guard.Reason = "else" })
		d.Changed()
		synctest.Wait()
		n := d.stored(t)
		if !slices.Equal(n.Status.Addresses, cloud) || len(n.Spec.Taints) != 0 {
			t.Errorf("the Node has addresses %v and taints %v, want them as the cloud left them", n.Status.Addresses, n.Spec.Taints)
		}
		time.Sleep(time.Minute) // read again
		if seen, _, _, _ := d.Current(); !slices.Equal(seen.Status.Addresses, cloud) {
			t.Errorf("status shows addresses %v, want the cloud's", seen.Status.Addresses)
		}
	})
}

// A Node that a person created has no addresses, and a cloud controller manager may search for its
// host name.
func TestAnAdoptedNodeWithoutAddressesGetsThoseOfHostler(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.configure(func(o *status.Options) { o.ExternalCloud = true })
		d.client.Create(bare())
		d.start(t)
		if n := d.stored(t); len(n.Status.Addresses) != 1 || n.Status.Addresses[0].Address != nodeName {
			t.Errorf("the Node has addresses %v, want its host name", n.Status.Addresses)
		}
	})
}

// If the control plane answers slowly right after the start of the agent, it must not receive an
// Unknown Ready.
func TestReadyIsNotMadeUnknownByAStartBesideASlowControlPlane(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		if err := d.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		since := ready(d.stored(t)).LastTransitionTime
		time.Sleep(time.Minute)
		next := newUnaskedDesk(t)
		next.client, next.o.Client, next.kept, next.o.Store = d.client, d.client, d.kept, d.kept
		w := next.witnessed()
		d.client.Inject(controlplanetest.Node, controlplanetest.Fault{Delay: 2 * time.Second})
		next.start(t)
		time.Sleep(30 * time.Second)
		if err := next.runtimes.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		next.Changed()
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if slices.Contains(w.ready, status.ReasonStarting) || len(w.ready) == 0 {
			t.Errorf("the control plane has seen Ready as %v, want it never to say that hostler is starting", w.ready)
		}
		if got := ready(d.stored(t)).LastTransitionTime; !got.Equal(&since) {
			t.Errorf("Ready is so since %v, want since %v: pods noticed nothing", got, since)
		}
	})
}

func TestAnIdentityThatIsAnothersIsNotFoughtFor(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		d.watch(t)
		d.edit(t, func(n *corev1.Node) {
			n.Annotations[controlplane.AnnotationMachineID] = "another"
			n.Status.NodeInfo.MachineID = "another"
		})
		time.Sleep(2 * d.o.Rewrite)
		synctest.Wait()
		if d.machineOf(t) != "another" {
			t.Error("the Node is this machine's, want it left to the one that has it, though that has no lease")
		}
		var identity *controlplane.IdentityError
		if _, _, _, err := d.Current(); !errors.As(err, &identity) {
			t.Errorf("Current() = %v, want that the Node is another machine's", err)
		}
	})
}

// Without a watch, nothing reports that the Node was created.
func TestANodeThatIsCreatedForALabelIsReportedAsNew(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		if err := d.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if err := d.client.Leave(t.Context(), nodeName, controlplane.Identity{}); err != nil {
			t.Fatal(err)
		}
		d.configure(func(o *status.Options) { o.Labels = map[string]string{"example.com/rack": "r2"} })
		if err := d.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		n := d.stored(t)
		if n == nil || n.Labels["example.com/rack"] != "r2" || len(d.named) != 2 || d.named[1] != n.UID {
			t.Errorf("the Node is %+v, and the lease's owners %v, want the lease to know the new one", n, d.named)
		}
	})
}
