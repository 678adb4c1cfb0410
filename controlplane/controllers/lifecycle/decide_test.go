package lifecycle_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/store"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// host returns a Node that is ready and alive, changed by edits.
func host(name, zone string, edits ...func(*lifecycle.Host)) lifecycle.Host {
	h := lifecycle.Host{
		Name: name, UID: "uid-" + "x", Version: "1", Zone: zone, ReadySince: noon.Add(-time.Hour),
		Conditions: lifecycle.Conditions{
			Ready: corev1.ConditionTrue, MemoryPressure: corev1.ConditionFalse, DiskPressure: corev1.ConditionFalse,
			PIDPressure: corev1.ConditionFalse, NetworkUnavailable: corev1.ConditionFalse,
		},
	}
	for _, edit := range edits {
		edit(&h)
	}
	return h
}

// dead makes a host's Lease end that long before noon.
func dead(ago time.Duration) func(*lifecycle.Host) {
	return func(h *lifecycle.Host) { h.DeadAt = noon.Add(-ago) }
}

// unknown makes a host Unknown.
func unknown(h *lifecycle.Host) {
	h.DeadAt, h.ReadySince = noon.Add(-time.Minute), noon.Add(-time.Minute)
	h.Conditions.Ready, h.Conditions.MemoryPressure = corev1.ConditionUnknown, corev1.ConditionUnknown
	h.Conditions.DiskPressure, h.Conditions.PIDPressure = corev1.ConditionUnknown, corev1.ConditionUnknown
	h.Taints = append(h.Taints, taint("unreachable:NoSchedule"))
}

func notReady(h *lifecycle.Host) {
	h.Conditions.Ready = corev1.ConditionFalse
	h.Taints = append(h.Taints, taint("not-ready:NoSchedule"))
}

func excluded(h *lifecycle.Host) { h.Excluded = true }

func with(taints ...string) func(*lifecycle.Host) {
	return func(h *lifecycle.Host) {
		for _, t := range taints {
			h.Taints = append(h.Taints, taint(t))
		}
	}
}

// tainted gives a host its NoExecute taint that long ago.
func tainted(key string, ago time.Duration) func(*lifecycle.Host) {
	return func(h *lifecycle.Host) {
		h.Taints = append(h.Taints, taint(key+":NoExecute"))
		h.Tainted = noon.Add(-ago)
	}
}

func taint(text string) corev1.Taint {
	key, effect, _ := strings.Cut(text, ":")
	return corev1.Taint{Key: "node.kubernetes.io/" + key, Effect: corev1.TaintEffect(effect)}
}

// many returns hosts named PREFIX0, PREFIX1 and so on.
func many(n int, prefix, zone string, edits ...func(*lifecycle.Host)) []lifecycle.Host {
	var hosts []lifecycle.Host
	for i := range n {
		hosts = append(hosts, host(fmt.Sprintf("%s%03d", prefix, i), zone, edits...))
	}
	return hosts
}

// describe returns a decision as text: one line for each change and each pending taint.
func describe(d lifecycle.Decision) []string {
	short := func(t corev1.Taint) string {
		return strings.TrimPrefix(t.Key, "node.kubernetes.io/") + ":" + string(t.Effect)
	}
	var lines []string
	for _, c := range d.Now {
		line := c.Node + ":"
		if c.Unknown {
			line += " Unknown"
		}
		for _, t := range c.Add {
			line += " +" + short(t)
		}
		for _, t := range c.Remove {
			line += " -" + short(t)
		}
		lines = append(lines, line)
	}
	for _, p := range d.Pending {
		when := "paused"
		if !p.Due.IsZero() {
			when = "in " + p.Due.Sub(noon).String()
		}
		lines = append(lines, fmt.Sprintf("%s: %s %s", p.Node, strings.TrimPrefix(p.Taint, "node.kubernetes.io/"), when))
	}
	return lines
}

// join concatenates lists of hosts.
func join(lists ...[]lifecycle.Host) []lifecycle.Host { return slices.Concat(lists...) }

