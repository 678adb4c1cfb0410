package selfdrain

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/shutdown/journal"
)

// Instant is one moment by two clocks.
type Instant struct {
	Boot time.Duration // since the boot, also while the host was suspended; nobody sets it
	Wall time.Time
}

// Memory is what a Controller remembers across restarts of the agent. Durations are times of the
// boot-time clock.
type Memory struct {
	Boot   string  `json:"boot"` // the boot of these times
	Taints []Taint `json:"taints,omitempty"`
	Lease  *Lease  `json:"lease,omitempty"` // nil if the host has none
	Loss   *Loss   `json:"loss,omitempty"`  // nil while the Lease is renewed
	Drain  *Drain  `json:"drain,omitempty"` // nil while the host is not drained
}

// Taint is a NoExecute taint of the Node.
type Taint struct {
	Key       string        `json:"key"`
	Value     string        `json:"value,omitempty"`
	TimeAdded time.Time     `json:"timeAdded,omitzero"` // zero if the taint has none
	Since     time.Duration `json:"since"`              // when it was added; negative if before the boot
	FoundAt   time.Duration `json:"foundAt"`            // when this host first saw it in this boot
	SeenAt    time.Time     `json:"seenAt"`             // when it first did; replaces a missing timeAdded
	Drained   bool          `json:"drained,omitempty"`  // the host was drained for it in this boot
}

// same reports whether two are one taint. Whoever sets a taint again begins a new one.
func (t Taint) same(o Taint) bool { return t.Key == o.Key && t.TimeAdded.Equal(o.TimeAdded) }

// String is the taint as kubectl writes it.
func (t Taint) String() string {
	taint := corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffectNoExecute}
	return taint.ToString()
}

// Lease is the Lease that the host has renewed.
type Lease struct {
	Of       string        `json:"of"` // the control plane and the Node
	Duration time.Duration `json:"duration"`
}

// Loss is a time without a renewal of the Lease.
type Loss struct {
	Since    time.Duration `json:"since"` // the last renewal, or the start of the agent
	Duration time.Duration `json:"duration"`
	Drained  bool          `json:"drained,omitempty"` // the host was drained for it
}

// Drain is a drain that has started and not ended.
type Drain struct {
	Trigger   journal.Trigger `json:"trigger"`
	Cause     string          `json:"cause"`
	StartedAt time.Time       `json:"startedAt"` // of its record in the journal
}

// restore returns what is known at the start of an agent from what an earlier one has stored. The
// times of another boot say nothing in this one: taints count by the wall clock then, a loss of the
// Lease from now.
func restore(stored Memory, boot, of string, at Instant) Memory {
	m := Memory{Boot: boot, Lease: stored.Lease}
	if m.Lease != nil && m.Lease.Of != of { // a Lease elsewhere is not this one
		m.Lease = nil
	}
	same := journal.SameBoot(stored.Boot, boot) && !stored.after(at.Boot)
	for _, t := range stored.Taints {
		if !same {
			t.Drained = false // its containers may have been started by the boot
			t.adopt(at)
		}
		m.Taints = append(m.Taints, t)
	}
	if !same {
		return m
	}
	m.Drain = stored.Drain
	if m.Lease != nil {
		m.Loss = stored.Loss
	}
	return m
}

// after reports whether a time is in the future: then the boot must be another one.
func (m Memory) after(now time.Duration) bool {
	return m.Loss != nil && m.Loss.Since > now || slices.ContainsFunc(m.Taints, func(t Taint) bool { return t.FoundAt > now })
}

// adopt sets since when a taint is there that the host has not seen to appear in this boot.
func (t *Taint) adopt(at Instant) {
	if t.SeenAt.IsZero() {
		t.SeenAt = at.Wall
	}
	added := t.TimeAdded
	if added.IsZero() {
		added = t.SeenAt
	}
	t.Since, t.FoundAt = at.Boot-max(0, at.Wall.Sub(added)), at.Boot
}

// see takes in the taints of the Node. first reports that no taint was seen to appear, because this
// agent sees the Node for the first time. It returns whether anything changed.
func (m *Memory) see(taints []corev1.Taint, at Instant, first bool) (changed bool) {
	var seen []Taint
	for _, t := range taints {
		if t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		now := Taint{Key: t.Key, SeenAt: at.Wall.UTC().Round(0)}
		if t.TimeAdded != nil {
			now.TimeAdded = t.TimeAdded.UTC()
		}
		switch i := slices.IndexFunc(m.Taints, now.same); {
		case i >= 0:
			now = m.Taints[i]
		case first:
			now.adopt(at)
		default:
			now.Since, now.FoundAt = at.Boot, at.Boot
		}
		now.Value = t.Value
		seen = append(seen, now)
	}
	changed = !slices.Equal(seen, m.Taints)
	m.Taints = seen
	return changed
}

// renewed takes in a renewal of the Lease.
func (m *Memory) renewed(of string, duration time.Duration) (changed bool) {
	now := Lease{of, duration}
	changed = m.Loss != nil || m.Lease == nil || *m.Lease != now
	m.Lease, m.Loss = &now, nil
	return changed
}

// lost takes in that the Lease was not renewed since that time. A host that never had a Lease
// cannot lose it.
func (m *Memory) lost(since time.Duration) (changed bool) {
	if m.Lease == nil || m.Loss != nil {
		return false
	}
	m.Loss = &Loss{Since: since, Duration: m.Lease.Duration}
	return true
}

// leave takes in that the host has no Lease any more, because somebody deregistered it.
func (m *Memory) leave() { m.Lease, m.Loss = nil, nil }

// drained takes in that the host was drained for these causes.
func (m *Memory) drained(causes []Cause) {
	m.Drain = nil
	for _, c := range causes {
		if c.Trigger == journal.TriggerLeaseLost && m.Loss != nil {
			loss := *m.Loss // what was handed out stays as it is
			loss.Drained = true
			m.Loss = &loss
		}
		m.Taints = slices.Clone(m.Taints)
		for i := range m.Taints {
			if c.Trigger == journal.TriggerTaint && m.Taints[i].same(c.Taint) {
				m.Taints[i].Drained = true
			}
		}
	}
}

// equal reports whether both say the same.
func (m Memory) equal(o Memory) bool {
	return m.Boot == o.Boot && slices.Equal(m.Taints, o.Taints) && equal(m.Lease, o.Lease) && equal(m.Loss, o.Loss) && equal(m.Drain, o.Drain)
}

func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }
