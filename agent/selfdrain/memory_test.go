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
func reloaded(t *testing.T, m selfdrain.Memory, boot string, at selfdrain.Instant) selfdrain.Memory {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var stored selfdrain.Memory
	if err := json.Unmarshal(text, &stored); err != nil {
		t.Fatal(err)
	}
	return selfdrain.Restore(stored, boot, of, at)
}

func TestTheStartOfATaint(t *testing.T) {
	const hour = time.Hour
	at := selfdrain.Instant{Boot: 10 * hour, Wall: noon}
	for name, c := range map[string]struct {
		added time.Time
		first bool
		want  time.Duration
	}{
		"one that appears counts from now, whatever its time":         {noon.Add(-hour), false, 10 * hour},
		"also if that is in the future":                               {noon.Add(hour), false, 10 * hour},
		"and if it has none":                                          {time.Time{}, false, 10 * hour},
		"one that was there at the start counts from when it was set": {noon.Add(-hour), true, 9 * hour},
		"also if that was before the boot":                            {noon.Add(-20 * hour), true, -10 * hour},
		"one without a time counts from now":                          {time.Time{}, true, 10 * hour},
		"one of the future never counts from later than now":          {noon.Add(hour), true, 10 * hour},
	} {
		var m selfdrain.Memory
		if !m.See([]corev1.Taint{noExecute("a", c.added), {Key: "b", Effect: corev1.TaintEffectNoSchedule}}, at, c.first) {
			t.Errorf("%s: See() = false, want that something changed", name)
		}
		if len(m.Taints) != 1 || m.Taints[0].Since != c.want || m.Taints[0].FoundAt != at.Boot {
			t.Errorf("%s: Taints = %+v, want one since %v", name, m.Taints, c.want)
		}
		later := selfdrain.Instant{Boot: 11 * hour, Wall: noon.Add(-24 * hour)}
		if m.See([]corev1.Taint{noExecute("a", c.added)}, later, false) || m.Taints[0].Since != c.want {
			t.Errorf("%s: seen again, Taints = %+v, want them unchanged", name, m.Taints)
		}
	}
}

// TestAClockThatIsNotSetDrainsNobody has a clock that is a year ahead after the boot, until the network sets it. A taint
// counts from now on then, after the boot and for a new agent.
func TestAClockThatIsNotSetDrainsNobody(t *testing.T) {
	at := selfdrain.Instant{Boot: time.Minute, Wall: noon.Add(365 * 24 * time.Hour), Unset: true}
	var found, known selfdrain.Memory
	found.See([]corev1.Taint{noExecute("a", noon)}, at, true)
	known.Boot = boot
	known.See([]corev1.Taint{noExecute("a", noon), noExecute("b", time.Time{})}, selfdrain.Instant{Boot: time.Hour, Wall: noon}, false)
	for name, m := range map[string]selfdrain.Memory{"found": found, "known from before the boot": reloaded(t, known, "two", at)} {
		for _, taint := range m.Taints {
			if taint.Since != at.Boot || taint.FoundAt != at.Boot {
				t.Errorf("%s: %+v, want that it counts from %v", name, taint, at.Boot)
			}
		}
		if len(m.Taints) == 0 {
			t.Errorf("%s: no taint, want that it is kept", name)
		}
	}
}

func TestRestoreAfterARestart(t *testing.T) {
	at := selfdrain.Instant{Boot: time.Hour, Wall: noon}
	var m selfdrain.Memory
	m.Boot = boot
	m.See([]corev1.Taint{noExecute("timed", noon.Add(-time.Minute)), noExecute("untimed", time.Time{})}, at, false)
	m.Renewed(of, 40*time.Second)
	m.Lost(50 * time.Minute)
	m.Drain = &selfdrain.Drain{Trigger: "taint", Cause: "taint timed:NoExecute", StartedAt: noon}
	m.Drained([]selfdrain.Cause{{Trigger: "lease-lost"}, {Trigger: "taint", Taint: m.Taints[1]}})
	if m.Drain != nil || !m.Loss.Drained || m.Taints[0].Drained || !m.Taints[1].Drained {
		t.Errorf("memory = %+v, want the second taint and the loss done with", m)
	}
	m.Drain = &selfdrain.Drain{Trigger: "taint", Cause: "taint timed:NoExecute", StartedAt: noon}

	later := selfdrain.Instant{Boot: 2 * time.Hour, Wall: noon.Add(-1000 * time.Hour)}
	got := reloaded(t, m, boot, later)
	if got.Taints[0] != m.Taints[0] || got.Taints[1] != m.Taints[1] || *got.Loss != *m.Loss || *got.Drain != *m.Drain || *got.Lease != *m.Lease {
		t.Errorf("after a restart: %+v, want all as it was, whatever the clock says", got)
	}

	rebooted := selfdrain.Instant{Boot: time.Minute, Wall: noon.Add(3 * time.Minute)}
	for name, boot := range map[string]string{"another boot": "two", "a boot without a name": boot} {
		got = reloaded(t, m, boot, rebooted)
		if got.Loss != nil || got.Drain != nil || got.Lease == nil {
			t.Errorf("after %s: %+v, want a host that had a Lease, and no loss", name, got)
		}
		if a, b := got.Taints[0], got.Taints[1]; a.Since != -3*time.Minute || b.Since != -2*time.Minute || a.FoundAt != time.Minute || b.Drained {
			t.Errorf("after %s: Taints = %+v, want them since they were set, or first seen, by the clock, and not done with", name, got.Taints)
		}
	}

	elsewhere := selfdrain.Restore(m, boot, "kubernetes/node-a", later)
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
	step  time.Duration // error of the host's wall clock
	since time.Duration // boot: true time at which it began
	boots int

	memory selfdrain.Memory
	seen   bool // by this agent

	taint    *corev1.Taint // on the Node; nil if there is none
	earliest time.Duration // true times between which the host must be drained
	latest   time.Duration
	judged   bool // whether they are known
}

