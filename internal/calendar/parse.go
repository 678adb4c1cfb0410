package calendar

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// example is in each error of Parse.
const example = "Mon..Fri 02:00-05:00 Europe/Berlin"

// Parse reads a window: [WEEKDAYS] [[YEAR-]MONTH-DAY] START-END [ZONE]. Weekdays and dates have the
// syntax of systemd.time(7), with lists, ranges, steps, and "~" for days counted from the end of
// the month. START and END are times of day. The date is the date of the start: an END before START
// is on the next day. Without a zone, the times are in local.
//
// When clocks change, a window starts as soon as they show its start or a later time. It ends when
// they no longer show an earlier time than its end. A systemd timer whose time the clocks skip is
// dropped; a window is not.
func Parse(text string, local *time.Location) (Window, error) {
	fields := strings.Fields(text)
	w := Window{text: strings.Join(fields, " "), zone: local}
	if err := w.parse(fields); err != nil {
		return Window{}, fmt.Errorf("window %q: %w; an example is %q", text, err, example)
	}
	return w, nil
}

func (w *Window) parse(fields []string) (err error) {
	if n := len(fields) - 1; n > 0 && isName(fields[n]) {
		if w.zone, err = loadZone(fields[n]); err != nil {
			return err
		}
		fields = fields[:n]
	}
	if len(fields) > 1 && isName(fields[0]) {
		if w.weekdays, err = parseWeekdays(fields[0]); err != nil {
			return err
		}
		fields = fields[1:]
	}
	if len(fields) == 2 {
		if err := w.parseDate(fields[0]); err != nil {
			return err
		}
		fields = fields[1:]
	}
	if len(fields) != 1 {
		return errors.New("want weekdays, a date, times and a time zone, each without spaces; only times are required")
	}
	return w.parseTimes(fields[0])
}

func isName(field string) bool { c := field[0] | 0x20; return c >= 'a' && c <= 'z' }

// notOfZone reports whether a character cannot be part of the name of a time zone.
func notOfZone(c rune) bool {
	return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_+-/", c))
}

func loadZone(name string) (*time.Location, error) {
	if strings.EqualFold(name, "UTC") {
		return time.UTC, nil
	}
	if strings.ContainsFunc(name, notOfZone) {
		return nil, errors.New("what follows the times is no time zone")
	}
	zone, err := time.LoadLocation(name)
	if err != nil || zone == time.Local {
		return nil, fmt.Errorf("this host does not know time zone %q: use one from `timedatectl list-timezones`, or install the package tzdata", name)
	}
	return zone, nil
}

func parseWeekdays(text string) (values, error) {
	var all values
	for item := range strings.SplitSeq(strings.TrimSuffix(text, ","), ",") {
		first, last, isRange := strings.Cut(item, "..")
		if !isRange { // the older form, which systemd still accepts
			first, last, isRange = strings.Cut(item, "-")
		}
		if !isRange {
			last = first
		}
		from, to := weekday(first), weekday(last)
		switch {
		case from == 0:
			return nil, fmt.Errorf("weekday %q: want Mon or Monday", first)
		case to == 0:
			return nil, fmt.Errorf("weekday %q: want Mon or Monday", last)
		case to < from:
			return nil, fmt.Errorf("weekdays %q: the week starts on Monday: write %s..Sun,Mon..%s", item, first, last)
		}
		for ; from <= to; from++ {
			all = append(all, from)
		}
	}
	return all, nil
}

// weekday returns 1 for Monday, and 0 if the text is not a weekday.
func weekday(text string) int {
	for day := 1; day <= 7; day++ {
		name := strings.ToLower(time.Weekday(day % 7).String())
		if text := strings.ToLower(text); text == name || text == name[:3] {
			return day
		}
	}
	return 0
}

func (w *Window) parseDate(text string) (err error) {
	i := strings.LastIndexAny(text, "-~")
	if i < 0 {
		return fmt.Errorf("date %q: want MONTH-DAY or YEAR-MONTH-DAY", text)
	}
	year, month, hasYear := strings.Cut(text[:i], "-")
	if !hasYear {
		year, month = "*", year
	}
	if w.years, err = parseValues("year", year, 1970, 2199, false); err != nil {
		return err
	}
	if w.months, err = parseValues("month", month, 1, 12, false); err != nil {
		return err
	}
	last := 31
	if w.fromEnd = text[i] == '~'; w.fromEnd {
		last = 28 // every month has 28 days
	}
	w.days, err = parseValues("day", text[i+1:], 1, last, w.fromEnd)
	return err
}

// parseValues reads a list of numbers, ranges and steps. A step without a range continues to the
// end of the year or month. If days are counted from the end, that is the lowest number.
func parseValues(what, text string, lowest, highest int, fromEnd bool) (values, error) {
	if text == "*" {
		return nil, nil
	}
	all := values{}
	for item := range strings.SplitSeq(text, ",") {
		numbers, step, hasStep := strings.Cut(item, "/")
		first, last, isRange := strings.Cut(numbers, "..")
		from, err := parseNumber(what, first, lowest, highest)
		if err != nil {
			return nil, err
		}
		to, by := from, 1
		if isRange {
			if to, err = parseNumber(what, last, from, highest); err != nil {
				return nil, err
			}
		}
		if hasStep {
			if by, err = parseNumber("step of "+what, step, 1, highest-lowest); err != nil {
				return nil, err
			}
			if !isRange && fromEnd {
				from = lowest + (from-lowest)%by
			} else if !isRange {
				to = highest
			}
			if from+by > to {
				return nil, fmt.Errorf("%s %q: the step leads to no other %s", what, item, what)
			}
		}
		for ; from <= to; from += by {
			all = append(all, from)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func parseNumber(what, text string, lowest, highest int) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16) // not ParseInt: no sign is allowed
	if err != nil || int(n) < lowest || int(n) > highest {
		return 0, fmt.Errorf("%s %q: want a number from %d to %d", what, text, lowest, highest)
	}
	return int(n), nil
}

func (w *Window) parseTimes(text string) (err error) {
	start, end, found := strings.Cut(text, "-")
	if !found {
		return fmt.Errorf("times %q: want START-END", text)
	}
	if w.start, err = parseTime(start); err != nil {
		return err
	}
	if end == "24:00" || end == "24:00:00" {
		w.end = 24 * time.Hour
		return nil
	}
	w.end, err = parseTime(end)
	if err == nil && w.end == w.start {
		return fmt.Errorf("times %q: start and end are the same; a whole day is 00:00-24:00", text)
	}
	if w.end < w.start {
		w.end += 24 * time.Hour
	}
	return err
}

func parseTime(text string) (time.Duration, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 2 && len(parts) != 3 {
		return 0, fmt.Errorf("time %q: want HH:MM or HH:MM:SS", text)
	}
	sum := time.Duration(0)
	for i, unit := range []struct {
		what    string
		highest int
		time.Duration
	}{{"hour", 23, time.Hour}, {"minute", 59, time.Minute}, {"second", 59, time.Second}}[:len(parts)] {
		n, err := parseNumber(unit.what, parts[i], 0, unit.highest)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * unit.Duration
	}
	return sum, nil
}
