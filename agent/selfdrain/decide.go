package selfdrain

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/shutdown/journal"
)

const (
	// settle is how long a host that finds a taint of the node lifecycle controller at its start
	// waits at least: the controller removes the taint once it has seen the host again.
	settle = time.Minute
	// hearBound is how long an agent that has just started waits for the first answer of the control
	// plane before it acts on what an earlier agent knew.
	hearBound = 10 * time.Second
)

// Policy is what the configuration says.
type Policy struct {
	OnTaint, OnLost bool          // drain
	Toleration      time.Duration // from the taint, or from the end of the Lease, to the drain
	Own             []corev1.Taint
}

// on reports whether any cause drains the host.
func (p Policy) on() bool { return p.OnTaint || p.OnLost }

// owns reports whether a taint is the host's own by its configuration. Pods that were started there
// tolerate it.
func (p Policy) owns(t Taint) bool {
	return slices.ContainsFunc(p.Own, func(o corev1.Taint) bool { return o.Key == t.Key && o.Effect == corev1.TaintEffectNoExecute })
}

// Facts are what Decide needs to know. Times are by the boot-time clock, which no person sets.
type Facts struct {
	Taints []Taint // NoExecute, as last seen; none if the Node is not hostler's
	Loss   *Loss   // nil while the Lease is renewed, or is not hostler's
	// NodeHeldUntil and LeaseHeldUntil are until when nothing is done about causes that only an
	// earlier agent has seen; zero if this one has.
	NodeHeldUntil, LeaseHeldUntil time.Duration
}

// State is how far a cause is.
type State string

// The states of a cause.
const (
	Scheduled State = "Scheduled" // its time is not over
	Held      State = "Held"      // its time is over, but the agent has just started
	Due       State = "Due"       // the host is to be drained
	Drained   State = "Drained"   // the host was drained for it
)

// Cause is why a host drains itself.
type Cause struct {
	Trigger journal.Trigger
	Taint   Taint         // of TriggerTaint
	Since   time.Duration // when it began
	Due     time.Duration // when the host is drained for it
	State   State
}

// same reports whether two are one cause.
func (c Cause) same(o Cause) bool {
	return c.Trigger == o.Trigger && c.Taint.same(o.Taint)
}

// String says it to a person.
func (c Cause) String() string {
	if c.Trigger == journal.TriggerLeaseLost {
		return "lease not renewed"
	}
	return "taint " + c.Taint.String()
}

// Decision is what is to be done now.
type Decision struct {
	Causes []Cause       // the first one due first
	Next   time.Duration // when to decide again at the latest; zero if only facts change that
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

// Decide returns why and when the host is to be drained.
func Decide(f Facts, p Policy, now time.Duration) Decision {
	var d Decision
	again := func(at time.Duration) {
		if at > now && (d.Next == 0 || at < d.Next) {
			d.Next = at
		}
	}
	add := func(c Cause, heldUntil time.Duration, drained bool) {
		switch {
		case drained:
			c.State = Drained
		case now < c.Due:
			c.State = Scheduled
			again(c.Due)
		case now < heldUntil:
			c.State = Held
			again(heldUntil)
		default:
			c.State = Due
		}
		d.Causes = append(d.Causes, c)
	}
	if p.OnTaint {
		for _, t := range f.Taints {
			if !p.owns(t) {
				add(Cause{Trigger: journal.TriggerTaint, Taint: t, Since: t.Since, Due: t.due(p.Toleration)}, f.NodeHeldUntil, t.Drained)
			}
		}
	}
	if l := f.Loss; p.OnLost && l != nil {
		if ends := l.Since + l.Duration; now < ends { // a renewal that fails once is no news
			again(ends)
		} else {
			add(Cause{Trigger: journal.TriggerLeaseLost, Since: l.Since, Due: ends + p.Toleration}, f.LeaseHeldUntil, l.Drained)
		}
	}
	slices.SortStableFunc(d.Causes, func(a, b Cause) int { return cmp.Compare(a.Due, b.Due) })
	return d
}

// due is when the host is drained for a taint.
func (t Taint) due(toleration time.Duration) time.Duration {
	due := t.Since + toleration
	if t.Key == corev1.TaintNodeUnreachable || t.Key == corev1.TaintNodeNotReady {
		due = max(due, t.FoundAt+min(settle, toleration))
	}
	return due
}
