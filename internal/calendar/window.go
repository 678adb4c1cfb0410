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
	// yearsAhead limits the search for windows. Within ten years there is a 29 February.
	yearsAhead = 10
	// endless limits the search for the end of a window.
	endless = 60 * 24 * time.Hour
)

// Window is a recurring time, parsed by Parse.
type Window struct {
	text     string
	weekdays values // Monday is 1, Sunday is 7
	years    values
	months   values
	days     values
	fromEnd  bool // days are counted from the end of the month; the last day is 1
	// start and end are offsets from midnight of the day on which the window starts; end is at most
	// 48 hours.
	start, end time.Duration
	zone       *time.Location
}

// values are the numbers that a part of a date matches; nil matches all.
type values []int

func (v values) match(n int) bool { return v == nil || slices.Contains(v, n) }

// String returns the text that was parsed.
func (w Window) String() string { return w.text }

// Windows are open while at least one of them is open. Windows that overlap or touch count as one.
// An empty list is always open.
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

// Next returns the next time that is at least need long. If a window is open now and ends late
// enough, start is now. A zero end means at least 60 days. found is false if there is no such time
// in the next ten years.
func (ws Windows) Next(now time.Time, need time.Duration) (start, end time.Time, found bool) {
	for s := range ws.spans(now) {
		start := later(now, s.start)
		if s.end.IsZero() || s.end.Sub(start) >= need {
			return start, s.end, true
		}
	}
	return time.Time{}, time.Time{}, false
}

// span is one period in which windows are open, without its end.
type span struct{ start, end time.Time }

// spans returns the periods in which windows are open, in order, from the first one that ends after
// now. If a period lasts 60 days or longer, its end is zero and it is the last one.
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
	// A window that started the day before yesterday may still be open if clocks are set back to
	// yesterday.
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

// shown returns when clocks in a zone first show the date and time wall (in UTC) or a later one.
// last is the end of the last period in which they show an earlier one. If clocks are set back over
// wall, the two differ. If clocks are set forward over wall, both are the moment of the change.
func shown(wall time.Time, zone *time.Location) (first, last time.Time) {
	const most = 26 * time.Hour // clocks of every zone are closer to UTC than this
	for t := wall.Add(-most); ; {
		_, offset := t.In(zone).Zone()
		from, to := t.In(zone).ZoneBounds() // zero if there is no change
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