func one(h lifecycle.Host) []lifecycle.Host { return []lifecycle.Host{h} }

// alive are enough hosts of a zone that two dead ones do not disrupt it.
var alive = many(4, "alive", "a")

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		rule   string
		hosts  []lifecycle.Host
		last   map[string]time.Time
		checks bool
		policy func(*lifecycle.Policy)
		want   []string
	}{
		{rule: "a fleet that is healthy is left alone", hosts: alive},
		{rule: "an empty fleet is left alone"},
		{
			rule:  "a host whose Lease has ended is Unknown and tainted at once",
			hosts: join(alive, one(host("h", "a", dead(0)))),
			want:  []string{"h: Unknown +unreachable:NoSchedule +unreachable:NoExecute"},
		},
		{rule: "a host whose Lease ends later is left alone", hosts: join(alive, one(host("h", "a", dead(-time.Second))))},
		{
			rule:  "conditions that are Unknown are not written again",
			hosts: join(alive, one(host("h", "a", unknown, tainted("unreachable", time.Minute)))),
		},
		{
			rule: "a single condition that is not Unknown is marked",
			hosts: join(alive, one(host("h", "a", unknown, tainted("unreachable", time.Minute), func(h *lifecycle.Host) {
				h.Conditions.PIDPressure = corev1.ConditionFalse
			}))),
			want: []string{"h: Unknown"},
		},
		{
			rule:  "a Node that never had a status is marked after its grace period",
			hosts: join(alive, one(lifecycle.Host{Name: "h", Zone: "a", DeadAt: noon})),
			want:  []string{"h: Unknown +unreachable:NoSchedule +unreachable:NoExecute"},
		},
		{rule: "a Node that never had a status is left alone before", hosts: join(alive, one(lifecycle.Host{Name: "h", Zone: "a", DeadAt: noon.Add(time.Second)}))},
		{
			rule:  "a host that is back loses its taints at once",
			hosts: join(alive, one(host("h", "a", with("unreachable:NoSchedule", "unreachable:NoExecute", "not-ready:NoSchedule")))),
			want:  []string{"h: -not-ready:NoSchedule -unreachable:NoSchedule -unreachable:NoExecute"},
		},
		{
			rule:  "a host that reports that it is not ready is tainted",
			hosts: join(alive, one(host("h", "a", func(h *lifecycle.Host) { h.Conditions.Ready = corev1.ConditionFalse }))),
			want:  []string{"h: +not-ready:NoSchedule +not-ready:NoExecute"},
		},
		{
			rule: "pressure, a missing network and a cordon give their NoSchedule taints",
			hosts: join(alive, one(host("h", "a", func(h *lifecycle.Host) {
				c := &h.Conditions
				c.MemoryPressure, c.DiskPressure, c.PIDPressure, c.NetworkUnavailable = corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionTrue
				h.Unschedulable = true
			}))),
			want: []string{"h: +memory-pressure:NoSchedule +disk-pressure:NoSchedule +pid-pressure:NoSchedule +network-unavailable:NoSchedule +unschedulable:NoSchedule"},
		},
		{
			rule:  "they are removed with their cause",
			hosts: join(alive, one(host("h", "a", with("memory-pressure:NoSchedule", "disk-pressure:NoSchedule", "pid-pressure:NoSchedule", "network-unavailable:NoSchedule", "unschedulable:NoSchedule")))),
			want:  []string{"h: -memory-pressure:NoSchedule -disk-pressure:NoSchedule -pid-pressure:NoSchedule -network-unavailable:NoSchedule -unschedulable:NoSchedule"},
		},
		{
			rule:  "pressure that is Unknown is no pressure",
			hosts: join(alive, one(host("h", "a", unknown, tainted("unreachable", time.Minute), with("memory-pressure:NoSchedule")))),
			want:  []string{"h: -memory-pressure:NoSchedule"},
		},
		{
			rule:  "NetworkUnavailable is not marked, and its taint stays",
			hosts: join(alive, one(host("h", "a", dead(0), with("network-unavailable:NoSchedule"), func(h *lifecycle.Host) { h.Conditions.NetworkUnavailable = corev1.ConditionTrue }))),
			want:  []string{"h: Unknown +unreachable:NoSchedule +unreachable:NoExecute"},
		},
		{
			rule:  "the two NoExecute taints replace each other at once",
			hosts: join(alive, one(host("h", "a", dead(0), with("not-ready:NoSchedule", "not-ready:NoExecute"))), one(host("g", "a", func(h *lifecycle.Host) { h.Tainted = noon }))),
			want:  []string{"h: Unknown +unreachable:NoSchedule +unreachable:NoExecute -not-ready:NoSchedule -not-ready:NoExecute"},
		},
		{
			rule: "taints with other keys, other effects or a value are left alone",
			hosts: join(alive, one(host("h", "a", with("unreachable:PreferNoSchedule", "out-of-service:NoExecute", "memory-pressure:NoExecute"), func(h *lifecycle.Host) {
				h.Taints = append(h.Taints, foreign("unreachable:NoExecute"), foreign("unreachable:NoSchedule"))
			}))),
		},
		{
			rule: "a taint with a value stands in the way of ours",
			hosts: join(alive, one(host("h", "a", dead(0), func(h *lifecycle.Host) {
				h.Taints = append(h.Taints, foreign("unreachable:NoExecute"), foreign("unreachable:NoSchedule"))
			}))),
			want: []string{"h: Unknown"},
		},
		{
			rule:  "but not of one with another effect",
			hosts: join(alive, one(host("h", "a", dead(0), func(h *lifecycle.Host) { h.Taints = append(h.Taints, foreign("unreachable:NoSchedule")) }))),
			want:  []string{"h: Unknown +unreachable:NoExecute"},
		},
		{
			rule:  "a host that is Unknown and alive keeps its taints until it reports",
			hosts: join(alive, one(host("h", "a", unknown, tainted("unreachable", time.Minute), func(h *lifecycle.Host) { h.DeadAt = time.Time{} }))),
		},
		{
			rule:  "a host that is Unknown and alive gets no new NoExecute taint",
			hosts: join(alive, one(host("h", "a", unknown, func(h *lifecycle.Host) { h.DeadAt = time.Time{} }))),
		},
		{
			rule:  "one Node of a zone is tainted in ten seconds, the one that failed first comes first",
			hosts: join(many(9, "alive", "a"), one(host("late", "a", notReady, func(h *lifecycle.Host) { h.ReadySince = noon.Add(-time.Minute) })), one(host("early", "a", notReady, func(h *lifecycle.Host) { h.ReadySince = noon.Add(-2 * time.Minute) })), one(host("now", "a", dead(0)))),
			want:  []string{"early: +not-ready:NoExecute", "now: Unknown +unreachable:NoSchedule", "late: not-ready in 10s", "now: unreachable in 20s"},
		},
		{
			rule:  "zones do not wait for each other",
			hosts: join(alive, many(4, "b", "b"), one(host("x", "a", notReady)), one(host("y", "b", notReady))),
			want:  []string{"x: +not-ready:NoExecute", "y: +not-ready:NoExecute"},
		},
		{
			rule:  "the last taint of the zone counts, though its host is back",
			hosts: join(alive, one(host("back", "a", func(h *lifecycle.Host) { h.Tainted = noon.Add(-4 * time.Second) })), one(host("x", "a", notReady))),
			want:  []string{"x: not-ready in 6s"},
		},
		{
			rule:  "the last taint of the zone counts, though its Node was deleted",
			hosts: join(alive, one(host("x", "a", notReady))), last: map[string]time.Time{"a": noon.Add(-3 * time.Second), "b": noon},
			want: []string{"x: not-ready in 7s"},
		},
		{
			rule:  "a time of a taint that lies far in the future does not stop the zone",
			hosts: join(alive, one(host("liar", "a", func(h *lifecycle.Host) { h.Tainted = noon.Add(time.Hour) })), one(host("x", "a", notReady))),
			want:  []string{"x: +not-ready:NoExecute"},
		},
		{
			rule:  "a time of a taint by a clock that is a little ahead counts",
			hosts: join(alive, one(host("back", "a", func(h *lifecycle.Host) { h.Tainted = noon.Add(2 * time.Second) })), one(host("x", "a", notReady))),
			want:  []string{"x: not-ready in 12s"},
		},
		{
			rule:  "a fleet of 50 Nodes evicts nobody of a zone of which 55 percent are not ready",
			hosts: join(many(5, "alive", "a"), many(7, "x", "a", notReady), many(38, "b", "b")),
			want:  []string{"x000: not-ready paused", "x001: not-ready paused", "x002: not-ready paused", "x003: not-ready paused", "x004: not-ready paused", "x005: not-ready paused", "x006: not-ready paused"},
		},
		{
			rule:  "exactly 55 percent disrupt a zone",
			hosts: join(many(9, "alive", "a"), many(11, "x", "a", notReady)),
			want:  []string{"x000: not-ready paused", "x001: not-ready paused", "x002: not-ready paused", "x003: not-ready paused", "x004: not-ready paused", "x005: not-ready paused", "x006: not-ready paused", "x007: not-ready paused", "x008: not-ready paused", "x009: not-ready paused", "x010: not-ready paused"},
		},
		{
			rule:  "a fleet of more than 50 evicts one in 100 seconds there",
			hosts: join(many(2, "alive", "a"), many(3, "x", "a", notReady), many(46, "b", "b")),
			want:  []string{"x000: +not-ready:NoExecute", "x001: not-ready in 1m40s", "x002: not-ready in 3m20s"},
		},
		{
			rule:  "two Nodes that are not ready do not disrupt a zone",
			hosts: join(many(1, "alive", "a"), many(2, "x", "a", notReady)),
			want:  []string{"x000: +not-ready:NoExecute", "x001: not-ready in 10s"},
		},
		{
			rule:  "less than 55 percent do not disrupt a zone",
			hosts: join(many(3, "alive", "a"), many(3, "x", "a", notReady)),
			want:  []string{"x000: +not-ready:NoExecute", "x001: not-ready in 10s", "x002: not-ready in 20s"},
		},
		{
			rule:   "a zone that is all down is paused, if configured",
			policy: func(p *lifecycle.Policy) { p.DeadZone = lifecycle.DeadZonePause },
			hosts:  join(alive, many(2, "x", "b", notReady)),
			want:   []string{"x000: not-ready paused", "x001: not-ready paused"},
		},
		{
			rule:   "but not a zone of one Node",
			policy: func(p *lifecycle.Policy) { p.DeadZone = lifecycle.DeadZonePause },
			hosts:  join(alive, one(host("x", "b", notReady))),
			want:   []string{"x: +not-ready:NoExecute"},
		},
		{
			rule:   "a low rate is one Node in 18 hours",
			policy: func(p *lifecycle.Policy) { p.EvictionRate = 1.0 / 65536 },
			hosts:  join(alive, many(2, "x", "a", notReady)),
			want:   []string{"x000: +not-ready:NoExecute", "x001: not-ready in 18h12m16s"},
		},
		{
			rule:   "a rate that no time can hold is one Node a year",
			policy: func(p *lifecycle.Policy) { p.EvictionRate = 1e-300 },
			hosts:  join(alive, many(2, "x", "a", notReady)),
			want:   []string{"x000: +not-ready:NoExecute", "x001: not-ready in 8784h0m0s"},
		},
		{
			rule:  "a zone that is all down is evicted at the normal rate",
			hosts: join(alive, many(2, "x", "b", notReady)),
			want:  []string{"x000: +not-ready:NoExecute", "x001: not-ready in 10s"},
		},
		{
			rule:  "a zone of one Node is evicted: one host is no sign that the zone is cut off",
			hosts: join(alive, one(host("x", "b", dead(0)))),
			want:  []string{"x: Unknown +unreachable:NoSchedule +unreachable:NoExecute"},
		},
		{
			rule:  "if all zones are down nobody is evicted, and NoExecute taints are removed",
			hosts: join(many(2, "x", "a", notReady, tainted("not-ready", time.Hour)), one(host("y", "b", dead(0)))),
			want:  []string{"x000: -not-ready:NoExecute", "x001: -not-ready:NoExecute", "y: Unknown +unreachable:NoSchedule", "x000: not-ready paused", "x001: not-ready paused", "y: unreachable paused"},
		},
		{
			rule:  "a fleet of one host that is dead is all down",
			hosts: one(host("x", "", dead(0))),
			want:  []string{"x: Unknown +unreachable:NoSchedule", "x: unreachable paused"},
		},
		{
			rule:   "Nodes with the exclude-disruption label do not count for the state of a zone",
			hosts:  join(many(2, "alive", "a", excluded), many(2, "x", "a", notReady), many(4, "b", "b")),
			policy: func(p *lifecycle.Policy) { p.DeadZone = lifecycle.DeadZonePause },
			want:   []string{"x000: not-ready paused", "x001: not-ready paused"},
		},
		{
			rule:  "Nodes with the exclude-disruption label are tainted like others",
			hosts: join(alive, one(host("x", "a", notReady, excluded)), one(host("y", "c", notReady, excluded))),
			want:  []string{"x: +not-ready:NoExecute", "y: +not-ready:NoExecute"},
		},
		{
			rule:   "while more hosts are checked nobody gets a NoExecute taint",
			hosts:  join(alive, one(host("x", "a", notReady)), one(host("y", "b", dead(0)))),
			checks: true,
			want:   []string{"y: Unknown +unreachable:NoSchedule", "x: not-ready paused", "y: unreachable paused"},
		},
		{
			rule:   "a rate of 0 evicts nobody",
			hosts:  join(alive, one(host("x", "a", notReady))),
			policy: func(p *lifecycle.Policy) { p.EvictionRate = 0 },
			want:   []string{"x: not-ready paused"},
		},
	} {
		t.Run(c.rule, func(t *testing.T) {
			policy := lifecycle.DefaultPolicy()
			if c.policy != nil {
				c.policy(&policy)
			}
			d := lifecycle.Decide(lifecycle.Facts{Confirmed: noon, Hosts: c.hosts, LastTainted: c.last, Checking: c.checks}, policy, noon)
			if got := describe(d); !slices.Equal(got, c.want) {
				t.Errorf("Decide() =\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// foreign returns a taint that a person has set.
func foreign(text string) corev1.Taint {
	t := taint(text)
	t.Value = "maintenance"
	return t
}

func TestZonesHaveTheirState(t *testing.T) {
	hosts := join(
		many(4, "n", "normal"), many(2, "d", "down", notReady),
		many(2, "p", "partial"), many(3, "q", "partial", notReady),
		many(1, "e", "empty", excluded), many(1, "s", "single", notReady),
	)
	d := lifecycle.Decide(lifecycle.Facts{Confirmed: noon, Hosts: hosts}, lifecycle.DefaultPolicy(), noon)
	var got []string
	for _, z := range d.Zones {
		got = append(got, fmt.Sprintf("%s %s %d/%d %q", z.Name, z.State, z.NotReady, z.Nodes, z.Paused))
	}
	want := []string{
		`down FullDisruption 2/2 ""`, `empty Empty 0/0 ""`, `normal Normal 0/4 ""`,
		`partial PartialDisruption 3/5 "3 of 5 Nodes of the zone are not ready"`, `single FullDisruption 1/1 ""`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("zones:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if d.AllDown {
		t.Error("AllDown = true, want false: one zone is normal")
	}
}

func TestTheNextDecisionIsAtTheNextDueTime(t *testing.T) {
	for rule, c := range map[string]struct {
		hosts []lifecycle.Host
		want  time.Duration // 0: never
	}{
		"never in a fleet that is healthy":            {hosts: alive},
		"when a host counts as dead":                  {hosts: join(alive, one(host("h", "a", dead(-7*time.Second)))), want: 7 * time.Second},
		"when the next taint of the zone is due":      {hosts: join(alive, many(2, "x", "a", notReady)), want: 10 * time.Second},
		"never for taints that are paused":            {hosts: join(many(1, "alive", "a"), many(3, "x", "a", notReady))},
		"the earliest of them counts":                 {hosts: join(alive, many(2, "x", "a", notReady), one(host("h", "b", dead(-3*time.Second)))), want: 3 * time.Second},
		"the second in the queue does not wake first": {hosts: join(alive, many(3, "x", "a", notReady)), want: 10 * time.Second},
	} {
		t.Run(rule, func(t *testing.T) {
			d := lifecycle.Decide(lifecycle.Facts{Confirmed: noon, Hosts: c.hosts}, lifecycle.DefaultPolicy(), noon)
			if c.want == 0 && !d.Next.IsZero() || c.want != 0 && !d.Next.Equal(noon.Add(c.want)) {
				t.Errorf("Next = %v, want noon and %v", d.Next, c.want)
			}
		})
	}
}

func TestATaintOfSomebodyElseIsNamed(t *testing.T) {
	h := host("h", "a", with("unreachable:PreferNoSchedule"), func(h *lifecycle.Host) {
		h.Taints = append(h.Taints, foreign("unreachable:NoExecute"), foreign("unreachable:NoSchedule"), foreign("unreachable:PreferNoSchedule"), foreign("example:NoSchedule"))
	})
	d := lifecycle.Decide(lifecycle.Facts{Confirmed: noon, Hosts: one(h)}, lifecycle.DefaultPolicy(), noon)
	const why = ": another client has set it, since it has a value"
	want := []lifecycle.Ignored{{"h", "taint node.kubernetes.io/unreachable=maintenance:NoExecute" + why}, {"h", "taint node.kubernetes.io/unreachable=maintenance:NoSchedule" + why}}
	if !slices.Equal(d.Ignored, want) {
		t.Errorf("Ignored = %q, want %q", d.Ignored, want)
	}
}

func TestNodesThatNothingIsDueForAreNamed(t *testing.T) {
	hosts := join(alive, many(12, "done", "b", unknown, tainted("unreachable", time.Minute)), many(20, "well", "b"), one(host("new", "a", dead(0))))
	d := lifecycle.Decide(lifecycle.Facts{Confirmed: noon, Hosts: hosts}, lifecycle.DefaultPolicy(), noon)
	var got []string
	for _, s := range d.Settled {
		got = append(got, fmt.Sprint(s.Node, " ", s.Ready, " ", len(s.Taints)))
	}
	if len(got) != 10 || got[0] != "done000 Unknown 2" || got[9] != "done009 Unknown 2" {
		t.Errorf("Settled = %q, want the first ten that have their taints", got)
	}
	if n := d.NotReady; len(n) != 10 || n[0] != "done000" || n[9] != "done009" {
		t.Errorf("NotReady = %q, want the first ten", n)
	}
}

// TestATaintWaitsUntilItsCauseIsConfirmed has a host whose cause for a NoExecute taint is known since a while. The store
// has confirmed all that was known two seconds before noon.
func TestATaintWaitsUntilItsCauseIsConfirmed(t *testing.T) {
	confirmed := noon.Add(-2 * time.Second)
	changed := func(ago time.Duration) func(*lifecycle.Host) {
		return func(h *lifecycle.Host) { h.ChangedAt = noon.Add(-ago) }
	}
	for name, c := range map[string]struct {
		host  lifecycle.Host
		waits bool
	}{
		"not ready, confirmed":           {host("h", "a", notReady, changed(2*time.Second)), false},
		"not ready since then":           {host("h", "a", notReady, changed(time.Second)), true},
		"not ready, and dead since then": {host("h", "a", notReady, changed(time.Hour), dead(-time.Second)), false},
		"dead, confirmed":                {host("h", "a", unknown, changed(time.Hour), dead(2*time.Second)), false},
		"dead since then":                {host("h", "a", unknown, changed(time.Hour), dead(time.Second)), true},
		"dead, and Unknown since then":   {host("h", "a", unknown, changed(time.Second), dead(time.Hour)), true},
	} {
		t.Run(name, func(t *testing.T) {
			d := lifecycle.Decide(lifecycle.Facts{Confirmed: confirmed, Hosts: join(alive, one(c.host))}, lifecycle.DefaultPolicy(), noon)
			if waits := len(d.Pending) == 1; waits != c.waits || len(d.Now) == 1 == c.waits {
				t.Errorf("Decide() = %q, want that the taint waits: %t", describe(d), c.waits)
			}
			if c.waits && (!d.Next.Equal(noon.Add(store.ConfirmInterval)) || !strings.HasSuffix(d.Pending[0].Reason, "; until the store confirms that")) {
				t.Errorf("Next = %v, reason %q, want to wait for the store", d.Next, d.Pending[0].Reason)
			}
		})
	}
}

// TestWhichChangesNeedADeadHost has changes whose writes compare the Lease of the host.
func TestWhichChangesNeedADeadHost(t *testing.T) {
	for name, c := range map[string]struct {
		host lifecycle.Host
		dead bool
	}{
		"its conditions become Unknown":         {host("h", "a", dead(0)), true},
		"its pods are evicted as unreachable":   {host("h", "a", unknown), true},
		"its pods are evicted as not ready":     {host("h", "a", notReady), false},
		"it is Unknown, and lacks a NoSchedule": {host("h", "a", unknown, func(h *lifecycle.Host) { h.DeadAt, h.Taints = time.Time{}, nil }), false},
	} {
		d := lifecycle.Decide(lifecycle.Facts{Confirmed: noon, Hosts: join(alive, one(c.host))}, lifecycle.DefaultPolicy(), noon)
		if len(d.Now) != 1 || d.Now[0].Dead != c.dead {
			t.Errorf("%s: Now = %+v, want a change that needs a dead host: %t", name, d.Now, c.dead)
		}
	}
}

// TestWhichChangesCountForTheRate has changes of the taints of a Node.
func TestWhichChangesCountForTheRate(t *testing.T) {
	for name, c := range map[string]struct {
		add, remove []corev1.Taint
		counts      bool
	}{
		"a NoExecute taint":                              {[]corev1.Taint{taint("unreachable:NoExecute")}, nil, true},
		"one that replaces another":                      {[]corev1.Taint{taint("unreachable:NoExecute")}, []corev1.Taint{taint("not-ready:NoExecute")}, false},
		"one while a NoSchedule taint is removed":        {[]corev1.Taint{taint("unreachable:NoExecute")}, []corev1.Taint{taint("not-ready:NoSchedule")}, true},
		"a NoSchedule taint":                             {[]corev1.Taint{taint("unreachable:NoSchedule")}, nil, false},
		"the removal of a NoExecute taint":               {nil, []corev1.Taint{taint("unreachable:NoExecute")}, false},
		"a NoSchedule taint in place of a NoExecute one": {[]corev1.Taint{taint("unreachable:NoSchedule")}, []corev1.Taint{taint("unreachable:NoExecute")}, false},
	} {
		if counts := (lifecycle.Change{Add: c.add, Remove: c.remove}).NoExecute(); counts != c.counts {
			t.Errorf("%s: NoExecute() = %t, want %t", name, counts, c.counts)
		}
	}
}

func TestWhyATaintIsDueLater(t *testing.T) {
	for zone, want := range map[string]string{
		"a": "the host reports that it is not ready; one Node every 10s in zone a",
		"":  "the host reports that it is not ready; one Node every 10s",
	} {
		d := lifecycle.Decide(lifecycle.Facts{Confirmed: noon, Hosts: join(many(4, "alive", zone), many(2, "x", zone, notReady))}, lifecycle.DefaultPolicy(), noon)
		if len(d.Pending) != 1 || d.Pending[0].Reason != want {
			t.Errorf("zone %q: Pending = %+v, want one with reason %q", zone, d.Pending, want)
		}
	}
}
