// Package timeline draws a shutdown over time, from its record in the journal. For each pod it
// shows when the stop signal was sent, how long the pod took, and the rest of its grace period.
//
// It owns the order and the lengths of the lanes. It does not judge the shutdown, and writes no
// file.
package timeline

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/shutdown/journal"
)

// Lane is one pod, or one service that was stopped before the pods. All times count from the start
// of the drain.
type Lane struct {
	Phase     string // of the shutdown; empty for a service
	Name      string
	Outcome   string // journal.Outcome, "service", or empty if not known yet
	Requested bool   // its stop was requested; otherwise the fields below are zero
	From      time.Duration
	To        time.Duration
	Grace     time.Duration // end of its grace period
}

// Timeline is the timeline of a drain.
type Timeline struct {
	Length time.Duration
	Lanes  []Lane
}

// Service is the Outcome of a service's lane.
const Service = "service"

// New returns the timeline of a record: services first, then pods in the order of their stop
// requests, then pods without one.
func New(r journal.Record) Timeline {
	end := latest(r)
	t := Timeline{Length: end.Sub(r.StartedAt)}
	at := func(when time.Time) time.Duration { return min(max(0, when.Sub(r.StartedAt)), t.Length) }
	for _, s := range r.StoppedFirst {
		l := Lane{Name: s.Name, Outcome: Service}
		if !s.AskedAt.IsZero() && !s.AskedAt.Before(r.StartedAt) {
			l.Requested, l.From, l.To = true, at(s.AskedAt), at(s.AskedAt.Add(s.Took.Duration))
			l.Grace = l.To
		}
		t.Lanes = append(t.Lanes, l)
	}
	services := len(t.Lanes)
	for _, p := range r.Pods {
		l := Lane{Phase: p.Phase, Name: strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"), Outcome: string(p.Outcome)}
		if !p.StartedAt.IsZero() {
			l.Requested, l.From, l.To = true, at(p.StartedAt), t.Length
			if !p.FinishedAt.IsZero() {
				l.To = max(l.From, at(p.FinishedAt)) // the clock may have been set back
			}
			l.Grace = max(l.To, at(p.StartedAt.Add(p.Grace.Duration)))
		}
		t.Lanes = append(t.Lanes, l)
	}
	slices.SortStableFunc(t.Lanes[services:], func(a, b Lane) int {
		if a.Requested != b.Requested {
			if a.Requested {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), strings.Compare(a.Name, b.Name))
	})
	return t
}

// latest returns the time of the last recorded event, because an interrupted drain has no
// FinishedAt.
func latest(r journal.Record) time.Time {
	end := r.StartedAt
	take := func(when time.Time) {
		if when.After(end) {
			end = when
		}
	}
	take(r.FinishedAt)
	take(r.CancelledAt)
	for _, s := range r.StoppedFirst {
		if !s.AskedAt.IsZero() && !s.AskedAt.Before(r.StartedAt) {
			take(s.AskedAt.Add(s.Took.Duration))
		}
	}
	for _, p := range r.Pods {
		take(p.StartedAt)
		take(p.FinishedAt)
		if r.FinishedAt.IsZero() && r.CancelledAt.IsZero() && p.FinishedAt.IsZero() && !p.StartedAt.IsZero() {
			take(p.StartedAt.Add(p.Grace.Duration))
		}
	}
	return end
}
