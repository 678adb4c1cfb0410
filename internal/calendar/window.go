// Package calendar finds windows of time in systemd's calendar notation.
//
// It owns the notation: a calendar event (systemd.time(7)) with the time of day at which it ends,
// such as "Sat *-*-1..7 22:00-04:00 Europe/Berlin". It keeps no state, and reads no clock.
package calendar

import (
	"iter"
	"slices"
	"time"
)

const (
	// yearsAhead is how far windows are searched: far enough for each 29 February.
	yearsAhead = 10
	// endless is how far ahead an end is searched.
	endless = 60 * 24 * time.Hour
)

// Window is a time that recurs, from Parse.
type Window struct {
	text     string
	weekdays values // Monday is 1, Sunday is 7
	years    values
	months   values
	days     values
	fromEnd  bool // days are counted from the end of the month, and its last day is 1
	// start and end are since midnight of the day on which the window starts; end is up to 48 hours.
	start, end time.Duration
	zone       *time.Location
}

// values are the numbers that a part of a date matches; nil matches all.
type values []int

func (v values) match(n int) bool { return v == nil || slices.Contains(v, n) }

// String is the window as it was written.
func (w Window) String() string { return w.text }

// Windows are open while one of them is. Windows that overlap or touch are one. No windows at all
// are always open.
type Windows []Window

// Open reports whether a window is open, and until when. The zero time means that it stays open for
// at least 60 days.
func (ws Windows) Open(now time.Time) (until time.Time, open bool) {
	for s := range ws.spans(now) {
		if s.start.After(now) {
			break
		}
		return s.end, true
	}
	return time.Time{}, false
}

// Next returns the next time in which need fits: it starts now if a window is open that ends late
// enough. The zero end means that it lasts at least 60 days. Next finds nothing if there is no such
// time in the next ten years.
func (ws Windows) Next(now time.Time, need time.Duration) (start, end time.Time, found bool) {
	for s := range ws.spans(now) {
		start := later(now, s.start)
		if s.end.IsZero() || s.end.Sub(start) >= need {
			return start, s.end, true
		}
	}
	return time.Time{}, time.Time{}, false
}

// span is one time for which windows are open. The end does not belong to it.
type span struct{ start, end time.Time }

// spans returns when windows are open, in order, beginning with the first span that ends after now.
// The end of one that lasts 60 days or longer is zero, and it is the last.
func (ws Windows) spans(now time.Time) iter.Seq[span] {
	return func(yield func(span) bool) {
		if len(ws) == 0 {
			yield(span{start: now})
			return
		}
		limit := now.AddDate(yearsAhead, 0, 0)
		next := make([]*span, len(ws))
		for i, w := range ws {
			next[i] = w.after(now, limit)
		}
		for {
			first := earliest(next)
			if first == nil {
				return
			}
			open := *first
			stays := func() bool { return open.end.Sub(later(open.start, now)) >= endless }
			for grows := true; grows && !stays(); {
				grows = false
				for i, s := range next {
					if s != nil && !s.start.After(open.end) {
						open.end = later(open.end, s.end)
						next[i], grows = ws[i].after(open.end, limit), true
					}
				}
			}
			if stays() {
				open.end = time.Time{}
			}
			if !yield(open) || open.end.IsZero() {
				return
			}
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(spans []*span) (first *span) {
	for _, s := range spans {
		if s != nil && (first == nil || s.start.Before(first.start)) {
			first = s
		}
	}
	return first
}

// after returns the window's first span that ends after t, or nil if none starts before the limit.
func (w Window) after(t, limit time.Time) *span {
	year, month, day := t.In(w.zone).Date()
	// What started the day before yesterday may be open still, if clocks are set back to yesterday.
	for date := time.Date(year, month, day-2, 0, 0, 0, 0, time.UTC); date.Before(limit); date = date.AddDate(0, 0, 1) {
		if !w.starts(date) {
			continue
		}
		start, _ := shown(date.Add(w.start), w.zone)
		_, end := shown(date.Add(w.end), w.zone)
		if end.After(t) && end.After(start) {
			return &span{start.In(w.zone), end.In(w.zone)}
		}
	}
	return nil
}

// starts reports whether the window starts on that day.
func (w Window) starts(date time.Time) bool {
	day := date.Day()
	if w.fromEnd {
		day = time.Date(date.Year(), date.Month()+1, 1-day, 0, 0, 0, 0, time.UTC).Day()
	}
	return w.years.match(date.Year()) && w.months.match(int(date.Month())) && w.days.match(day) &&
		w.weekdays.match((int(date.Weekday())+6)%7+1)
}

// shown returns when clocks in a zone first show a date and time or a later one, and the end of the
// last time at which they show an earlier one. The two differ if clocks are set back over it. They are
// the moment of the change if clocks are set forward over it. wall is the date and time, in UTC.
func shown(wall time.Time, zone *time.Location) (first, last time.Time) {
	const most = 26 * time.Hour // further than clocks of any zone are from UTC
	for t := wall.Add(-most); ; {
		_, offset := t.In(zone).Zone()
		from, to := t.In(zone).ZoneBounds() // zero where there is none
		at := wall.Add(-time.Duration(offset) * time.Second)
		if first.IsZero() && (to.IsZero() || at.Before(to)) {
			first = later(at, from)
		}
		if at.After(from) {
			last = at
			if !to.IsZero() && at.After(to) {
				last = to
			}
		}
		if to.IsZero() || to.After(wall.Add(most)) {
			return first, last
		}
		t = to
	}
}
