package report

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
)

// kubelets returns the Node as a kubelet on the desk's machine writes it.
func (d *desk) kubelets() *corev1.Node {
	n := bare()
	n.Labels = map[string]string{corev1.LabelHostname: nodeName}
	n.Status.NodeInfo = corev1.NodeSystemInfo{MachineID: d.machine.MachineID, SystemUUID: d.machine.SystemUUID, BootID: d.machine.BootID}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "kubelets"}}
	n.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"},
	}
	return n
}

// beside makes the Node belong to a kubelet.
func (d *desk) beside() { d.mine, d.o.Beside = false, func() bool { return true } }

// besides counts writes beside a kubelet.
func (d *desk) besides(t *testing.T, pass time.Duration, what string, want int) {
	t.Helper()
	d.after(t, pass, what, 0, 0)
	if got := d.client.Calls(controlplanetest.UpdateConditions); got != want {
		t.Fatalf("%s: conditions written %d times, want %d", what, got, want)
	}
}

func TestBesideAKubeletOnlyHostlersConditionsAreWritten(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.beside()
		d.start(t)
		d.besides(t, time.Minute, "as long as the kubelet has not registered", 7)
		if _, _, connected, err := d.Current(); !connected || err != nil || d.stored(t) != nil {
			t.Errorf("Current() = %v, %v, stored %v, want nothing amiss, and no Node", connected, err, d.stored(t))
		}
		if s := d.NodeState(); !strings.Contains(s.Waits, "set node.name") {
			t.Errorf("NodeState() = %+v, want that it says what may be amiss", s)
		}
		theirs := d.kubelets()
		d.client.Create(theirs)
		d.besides(t, 10*time.Second, "after the kubelet has registered", 8)
		n := d.stored(t)
		if len(n.Labels) != 1 || len(n.Annotations) != 0 || n.Status.Addresses[0].Address != "kubelets" || len(n.Status.Conditions) != 3 ||
			n.Status.Conditions[0] != theirs.Status.Conditions[0] || n.Status.Conditions[1] != theirs.Status.Conditions[1] {
			t.Errorf("the Node is %+v, want the kubelet's word untouched, and hostler's one condition", n)
		}
		if s := d.NodeState(); s.Waits != "" {
			t.Errorf("NodeState() = %+v, want nothing waited for", s)
		}
		if c := n.Status.Conditions[2]; c.Type != status.ShutdownProtected || c.Status != corev1.ConditionTrue {
			t.Errorf("hostler's condition is %+v, want %s", c, status.ShutdownProtected)
		}
		d.besides(t, d.o.Rewrite-10*time.Second, "as long as nothing changes", 8)
		d.besides(t, 20*time.Second, "after the report interval", 9)
		d.set(func() { d.guard = shutdown.Status{State: shutdown.Disarmed, Reason: "no logind"} })
		d.Changed()
		d.besides(t, 0, "after a change", 10)
		if want := []string{"hostler.io/ShutdownProtected=True", "hostler.io/ShutdownProtected=False"}; !slices.Equal(d.counted, want) {
			t.Errorf("transitions = %v, want %v: the kubelet reports the others", d.counted, want)
		}
	})
}

func TestARestartBesideAKubeletIsNoNews(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.beside()
		d.client.Create(d.kubelets())
		if err := d.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		before := d.stored(t).Status.Conditions[2]
		time.Sleep(time.Hour)
		next := d.again(t, "one")
		next.beside()
		if err := next.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		after := d.stored(t).Status.Conditions[2]
		if !after.LastTransitionTime.Equal(&before.LastTransitionTime) || len(next.counted) != 0 || len(next.o.Recorder.Queued()) != 0 {
			t.Errorf("after a restart the condition is %+v, transitions %v, Events %v, want it since %v and no news", after, next.counted, next.o.Recorder.Queued(), before.LastTransitionTime)
		}
	})
}

func TestANodeOfAnotherMachineIsNotWrittenBesideAKubelet(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.beside()
		theirs := d.kubelets()
		theirs.Status.NodeInfo.MachineID = "another"
		d.client.Create(theirs)
		if err := d.once(t.Context(), nil); err == nil || len(d.stored(t).Status.Conditions) != 2 {
			t.Errorf("a round = %v, conditions %v, want it refused", err, d.stored(t).Status.Conditions)
		}
	})
}

