package lifecycle_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane/controllers/lifecycle"
)

// fleet is a simulated fleet with one controller. The controller sometimes restarts, and then knows
// only what is stored.
type fleet struct {
	*rand.Rand
	now    time.Time
	nodes  map[string]*corev1.Node
	ended  map[string]time.Time // when Leases ended
	memory map[string]time.Time // LastTainted
	policy lifecycle.Policy

	taintedAt map[string][]time.Time // by zone
}

func newFleet(seed uint64) *fleet {
	f := &fleet{
		Rand: rand.New(rand.NewPCG(seed, 1)), now: noon, nodes: map[string]*corev1.Node{}, ended: map[string]time.Time{},
		memory: map[string]time.Time{}, policy: lifecycle.DefaultPolicy(), taintedAt: map[string][]time.Time{},
	}
	zones := 1 + f.IntN(3)
	for i := range 3 + f.IntN(70) {
		name := fmt.Sprintf("n%03d", i)
		f.nodes[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: "u", Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprintf("z%d", f.IntN(zones))},
		}}
		f.report(name, corev1.ConditionTrue)
	}
	return f
}

// report writes what a live host writes.
func (f *fleet) report(name string, ready corev1.ConditionStatus) {
	node := f.nodes[name]
	delete(f.ended, name)
	conditions := []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		conditions = append(conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse})
	}
	conditions[0].LastTransitionTime = metav1.NewTime(f.now.Truncate(time.Second))
	if old := node.Status.Conditions; len(old) > 0 && old[0].Status == ready {
		conditions[0].LastTransitionTime = old[0].LastTransitionTime
	}
	node.Status.Conditions = conditions
}

func (f *fleet) facts() lifecycle.Facts {
	facts := lifecycle.Facts{LastTainted: f.memory, Confirmed: f.now}
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		facts.Hosts = append(facts.Hosts, lifecycle.HostOf(f.nodes[name], f.ended[name]))
	}
	return facts
}

// step lets one event happen to one host.
func (f *fleet) step() {
	name := slices.Sorted(maps.Keys(f.nodes))[f.IntN(len(f.nodes))]
	switch f.IntN(6) {
	case 0, 1, 2:
		if f.ended[name].IsZero() {
			f.ended[name] = f.now
		}
	case 3:
		f.report(name, corev1.ConditionFalse)
	default:
		f.report(name, corev1.ConditionTrue)
	}
}

// decide decides and executes the decision; some writes fail.
func (f *fleet) decide() lifecycle.Decision {
	d := lifecycle.Decide(f.facts(), f.policy, f.now)
	for _, c := range d.Now {
		if c.NoExecute() {
			f.memory[c.Zone] = f.now
		}
		if f.IntN(10) == 0 {
			continue // this write fails
		}
		c.Apply(f.nodes[c.Node], f.now)
		if c.NoExecute() {
			f.taintedAt[c.Zone] = append(f.taintedAt[c.Zone], f.now)
		}
	}
	return d
}

func TestTaintsNeverExceedTheRateAcrossRestarts(t *testing.T) {
	interval := time.Duration(float64(time.Second) / lifecycle.DefaultPolicy().EvictionRate)
	tainted := 0
	for seed := range uint64(20) {
		f := newFleet(seed)
		for range 400 {
			for range f.IntN(3) {
				f.step()
			}
			if f.IntN(5) == 0 {
				f.memory = map[string]time.Time{} // a restart
			}
			f.decide()
			f.now = f.now.Add(time.Duration(f.IntN(3000)) * time.Millisecond)
		}
		for zone, times := range f.taintedAt {
			tainted += len(times)
			for i := 1; i < len(times); i++ {
				if gap := times[i].Sub(times[i-1]); gap < interval {
					t.Fatalf("seed %d: zone %s: two Nodes got NoExecute taints within %v, want at least %v", seed, zone, gap, interval)
				}
			}
		}
	}
	if tainted < 400 {
		t.Errorf("only %d taints were set: the test shows little", tainted)
	}
}

