package selfdrain_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/selfdrain"
)

const (
	boot       = "one"
	of         = "etcd/node-a"
	toleration = 5 * time.Minute
)

// noon is the start of each history, by a correct clock.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func noExecute(key string, added time.Time) corev1.Taint {
	t := corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}
	if !added.IsZero() {
		at := metav1.NewTime(added)
		t.TimeAdded = &at
	}
	return t
}

// reloaded returns a memory as the next process loads it.
func reloaded(t *testing.T, m selfdrain.Memory, boot string, now time.Duration) selfdrain.Memory {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var stored selfdrain.Memory
	if err := json.Unmarshal(text, &stored); err != nil {
		t.Fatal(err)
	}
	return selfdrain.Restore(stored, boot, of, now)
}

func TestATaintCountsFromWhenItIsFirstSeen(t *testing.T) {
	const hour = time.Hour
	for name, added := range map[string]time.Time{
		"one that is said to be old":           noon.Add(-1000 * hour),
		"one that is said to be of the future": noon.Add(1000 * hour),
		"one without a time":                   {},
	} {
		var m selfdrain.Memory
		if !m.See([]corev1.Taint{noExecute("a", added), {Key: "b", Effect: corev1.TaintEffectNoSchedule}}, 10*hour) {
			t.Errorf("%s: See() = false, want that something changed", name)
		}
		if m.See([]corev1.Taint{noExecute("a", added)}, 11*hour) || len(m.Taints) != 1 || m.Taints[0].Since != 10*hour {
			t.Errorf("%s: seen again, Taints = %+v, want one since %v", name, m.Taints, 10*hour)
		}
		if !m.See([]corev1.Taint{noExecute("a", noon)}, 12*hour) || len(m.Taints) != 1 || m.Taints[0].Since != 12*hour {
			t.Errorf("%s: set again, Taints = %+v, want one since %v", name, m.Taints, 12*hour)
		}
	}
}

func TestRestoreAfterARestart(t *testing.T) {
	var m selfdrain.Memory
	m.Boot = boot
	m.See([]corev1.Taint{noExecute("timed", noon.Add(-time.Minute)), noExecute("untimed", time.Time{})}, time.Hour)
	m.Renewed(of, 40*time.Second)
	m.Lost(50 * time.Minute)
	m.Drain = &selfdrain.Drain{Trigger: "taint", Cause: "taint timed:NoExecute", StartedAt: noon}
	m.Drained([]selfdrain.Cause{{Trigger: "lease-lost"}, {Trigger: "taint", Taint: m.Taints[1]}})
	if m.Drain != nil || !m.Loss.Drained || m.Taints[0].Drained || !m.Taints[1].Drained {
		t.Errorf("memory = %+v, want the second taint and the loss done with", m)
	}
	m.Drain = &selfdrain.Drain{Trigger: "taint", Cause: "taint timed:NoExecute", StartedAt: noon}

	got := reloaded(t, m, boot, 2*time.Hour)
	if got.Taints[0] != m.Taints[0] || got.Taints[1] != m.Taints[1] || *got.Loss != *m.Loss || *got.Drain != *m.Drain || *got.Lease != *m.Lease {
		t.Errorf("after a restart: %+v, want all as it was", got)
	}

	for name, boot := range map[string]string{"another boot": "two", "a boot without a name": boot} {
		got = reloaded(t, m, boot, time.Minute)
		if got.Loss != nil || got.Drain != nil || got.Lease == nil || len(got.Taints) > 0 {
			t.Errorf("after %s: %+v, want a host that had a Lease, and no loss or taint", name, got)
		}
	}

	elsewhere := selfdrain.Restore(m, boot, "kubernetes/node-a", 2*time.Hour)
	if elsewhere.Lease != nil || elsewhere.Loss != nil {
		t.Errorf("with another control plane: %+v, want a host that never had a Lease there", elsewhere)
	}
}

func TestAHostWithoutALeaseCannotLoseIt(t *testing.T) {
	var m selfdrain.Memory
	if m.Lost(0) || m.Loss != nil {
		t.Errorf("Lost() = true, %+v, want nothing", m.Loss)
	}
}

// model is a history of one taint, and the time at which the host must be drained for it.
type model struct {
	now   time.Duration // true time since noon
	since time.Duration // boot: true time at which it began
	boots int

	memory selfdrain.Memory
	taint  *corev1.Taint // on the Node; nil if there is none
	seen   bool          // in this boot
	due    time.Duration // true time, if it was seen
}

func (m *model) boot() string { return fmt.Sprint("boot ", m.boots) }

func (m *model) look() {
	var list []corev1.Taint
	if m.taint != nil {
		list = append(list, *m.taint)
		if !m.seen {
			m.seen, m.due = true, m.now+toleration
		}
	}
	m.memory.See(list, m.now-m.since)
}

// For any sequence of changes to taints, agents and boots, the host is drained when its toleration is over, counted from
// when this boot first saw the taint. What the taint says of its own time does not matter.
func TestHistories(t *testing.T) {
	policy := selfdrain.Policy{OnTaint: true, Toleration: toleration}
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := &model{}
		m.memory.Boot = m.boot()
		history := ""
		for range 40 {
			what := r.IntN(7)
			switch what {
			case 0:
				if m.taint == nil {
					t := noExecute("a", time.Time{})
					if r.IntN(3) > 0 {
						t = noExecute("a", noon.Add(m.now.Truncate(time.Second)+time.Duration(r.IntN(3)-1)*10*time.Hour))
					}
					m.taint = &t
				}
			case 1:
				m.taint, m.seen = nil, false
				m.look() // otherwise another taint without a time counts as this one
			case 2:
				m.memory = reloaded(t, m.memory, m.boot(), m.now-m.since)
			case 3:
				if r.IntN(3) == 0 {
					m.boots, m.since, m.seen = m.boots+1, m.now, false
					m.memory = reloaded(t, m.memory, m.boot(), 0)
				}
			case 4, 5:
				m.now += time.Duration(r.Int64N(int64(3 * time.Minute)))
			}
			if what != 2 && what != 3 || r.IntN(2) == 0 { // the control plane does not always answer
				m.look()
			}
			history += fmt.Sprintf(" %d@%v", what, m.now.Round(time.Second))
			d := selfdrain.Decide(selfdrain.Facts{Taints: m.memory.Taints}, policy, m.now-m.since)
			due := len(d.Causes) == 1 && d.Causes[0].State == selfdrain.Due
			switch {
			case !m.seen && len(d.Causes) > 0:
				t.Fatalf("seed %d:%s: %s without a taint", seed, history, texts(d))
			case m.seen && len(d.Causes) != 1:
				t.Fatalf("seed %d:%s: the taint is lost: %s", seed, history, texts(d))
			case m.seen && due != (m.now >= m.due):
				t.Fatalf("seed %d:%s: at %v due is %v, want it from %v on: %s", seed, history, m.now, due, m.due, texts(d))
			}
		}
	}
}
