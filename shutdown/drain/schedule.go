package drain

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// schedule has the times of the phases. Only start is modified.
type schedule struct {
	phases   []plan.PhaseSpec   // shortened to fit into granted
	wanted   []plan.PhaseSpec   // as configured
	granted  time.Duration      // zero if unknown
	short    *journal.Shortened // how much the phases are shortened; nil if not
	lead     time.Duration      // time for services that are stopped first, before the phases begin
	slack    time.Duration      // how much longer than its phase a call may take
	start    time.Time          // start of the first phase
	deadline time.Time          // latest end of the drain
}

func newSchedule(o Options) schedule {
	left, reserve := o.First.Left(o.Granted), plan.Margin
	if o.Granted > 0 {
		reserve = plan.Reserve(left)
	}
	s := schedule{phases: plan.Fit(o.Phases, left), wanted: o.Phases, granted: left, lead: o.First.Lead(o.Granted), slack: reserve / 6, start: o.Start}
	if wanted, had := plan.Total(s.wanted), plan.Total(s.phases); had < wanted {
		s.short = &journal.Shortened{
			Granted: metav1.Duration{Duration: o.Granted},
			Wanted:  metav1.Duration{Duration: wanted},
			Had:     metav1.Duration{Duration: had},
		}
	}
	s.deadline = s.start.Add(plan.Total(s.phases) + s.slack)
	if soon := time.Now().Add(time.Duration(len(s.phases)) * s.settle()); soon.After(s.deadline) {
		s.deadline = soon
	}
	s.deadline = s.deadline.Add(s.lead + 3*s.slack)
	return s
}

// last is when the stops of the last phase end at the latest, including the slack.
func (s *schedule) last() time.Time { return s.deadline.Add(-3 * s.slack) }

// settle is how long a phase waits for kills after its end.
func (s *schedule) settle() time.Duration { return s.slack / 4 }

// due is the planned end of phase i.
func (s *schedule) due(i int) time.Time { return s.start.Add(plan.Total(s.phases[:i+1])) }

// end returns when the grace periods of phase i end if it begins now. Time that earlier phases left
// is added. Time that they overran is not subtracted, except what exceeds the slack. A phase that
// is already over kills containers whose stop was requested, and leaves the others to the next
// phase.
func (s *schedule) end(i int, overran bool) time.Time {
	now := time.Now()
	end := s.due(i)
	if overran {
		late, latest := now.Add(s.phases[i].Grace), end.Add(s.slack)
		if late.After(latest) {
			late = latest
		}
		if late.After(end) {
			end = late
		}
	}
	if end.Before(now) {
		end = now
	}
	return end
}

// brief reports whether little of phase i is left. Then new stops get more time in the next phase.
// After the last phase, they get it when the service stops.
func (s *schedule) brief(i int, end time.Time) bool {
	return time.Until(end) <= min(newsPoll, s.phases[i].Grace/2)
}

// nothingLeft reports whether phase i has no time for new stops, because little is granted, or
// because no agent ran when it began. Containers of a phase with configured time must not be killed
// at once.
func (s *schedule) nothingLeft(i int, end time.Time) bool {
	return s.wanted[i].Grace > 0 && s.brief(i, end)
}

// within returns the smaller of own and the time until end. Runtimes round up to whole seconds, so
// the time is rounded to whole seconds. It is rounded up only if the call then exceeds its phase by
// less than half of slack.
func within(own time.Duration, end time.Time, slack time.Duration) time.Duration {
	left := time.Until(end)
	if left > time.Second {
		if rounded := left.Round(time.Second); rounded-left < slack/2 {
			left = rounded
		} else {
			left = left.Truncate(time.Second)
		}
	}
	return max(0, min(own, left))
}