func (m *model) at() selfdrain.Instant {
	return selfdrain.Instant{Boot: m.now - m.since, Wall: noon.Add(m.now + m.step)}
}

func (m *model) boot() string { return fmt.Sprint("boot ", m.boots) }

// bounds sets the times of a drain for a taint that an agent judges by the wall clock.
func (m *model) bounds() {
	m.judged, m.latest = true, m.now+toleration
	m.earliest = m.now
	if m.step == 0 && m.taint.TimeAdded != nil { // the exact time is known
		due := max(m.now, m.taint.TimeAdded.Sub(noon)+toleration)
		m.earliest, m.latest = due, due
	}
}

func (m *model) look() {
	first := !m.seen
	m.seen = true
	var list []corev1.Taint
	if m.taint != nil {
		list = append(list, *m.taint)
		if !m.judged {
			if first {
				m.bounds()
			} else {
				m.judged, m.earliest, m.latest = true, m.now+toleration, m.now+toleration
			}
		}
	}
	m.memory.See(list, m.at(), first)
}

// For any sequence of changes to taints, clocks, agents and boots, the host is drained in time, and
// not too early.
func TestHistories(t *testing.T) {
	policy := selfdrain.Policy{OnTaint: true, Toleration: toleration}
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := &model{}
		m.memory.Boot = m.boot()
		history := ""
		for range 40 {
			what := r.IntN(8)
			switch what {
			case 0:
				if m.taint == nil {
					t := noExecute("a", time.Time{})
					if r.IntN(2) == 0 {
						t = noExecute("a", noon.Add(m.now.Truncate(time.Second)))
					}
					m.taint, m.judged = &t, false
				}
			case 1:
				m.taint, m.judged = nil, false
				m.look() // otherwise another taint without a time counts as this one
			case 2:
				m.step = time.Duration(r.IntN(3)-1) * time.Hour
			case 3:
				m.memory, m.seen = reloaded(t, m.memory, m.boot(), m.at()), false
			case 4:
				if r.IntN(3) == 0 {
					m.boots, m.since, m.seen = m.boots+1, m.now, false
					had := len(m.memory.Taints) > 0
					m.memory = reloaded(t, m.memory, m.boot(), m.at())
					if had && m.taint != nil {
						m.bounds()
						if m.taint.TimeAdded == nil {
							m.earliest = m.now
						}
					}
				}
			case 5, 6:
				m.now += time.Duration(r.Int64N(int64(3 * time.Minute)))
			}
			if what != 4 && what != 3 || r.IntN(2) == 0 { // the control plane does not always answer
				m.look()
			}
			history += fmt.Sprintf(" %d@%v", what, m.now.Round(time.Second))
			d := selfdrain.Decide(selfdrain.Facts{Taints: m.memory.Taints}, policy, m.at().Boot)
			due := len(d.Causes) == 1 && d.Causes[0].State == selfdrain.Due
			switch {
			case m.taint == nil && len(d.Causes) > 0 && m.seen:
				t.Fatalf("seed %d:%s: %s without a taint", seed, history, texts(d))
			case m.taint == nil || !m.judged:
			case len(d.Causes) != 1:
				t.Fatalf("seed %d:%s: the taint is lost: %s", seed, history, texts(d))
			case due && m.now < m.earliest-time.Second:
				t.Fatalf("seed %d:%s: due at %v, want from %v on", seed, history, m.now, m.earliest)
			case !due && m.now >= m.latest+time.Second:
				t.Fatalf("seed %d:%s: not due at %v, want from %v on: %s", seed, history, m.now, m.latest, texts(d))
			}
		}
	}
}
