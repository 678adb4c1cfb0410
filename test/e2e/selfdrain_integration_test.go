//go:build integration

package e2e_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/selfdrain"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

// maintenanceTaint is a taint that a person sets so that pods leave a Node.
var maintenanceTaint = corev1.Taint{Key: "example.com/maintenance", Value: "yes", Effect: corev1.TaintEffectNoExecute}

// taint replaces the taints of the stored Node.
func (f etcdFleet) taint(name string, taints ...corev1.Taint) {
	f.t.Helper()
	node := f.node(name)
	node.Spec.Taints = taints
	text, err := json.Marshal(node)
	check(f.t, err)
	f.ctl("put", "/hostler/nodes/"+name, string(text))
}

// selfDrain waits until the first scheduled drain of the host is in that state.
func (a *agent) selfDrain(state selfdrain.State) selfdrain.Upcoming {
	a.t.Helper()
	s := a.await("the drain is "+string(state), func(s api.Status) bool { return len(s.SelfDrains) > 0 && s.SelfDrains[0].State == state })
	return s.SelfDrains[0]
}

func (a *agent) noSelfDrain() {
	a.t.Helper()
	a.await("no drain is needed", func(s api.Status) bool { return len(s.SelfDrains) == 0 })
}

// Leases of an agent that drains itself: a busy machine must not lose the first one by itself.
const (
	lasts = "duration: 1h, renewInterval: 1s"
	ends  = "duration: 2s, renewInterval: 500ms"
)

// drainsItself returns the settings of an agent in etcd that drains itself after a time.
func (f etcdFleet) drainsItself(name, toleration, lease string) string {
	return f.settings(name, ", onTaint: drain, toleration: "+toleration) + "lease: {" + lease + ", onLost: drain}\nstatus: {updateInterval: 1s}\nshutdown: {gracePeriod: 31m, gracePeriodCriticalPods: 1m}\n"
}

// reload makes the agent use other settings.
func (a *agent) reload(settings string) {
	a.t.Helper()
	a.configure(settings)
	a.prints("reload")
}

func wantOutcomes(t testing.TB, r *journal.Record, trigger journal.Trigger, want ...string) {
	t.Helper()
	if r == nil || r.Trigger != trigger {
		t.Fatalf("drain = %+v, want one with trigger %s", r, trigger)
	}
	var got []string
	for _, p := range r.Pods {
		got = append(got, p.Name+" "+string(p.Outcome))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("pods of the drain = %q, want %q", got, want)
	}
}