// The control plane has only hostler's own Node.
func TestBesideAKubeletNothingIsWrittenToAControlPlaneOfHostlersOwn(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.beside()
		d.o.Client = struct{ controlplane.Client }{d.client}
		d.start(t)
		time.Sleep(time.Hour)
		if n := d.client.Calls(controlplanetest.Any); n != 0 {
			t.Errorf("%d calls, want none", n)
		}
		if !slices.Contains(d.counted, "Ready=True") {
			t.Errorf("transitions = %v, want all of them: nothing else reports them there", d.counted)
		}
	})
}

func TestTheNodeFollowsAKubeletThatAppearsAndDisappears(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.o.Beside = func() bool { d.mu.Lock(); defer d.mu.Unlock(); return !d.mine }
		d.start(t)
		d.set(func() { d.mine = false })
		d.Changed()
		d.after(t, time.Hour, "with a kubelet", 1, 1)
		if n := d.client.Calls(controlplanetest.UpdateConditions); n < 10 || n > 14 {
			t.Errorf("conditions written %d times within an hour, want once in each report interval", n)
		}
		d.set(func() { d.mine = true })
		d.Changed()
		synctest.Wait()
		d.after(t, 0, "without it", 2, 2)
	})
}

func TestTheirsReportsAKubeletsStatus(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.beside()
		theirs := d.kubelets()
		theirs.Status.NodeInfo.KubeletVersion = status.KubeletVersion("1.2.3")
		d.client.Create(theirs)
		d.start(t)
		expect := func(when string, want bool) {
			t.Helper()
			time.Sleep(d.o.Rewrite + d.o.Update)
			synctest.Wait()
			d.mu.Lock()
			defer d.mu.Unlock()
			if len(d.theirs) == 0 || d.theirs[len(d.theirs)-1] != want {
				t.Errorf("%s it is reported to have one: %v, want %t at last", when, d.theirs, want)
			}
		}
		expect("before the kubelet has written", false)
		if err := d.client.Edit(t.Context(), nodeName, func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.3" }); err != nil {
			t.Fatal(err)
		}
		expect("after it has", true)
		if err := d.client.Leave(t.Context(), nodeName, controlplane.Identity{}); err != nil {
			t.Fatal(err)
		}
		expect("once somebody has deleted the Node", false)
	})
}

func TestLeftoversOnAKubeletsNodeAreRemoved(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.beside()
		theirs := d.kubelets()
		theirs.Status.NodeInfo.KubeletVersion = status.KubeletVersion("1.2.3") // the kubelet has not written it yet
		theirs.Status.Conditions = append(theirs.Status.Conditions,
			corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: status.ReasonNoAddress},
			corev1.NodeCondition{Type: "hostler.io/Former", Status: corev1.ConditionTrue, Reason: "Former"},
		)
		d.client.Create(theirs)
		d.start(t)
		d.besides(t, 0, "before the kubelet has written", 1)
		if n := d.stored(t); len(n.Status.Conditions) != 5 {
			t.Errorf("conditions are %v, want none gone: they are hostler's word as yet", n.Status.Conditions)
		}
		kubelet := func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.3" }
		if err := d.client.Edit(t.Context(), nodeName, kubelet); err != nil {
			t.Fatal(err)
		}
		d.besides(t, d.o.Rewrite+d.o.Update, "after the report interval", 3)
		var types []corev1.NodeConditionType
		for _, c := range d.stored(t).Status.Conditions {
			types = append(types, c.Type)
		}
		if want := []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeReady, status.ShutdownProtected}; !slices.Equal(types, want) {
			t.Errorf("conditions are %v, want %v", types, want)
		}
		plugin := func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "CalicoIsUp"})
		}
		if err := d.client.Edit(t.Context(), nodeName, plugin); err != nil {
			t.Fatal(err)
		}
		d.besides(t, d.o.Rewrite+d.o.Update, "after a network plugin has written it", 4)
		if n := d.stored(t); len(n.Status.Conditions) != 4 {
			t.Errorf("conditions are %v, want the network plugin's among them", n.Status.Conditions)
		}
	})
}
