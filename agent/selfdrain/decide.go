package selfdrain

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/shutdown/journal"
)

// hearBound is how long a new agent waits for the first answer about its Lease. Until then the loss
// that an earlier agent has seen is no cause.
const hearBound = 10 * time.Second

// Policy is the configuration of automatic drains.
type Policy struct {
	OnTaint, OnLost bool          // the value is drain
	Toleration      time.Duration // from the first sight of the taint, or from the end of the Lease, to the drain
	Own             []corev1.Taint
}

// on reports whether any cause is enabled.
func (p Policy) on() bool { return p.OnTaint || p.OnLost }

// owns reports whether a taint is in node.taints. Pods on this host tolerate such a taint.
func (p Policy) owns(t Taint) bool {
	return slices.ContainsFunc(p.Own, func(o corev1.Taint) bool { return o.Key == t.Key && o.Effect == corev1.TaintEffectNoExecute })
}

// Facts is the input of Decide. Times are by the boot-time clock, which nobody can set.
type Facts struct {
	Taints []Taint // NoExecute taints; none if hostler does not own the Node
	Loss   *Loss   // nil while the Lease is renewed, or if hostler does not own it
	// LeaseHeldUntil is when the loss that an earlier agent has seen becomes a cause; zero if this agent has tried to
	// renew the Lease.
	LeaseHeldUntil time.Duration
}

// State is the state of a cause.
type State string

// The states of a cause.
const (
	Scheduled State = "Scheduled" // the toleration is not over
	Held      State = "Held"      // the toleration is over, but the agent does not know yet whether the cause remains
	Due       State = "Due"       // the host must be drained
	Drained   State = "Drained"   // the host was drained for it
)

// Cause is why a host drains itself.
type Cause struct {
	Trigger journal.Trigger
	Taint   Taint         // of TriggerTaint
	Since   time.Duration // start of the cause
	Due     time.Duration // when the drain is due
	State   State
}

// same reports whether both are the same cause.
func (c Cause) same(o Cause) bool {
	return c.Trigger == o.Trigger && c.Taint.same(o.Taint)
}

// String describes the cause for messages.
func (c Cause) String() string {
	if c.Trigger == journal.TriggerLeaseLost {
		return "lease not renewed"
	}
	return "taint " + c.Taint.String()
}

// Decision says what to do now.
type Decision struct {
	Causes []Cause       // ordered by due time
	Next   time.Duration // latest time of the next decision; zero if only new facts can change it
}

// in returns the causes in these states.
func (d Decision) in(states ...State) (list []Cause) {
	for _, c := range d.Causes {
		if slices.Contains(states, c.State) {
			list = append(list, c)
		}
	}
	return list
}

// hold lets no cause be due, until another decision at that time or before.
func (d *Decision) hold(until time.Duration) {
	for i := range d.Causes {
		if s := &d.Causes[i].State; *s != Drained {
			*s = Held
		}
	}
	if d.Next == 0 || until < d.Next {
		d.Next = until
	}
}

// Decide returns why and when the host must be drained.
func Decide(f Facts, p Policy, now time.Duration) Decision {
	var d Decision
	again := func(at time.Duration) {
		if at > now && (d.Next == 0 || at < d.Next) {
			d.Next = at
		}
	}
	add := func(c Cause, held, drained bool) {
		switch {
		case drained:
			c.State = Drained
		case now < c.Due:
			c.State = Scheduled
			again(c.Due)
		case held:
			c.State = Held
		default:
			c.State = Due
		}
		d.Causes = append(d.Causes, c)
	}
	if p.OnTaint {
		for _, t := range f.Taints {
			if !p.owns(t) {
				add(Cause{Trigger: journal.TriggerTaint, Taint: t, Since: t.Since, Due: t.Since + p.Toleration}, false, t.Drained)
			}
		}
	}
	if l := f.Loss; p.OnLost && l != nil {
		if ends := l.Since + l.Duration; now < ends { // the Lease is still valid
			again(ends)
		} else {
			held := now < f.LeaseHeldUntil
			if held {
				again(f.LeaseHeldUntil)
			}
			add(Cause{Trigger: journal.TriggerLeaseLost, Since: l.Since, Due: ends + p.Toleration}, held, l.Drained)
		}
	}
	slices.SortStableFunc(d.Causes, func(a, b Cause) int { return cmp.Compare(a.Due, b.Due) })
	return d
}