func TestATaintDrainsTheHost(t *testing.T) {
	f := newFleet(t, etcd.Options{})
	const name = "rack1-node1"
	polite := pod(t, "polite", nil, 0, lab.ServeFor(0))
	stubborn := pod(t, "stubborn", nil, time.Second, lab.IgnoreTerm())
	database := pod(t, "database", critical, 0, lab.ServeFor(0))
	before, politeBefore := mainOf(t, database), mainOf(t, polite)
	a := startAgent(t, f.drainsItself(name, "10m", lasts))
	a.awaitReady(corev1.ConditionTrue)

	f.taint(name, maintenanceTaint)
	due := a.selfDrain(selfdrain.Scheduled)
	if due.Trigger != journal.TriggerTaint || due.DrainsAt.Sub(due.Since) != 10*time.Minute {
		t.Errorf("selfDrains = %+v, want one ten minutes after the taint", due)
	}
	mentions(t, "hostler status", strings.Join(strings.Fields(a.screen()), " "), "taint example.com/maintenance=yes:NoExecute for ", "to prevent it, remove the taint from the Node (etcd: /usr/share/doc/hostler/docs/reference/etcd.md, section Taints), or set node.onTaint: none and run `hostler reload`")
	a.kill()
	a.start()
	if again := a.selfDrain(selfdrain.Scheduled); again.DrainsAt.Sub(due.DrainsAt).Abs() > 2*time.Second { // both are rounded
		t.Errorf("after a restart the drain is at %v, want at %v as before", again.DrainsAt, due.DrainsAt)
	}
	f.taint(name)
	a.noSelfDrain()
	untouched(t, polite, politeBefore)

	a.reload(f.drainsItself(name, "2s", lasts))
	f.taint(name, maintenanceTaint)
	if _, code := ended(t, polite); code != 0 {
		t.Errorf("exit code of the polite pod = %d, want 0", code)
	}
	ended(t, stubborn)
	a.selfDrain(selfdrain.Drained)
	s := a.status()
	wantOutcomes(t, s.Shutdown.Drained, journal.TriggerTaint, "database skipped", "polite stopped", "stubborn killed")
	if cordoned(t, s) || s.Shutdown.Last != nil {
		t.Errorf("status = %+v, want no cordon and no shutdown on record", s.Shutdown)
	}
	untouched(t, database, before)
	mentions(t, "hostler ps --last-shutdown", a.prints("ps", "--last-shutdown"), "drain for taint example.com/maintenance=yes:NoExecute ")
	eventually(t, "Events report all of it", func() bool {
		events := f.ctl("get", "--prefix", "/hostler/events/"+name+"/")
		return !slices.ContainsFunc([]string{"DrainScheduled", "DrainWithdrawn", "DrainStarted", "DrainFinished"}, func(reason string) bool { return !strings.Contains(events, reason) })
	})

	// A container that a person starts there anyway continues to run, whatever happens to the agent.
	again := pod(t, "again", nil, 0, lab.ServeFor(0))
	againBefore := mainOf(t, again)
	a.kill()
	a.start()
	a.awaitReady(corev1.ConditionTrue)
	a.selfDrain(selfdrain.Drained)
	f.taint(name)
	a.noSelfDrain()
	untouched(t, again, againBefore)
	a.stop()
}

func TestADrainForATaintGoesOnOrIsUndone(t *testing.T) {
	f := newFleet(t, etcd.Options{})
	const name = "rack1-node1"
	polite := pod(t, "polite", nil, 0, lab.ServeFor(0))
	greedy := pod(t, "greedy", nil, 30*time.Minute, lab.IgnoreTerm())
	before := mainOf(t, greedy)
	a := startAgent(t, f.drainsItself(name, "1s", lasts))
	a.awaitReady(corev1.ConditionTrue)
	f.taint(name, maintenanceTaint)
	ended(t, polite)
	started := a.await("one pod has stopped, and one has not", func(s api.Status) bool {
		r := s.Shutdown.ManualDrain
		return r != nil && len(r.Pods) == 2 && slices.ContainsFunc(r.Pods, func(p journal.PodRecord) bool { return p.Outcome == journal.Stopped })
	}).Shutdown.ManualDrain
	mentions(t, "hostler status", a.screen(), "for taint example.com/maintenance=yes:NoExecute, 1 of 2 pods stopped")

	a.kill()
	a.start()
	resumed := a.await("the drain continues", func(s api.Status) bool { return s.Shutdown.ManualDrain != nil }).Shutdown.ManualDrain
	if !resumed.StartedAt.Equal(started.StartedAt) {
		t.Errorf("the drain of %v continues as one of %v", started.StartedAt, resumed.StartedAt)
	}
	a.stop()
	f.taint(name) // while no agent runs
	a.start()
	a.await("the drain is over", func(s api.Status) bool {
		return s.Shutdown.ManualDrain == nil && s.Shutdown.Drained != nil && len(s.SelfDrains) == 0 && !s.Shutdown.Drained.CancelledAt.IsZero()
	})
	untouched(t, greedy, before)
	eventually(t, "the drain is withdrawn", func() bool { return len(a.logLines("drain withdrawn")) > 0 })
	mentions(t, "hostler status", strings.Join(strings.Fields(a.screen()), " "), "withdrawn, its cause ended; 1 pod stopped, which hostler cannot start: see `hostler ps --last-shutdown`")
	wantOutcomes(t, a.status().Shutdown.Drained, journal.TriggerTaint, "greedy left", "polite stopped")
	a.stop()
}