func TestARestartChangesNoDueTime(t *testing.T) {
	compared := 0
	for seed := range uint64(20) {
		f := newFleet(seed)
		for range 200 {
			for range f.IntN(3) {
				f.step()
			}
			f.decide()
			f.now = f.now.Add(time.Duration(f.IntN(3000)) * time.Millisecond)
		}
		// A failed write counts only in the memory of the process that tried it.
		facts := f.facts()
		facts.LastTainted = nil
		for zone, at := range f.memory {
			if times := f.taintedAt[zone]; len(times) > 0 && times[len(times)-1].Equal(at) {
				continue
			}
			delete(f.memory, zone)
		}
		before := lifecycle.Decide(f.facts(), f.policy, f.now)
		after := lifecycle.Decide(facts, f.policy, f.now)
		if got, want := describe(after), describe(before); !slices.Equal(got, want) {
			t.Errorf("seed %d: after a restart the plan is\n%v\nwant\n%v", seed, got, want)
		}
		compared += len(before.Pending)
	}
	if compared < 20 {
		t.Errorf("only %d pending taints were compared: the test shows little", compared)
	}
}

func TestEveryDueTaintIsSetOrWithdrawn(t *testing.T) {
	for seed := range uint64(20) {
		f := newFleet(seed)
		for range 200 {
			f.step()
			f.decide()
			f.now = f.now.Add(time.Duration(f.IntN(3000)) * time.Millisecond)
		}
		// From now on, only decisions are executed, at the times that they name.
		for range 3000 {
			d := f.decide()
			if len(d.Now) == 0 && d.Next.IsZero() {
				break
			}
			f.now = f.now.Add(time.Millisecond)
			if d.Next.After(f.now) {
				f.now = d.Next
			}
		}
		d := lifecycle.Decide(f.facts(), f.policy, f.now)
		if len(d.Now) > 0 {
			t.Errorf("seed %d: still to do: %v", seed, describe(d))
		}
		for _, p := range d.Pending {
			if !p.Due.IsZero() {
				t.Errorf("seed %d: %s: a taint stays due at %v", seed, p.Node, p.Due)
			}
		}
		checkEnd(t, seed, f, d)
	}
}

// checkEnd checks the final state of each Node.
func checkEnd(t *testing.T, seed uint64, f *fleet, d lifecycle.Decision) {
	t.Helper()
	paused := map[string]bool{}
	for _, p := range d.Pending {
		paused[p.Node] = true
	}
	for name, node := range f.nodes {
		ready, dead := node.Status.Conditions[0].Status, !f.ended[name].IsZero()
		if dead != (ready == corev1.ConditionUnknown) {
			t.Errorf("seed %d: %s: Ready = %s, dead = %v", seed, name, ready, dead)
		}
		has := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute })
		if want := ready != corev1.ConditionTrue && !paused[name]; has != want {
			t.Errorf("seed %d: %s is %s: NoExecute taint = %v, want %v", seed, name, ready, has, want)
		}
		for _, taint := range node.Spec.Taints {
			if taint.TimeAdded == nil {
				t.Errorf("seed %d: %s: taint %s has no time", seed, name, taint.ToString())
			}
		}
	}
}

func TestATaintKeepsItsTimeOverRestarts(t *testing.T) {
	f := newFleet(1)
	for range 300 {
		f.step()
		before := map[string]metav1.Time{}
		for name, node := range f.nodes {
			for _, taint := range node.Spec.Taints {
				before[name+taint.Key+string(taint.Effect)] = *taint.TimeAdded
			}
		}
		f.memory = map[string]time.Time{}
		d := lifecycle.Decide(f.facts(), f.policy, f.now)
		f.decide()
		for name, node := range f.nodes {
			for _, taint := range node.Spec.Taints {
				removed := slices.ContainsFunc(d.Now, func(c lifecycle.Change) bool {
					return c.Node == name && slices.ContainsFunc(c.Remove, func(r corev1.Taint) bool { return r.MatchTaint(&taint) })
				})
				was, had := before[name+taint.Key+string(taint.Effect)]
				if had && !removed && !was.Equal(taint.TimeAdded) {
					t.Errorf("%s: taint %s: timeAdded %v became %v", name, taint.ToString(), was, taint.TimeAdded)
				}
			}
		}
		f.now = f.now.Add(time.Second)
	}
}
