package drain

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// schedule has the times of the phases. Only start changes.
type schedule struct {
	phases   []plan.PhaseSpec   // fitted into what is granted
	wanted   []plan.PhaseSpec   // as they are configured
	granted  time.Duration      // into which they are fitted; zero if that is not known
	short    *journal.Shortened // by how much they are shortened; nil if not
	lead     time.Duration      // what services that are stopped first may take before the phases count
	slack    time.Duration      // by how much a call may overrun its phase
	start    time.Time          // when the first phase begins to count
	deadline time.Time          // when the drain is over at the latest
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

// settle is how long a phase whose time is up waits for its kills.
func (s *schedule) settle() time.Duration { return s.slack / 4 }

// due is when phase i ends as it was planned.
func (s *schedule) due(i int) time.Time { return s.start.Add(plan.Total(s.phases[:i+1])) }

// end returns when the grace periods of phase i end if it begins now. Time that earlier phases left
// is added; time that they overran is not subtracted, beyond the slack. A phase that is already over
// kills the containers whose stop was requested, and leaves the others to the next.
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

// brief reports whether so little is left of phase i that new stops get more time in the next phase,
// or after the last one, when the service stops.
func (s *schedule) brief(i int, end time.Time) bool {
	return time.Until(end) <= min(newsPoll, s.phases[i].Grace/2)
}

// nothingLeft reports whether phase i has no time for new stops, because very little is granted or no
// agent ran when it began. A container that should get some time is not killed here.
func (s *schedule) nothingLeft(i int, end time.Time) bool {
	return s.wanted[i].Grace > 0 && s.brief(i, end)
}

// within returns the smaller of own and the time until end. Runtimes round up to whole seconds, so
// the rest is rounded to whole seconds: up only if the call then overruns its phase by less than half
// of slack.
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