func TestALostLeaseDrainsTheHost(t *testing.T) {
	f := newFleet(t, etcd.Options{})
	const name = "rack1-node1"
	polite := pod(t, "polite", nil, 0, lab.ServeFor(0))
	database := pod(t, "database", critical, 0, lab.ServeFor(0))
	before, politeBefore := mainOf(t, database), mainOf(t, polite)
	a := startAgent(t, f.drainsItself(name, "10m", ends))
	a.awaitReady(corev1.ConditionTrue)
	eventually(t, "the host is alive", func() bool { return f.alive(name) })

	check(t, f.Members[0].Kill())
	a.await("the lease has ended", func(s api.Status) bool { return s.ControlPlane.Overdue != "" })
	due := a.selfDrain(selfdrain.Scheduled)
	if due.Trigger != journal.TriggerLeaseLost || due.DrainsAt.Sub(due.Since) != 10*time.Minute+2*time.Second {
		t.Errorf("selfDrains = %+v, want one ten minutes after the end of the lease", due)
	}
	a.kill()
	a.start()
	if again := a.selfDrain(selfdrain.Scheduled); again.DrainsAt.Sub(due.DrainsAt).Abs() > 2*time.Second { // both are rounded
		t.Errorf("after a restart the drain is at %v, want at %v as before", again.DrainsAt, due.DrainsAt)
	}
	check(t, f.Members[0].Start())
	check(t, f.Ready(t.Context(), f.Members[0]))
	a.noSelfDrain()
	untouched(t, polite, politeBefore)

	check(t, f.Members[0].Kill())
	a.await("the lease has ended", func(s api.Status) bool { return s.ControlPlane.Overdue != "" })
	a.kill()
	a.configure(f.drainsItself(name, "3s", ends))
	a.start()
	if _, code := ended(t, polite); code != 0 {
		t.Errorf("exit code of the polite pod = %d, want 0", code)
	}
	a.selfDrain(selfdrain.Drained)
	wantOutcomes(t, a.status().Shutdown.Drained, journal.TriggerLeaseLost, "database skipped", "polite stopped")
	mentions(t, "hostler ps --last-shutdown", a.prints("ps", "--last-shutdown"), "drain for lease not renewed ")
	check(t, f.Members[0].Start())
	check(t, f.Ready(t.Context(), f.Members[0]))
	a.noSelfDrain()
	untouched(t, database, before)
	a.stop()
}

func TestATaintOfAClusterDrainsTheHost(t *testing.T) {
	c := newCluster(t, kube.Options{})
	polite := pod(t, "polite", nil, 0, lab.ServeFor(0))
	politeBefore := mainOf(t, polite)
	settings := c.asNode("tainted", ", onTaint: drain, toleration: 10m") + phases
	a := startAgent(t, settings)
	eventually(t, "the node is Ready", c.ready("tainted"))
	taint := fmt.Sprintf("%s=%s:NoExecute", maintenanceTaint.Key, maintenanceTaint.Value)
	c.kubectl("taint", "node", "tainted", taint)
	due := a.selfDrain(selfdrain.Scheduled)
	mentions(t, "the hint", due.Hint, "`kubectl taint nodes tainted example.com/maintenance:NoExecute-`")
	c.kubectl("taint", "nodes", "tainted", "example.com/maintenance:NoExecute-")
	a.noSelfDrain()
	untouched(t, polite, politeBefore)
	a.reload(strings.Replace(settings, "10m", "2s", 1))
	c.kubectl("taint", "node", "tainted", taint)
	ended(t, polite)
	a.selfDrain(selfdrain.Drained)
	wantOutcomes(t, a.status().Shutdown.Drained, journal.TriggerTaint, "polite stopped")
	if refused := c.refusals("tainted"); len(refused) > 0 {
		t.Errorf("the server has refused %q, want nothing", refused)
	}
	a.stop()
}
