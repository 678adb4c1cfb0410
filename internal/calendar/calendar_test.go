package calendar_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/internal/calendar"
)

const layout = "2006-01-02 15:04:05"

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func parse(t testing.TB, texts ...string) (ws calendar.Windows) {
	t.Helper()
	for _, text := range texts {
		w, err := calendar.Parse(text, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		ws = append(ws, w)
	}
	return ws
}

func moment(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(layout, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// list returns the next windows in UTC, as "START to END". END has no date if it is on START's
// date.
func list(ws calendar.Windows, from time.Time, most int) (all []string) {
	for len(all) < most {
		start, end, found := ws.Next(from, 0)
		if !found {
			return append(all, "none")
		}
		if end.IsZero() {
			return append(all, start.UTC().Format(layout)+" on")
		}
		text := end.UTC().Format(layout)
		if day := start.UTC().Format(time.DateOnly); strings.HasPrefix(text, day) {
			text = text[len(day)+1:]
		}
		all = append(all, start.UTC().Format(layout)+" to "+text)
		from = end
	}
	return all
}

func TestWindows(t *testing.T) {
	for name, tt := range map[string]struct {
		windows []string
		from    string // in UTC
		want    []string
	}{
		"no windows are always open": {nil, "2026-11-27 12:00:00", []string{"2026-11-27 12:00:00 on"}},
		"a range of weekdays": {[]string{"Mon..Fri 02:00-05:00"}, "2026-11-26 06:00:00", // from is a Thursday
			[]string{"2026-11-27 02:00:00 to 05:00:00", "2026-11-30 02:00:00 to 05:00:00", "2026-12-01 02:00:00 to 05:00:00"}},
		"an open window starts now": {
			[]string{"Mon..Fri 02:00-05:00"},
			"2026-11-27 03:00:00",
			[]string{"2026-11-27 03:00:00 to 05:00:00", "2026-11-30 02:00:00 to 05:00:00"},
		},
		"the end does not belong to the window": {
			[]string{"02:00-05:00"},
			"2026-11-27 05:00:00",
			[]string{"2026-11-28 02:00:00 to 05:00:00"},
		},
		"across midnight, the weekday is that of the start": {
			[]string{"Sat,Sun 22:00-04:00"},
			"2026-11-27 00:00:00",
			[]string{"2026-11-28 22:00:00 to 2026-11-29 04:00:00", "2026-11-29 22:00:00 to 2026-11-30 04:00:00", "2026-12-05 22:00:00 to 2026-12-06 04:00:00"},
		},
		"a window that began yesterday is open": {
			[]string{"Sun 22:00-04:00"},
			"2026-11-30 01:00:00",
			[]string{"2026-11-30 01:00:00 to 04:00:00"},
		},
		"names in any case and length, and the older range": {
			[]string{"monday-TUE, 02:00-05:00"},
			"2026-11-27 00:00:00",
			[]string{"2026-11-30 02:00:00 to 05:00:00", "2026-12-01 02:00:00 to 05:00:00", "2026-12-07 02:00:00 to 05:00:00"},
		},
		"the first Saturday of each month": {
			[]string{"Sat *-*-1..7 03:00-06:00"},
			"2026-11-27 00:00:00",
			[]string{"2026-12-05 03:00:00 to 06:00:00", "2027-01-02 03:00:00 to 06:00:00", "2027-02-06 03:00:00 to 06:00:00"},
		},
		"the last three days of a month": {
			[]string{"*-*~1..3 03:00-06:00"},
			"2027-02-20 00:00:00",
			[]string{"2027-02-26 03:00:00 to 06:00:00", "2027-02-27 03:00:00 to 06:00:00", "2027-02-28 03:00:00 to 06:00:00", "2027-03-29 03:00:00 to 06:00:00"},
		},
		"the last Monday of May": {
			[]string{"Mon *-05~07/1 03:00-06:00"},
			"2026-11-27 00:00:00",
			[]string{"2027-05-31 03:00:00 to 06:00:00", "2028-05-29 03:00:00 to 06:00:00"},
		},
		"steps": {
			[]string{"*-1/6-10..20/5,31 3:00-6:00:30"},
			"2026-11-27 00:00:00",
			[]string{"2027-01-10 03:00:00 to 06:00:30", "2027-01-15 03:00:00 to 06:00:30", "2027-01-20 03:00:00 to 06:00:30", "2027-01-31 03:00:00 to 06:00:30", "2027-07-10 03:00:00 to 06:00:30"},
		},
		"29 February": {[]string{"2-29 03:00-06:00"}, "2096-03-01 00:00:00", // 2100 is not a leap year
			[]string{"2104-02-29 03:00:00 to 06:00:00"}},
		"a year that is over":     {[]string{"2020-*-* 03:00-06:00"}, "2026-11-27 00:00:00", []string{"none"}},
		"a day that no month has": {[]string{"2-30 03:00-06:00"}, "2026-11-27 00:00:00", []string{"none"}},
		"windows that overlap are one": {
			[]string{"02:00-05:00", "04:00-06:00", "03:00-03:30"},
			"2026-11-27 00:00:00",
			[]string{"2026-11-27 02:00:00 to 06:00:00", "2026-11-28 02:00:00 to 06:00:00"},
		},
		"windows that touch are one": {
			[]string{"Sun 00:00-06:00", "Sat 20:00-24:00"},
			"2026-11-27 00:00:00",
			[]string{"2026-11-28 20:00:00 to 2026-11-29 06:00:00", "2026-12-05 20:00:00 to 2026-12-06 06:00:00"},
		},
		"windows of different zones": {
			[]string{"02:00-03:00 Asia/Tokyo", "02:00-03:00 UTC"},
			"2026-11-27 00:00:00",
			[]string{"2026-11-27 02:00:00 to 03:00:00", "2026-11-27 17:00:00 to 18:00:00", "2026-11-28 02:00:00 to 03:00:00"},
		},
		"days that touch never end": {
			[]string{"Mon..Thu 00:00-24:00", "Fri..Sun 00:00-24:00"},
			"2026-11-27 12:00:00",
			[]string{"2026-11-27 12:00:00 on"},
		},
		"a later year without end": {
			[]string{"2030..2040-*-* 00:00-24:00"},
			"2026-11-27 12:00:00",
			[]string{"2030-01-01 00:00:00 on"},
		},
		"a later day of two windows that touch": {
			[]string{"2030-1-1 00:00-24:00", "2030-1-2 00:00-12:00"},
			"2026-11-27 12:00:00",
			[]string{"2030-01-01 00:00:00 to 2030-01-02 12:00:00", "none"},
		},

		// Berlin: at 02:00 to 03:00 on 2026-03-29 (01:00 UTC), at 03:00 to 02:00 on 2026-10-25 (01:00 UTC).
		"Berlin, forward within a window": {
			[]string{"01:00-05:00 Europe/Berlin"},
			"2026-03-28 12:00:00",
			[]string{"2026-03-29 00:00:00 to 03:00:00", "2026-03-29 23:00:00 to 2026-03-30 03:00:00"},
		},
		"Berlin, forward over the start": {
			[]string{"02:30-05:00 Europe/Berlin"},
			"2026-03-28 12:00:00",
			[]string{"2026-03-29 01:00:00 to 03:00:00", "2026-03-30 00:30:00 to 03:00:00"},
		},
		"Berlin, forward over the end": {
			[]string{"01:00-02:30 Europe/Berlin"},
			"2026-03-28 12:00:00",
			[]string{"2026-03-29 00:00:00 to 01:00:00", "2026-03-29 23:00:00 to 2026-03-30 00:30:00"},
		},
		"Berlin, forward over the whole window": {
			[]string{"02:00-03:00 Europe/Berlin"},
			"2026-03-28 12:00:00",
			[]string{"2026-03-30 00:00:00 to 01:00:00"},
		},
		"Berlin, back within a window": {
			[]string{"01:00-05:00 Europe/Berlin"},
			"2026-10-24 12:00:00",
			[]string{"2026-10-24 23:00:00 to 2026-10-25 04:00:00", "2026-10-26 00:00:00 to 04:00:00"},
		},
		"Berlin, back over the whole window": {
			[]string{"02:15-02:45 Europe/Berlin"},
			"2026-10-24 12:00:00",
			[]string{"2026-10-25 00:15:00 to 01:45:00", "2026-10-26 01:15:00 to 01:45:00"},
		},
		"Berlin, back after a window": {
			[]string{"01:00-02:00 Europe/Berlin"},
			"2026-10-24 12:00:00",
			[]string{"2026-10-24 23:00:00 to 2026-10-25 00:00:00", "2026-10-26 00:00:00 to 01:00:00"},
		},
		"Berlin, back before a window": {
			[]string{"03:00-04:00 Europe/Berlin"},
			"2026-10-24 12:00:00",
			[]string{"2026-10-25 02:00:00 to 03:00:00"},
		},
		"Berlin, across midnight into the day of the change forward": {
			[]string{"Sat 22:00-02:30 Europe/Berlin"},
			"2026-03-28 12:00:00",
			[]string{"2026-03-28 21:00:00 to 2026-03-29 01:00:00", "2026-04-04 20:00:00 to 2026-04-05 00:30:00"},
		},
		"Berlin, across midnight into the day of the change back": {
			[]string{"Sat 22:00-02:30 Europe/Berlin"},
			"2026-10-24 12:00:00",
			[]string{"2026-10-24 20:00:00 to 2026-10-25 01:30:00", "2026-10-31 21:00:00 to 2026-11-01 01:30:00"},
		},
		// New York: at 02:00 to 03:00 on 2026-03-08 (07:00 UTC), at 02:00 to 01:00 on 2026-11-01 (06:00 UTC).
		"New York, forward over the start": {
			[]string{"Sun 02:30-05:00 America/New_York"},
			"2026-03-07 12:00:00",
			[]string{"2026-03-08 07:00:00 to 09:00:00", "2026-03-15 06:30:00 to 09:00:00"},
		},
		"New York, back over the start": {
			[]string{"Sun 01:30-05:00 America/New_York"},
			"2026-10-31 12:00:00",
			[]string{"2026-11-01 05:30:00 to 10:00:00", "2026-11-08 06:30:00 to 10:00:00"},
		},
		// Lord Howe: at 02:00 to 02:30 on 2026-10-04 (15:30 UTC), at 02:00 to 01:30 on 2026-04-05 (15:00 UTC).
		"Lord Howe, half an hour forward": {
			[]string{"02:15-04:00 Australia/Lord_Howe"},
			"2026-10-03 00:00:00",
			[]string{"2026-10-03 15:30:00 to 17:00:00", "2026-10-04 15:15:00 to 17:00:00"},
		},
		"Lord Howe, half an hour back": {
			[]string{"01:30-01:45 Australia/Lord_Howe"},
			"2026-04-04 00:00:00",
			[]string{"2026-04-04 14:30:00 to 15:15:00", "2026-04-05 15:00:00 to 15:15:00"},
		},
		// Havana: at 00:00 to 01:00 on 2026-03-08 (05:00 UTC).
		"Havana, forward at midnight": {
			[]string{"Sat 22:00-24:00 America/Havana", "Sun 00:00-02:00 America/Havana"},
			"2026-03-07 12:00:00",
			[]string{"2026-03-08 03:00:00 to 06:00:00"},
		},
		// St. John's: at 00:01 to 23:01 of the day before on 2010-11-07 (02:31 UTC).
		"St. John's, back to the day before": {
			[]string{"Fri 23:45-23:30 America/St_Johns"},
			"2010-11-07 02:30:30",
			[]string{"2010-11-07 02:30:30 to 03:00:00", "2010-11-13 03:15:00 to 2010-11-14 03:00:00"},
		},
		// Apia: from 2011-12-29 24:00 to 2011-12-31 00:00 (2011-12-30 10:00 UTC).
		"Apia, a window on the day that does not exist": {
			[]string{"02:00-05:00 Pacific/Apia"},
			"2011-12-29 00:00:00",
			[]string{"2011-12-29 12:00:00 to 15:00:00", "2011-12-30 12:00:00 to 15:00:00"},
		},
		"Apia, a whole day that does not exist": {
			[]string{"Fri 00:00-24:00 Pacific/Apia"},
			"2011-12-29 00:00:00",
			[]string{"2012-01-05 10:00:00 to 2012-01-06 10:00:00"},
		},
		"Apia, across midnight into the day that does not exist": {
			[]string{"Thu 22:00-04:00 Pacific/Apia"},
			"2011-12-29 00:00:00",
			[]string{"2011-12-30 08:00:00 to 10:00:00"},
		},
		"Apia, across midnight from the day that does not exist": {
			[]string{"Fri 22:00-04:00 Pacific/Apia"},
			"2011-12-29 00:00:00",
			[]string{"2011-12-30 10:00:00 to 14:00:00"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := list(parse(t, tt.windows...), moment(t, tt.from), len(tt.want))
			if g, w := strings.Join(got, "\n"), strings.Join(tt.want, "\n"); g != w {
				t.Errorf("windows %q after %s:\n%s\nwant\n%s", tt.windows, tt.from, g, w)
			}
		})
	}
}

func TestNextFindsATimeThatIsLongEnough(t *testing.T) {
	ws := parse(t, "Mon..Fri 02:00-03:00", "Sat 02:00-05:00")
	now := moment(t, "2026-11-28 03:30:00") // a Saturday
	for need, want := range map[time.Duration]string{
		0:                "2026-11-28 03:30:00",
		90 * time.Minute: "2026-11-28 03:30:00",
		91 * time.Minute: "2026-12-05 02:00:00",
		3 * time.Hour:    "2026-12-05 02:00:00",
		4 * time.Hour:    "",
	} {
		start, end, found := ws.Next(now, need)
		if want == "" {
			if found {
				t.Errorf("Next(%v) = %v, want nothing", need, start)
			}
			continue
		}
		if !found || !start.Equal(moment(t, want)) || end.Sub(start) < need {
			t.Errorf("Next(%v) = %v to %v, %t, want %s", need, start, end, found, want)
		}
	}
}

func TestWithoutAZoneTimesAreLocal(t *testing.T) {
	w, err := calendar.Parse("Sat 02:00-05:00", zone(t, "America/New_York"))
	if err != nil {
		t.Fatal(err)
	}
	start, _, _ := calendar.Windows{w}.Next(moment(t, "2026-11-27 00:00:00"), 0)
	if got, want := start.Format(time.RFC3339), "2026-11-28T02:00:00-05:00"; got != want {
		t.Errorf("Next() starts at %s, want %s", got, want)
	}
}

func TestParseNamesWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                              `window "": want weekdays, a date, times and a time zone, each without spaces; only times are required; an example is "Mon..Fri 02:00-05:00 Europe/Berlin"`,
		"Mon 02:00 - 05:00":             "only times are required",
		"Mon":                           `times "Mon": want START-END`,
		"Mon..Fri 02:00":                `times "02:00": want START-END`,
		"Mon..Fri 2-5":                  `time "2": want HH:MM or HH:MM:SS`,
		"02:00-25:00":                   `hour "25": want a number from 0 to 23`,
		"24:00-05:00":                   `hour "24": want a number from 0 to 23`,
		"02:60-05:00":                   `minute "60": want a number from 0 to 59`,
		"02:00:60-05:00":                `second "60": want a number from 0 to 59`,
		"02,14:00-05:00":                `hour "02,14": want a number from 0 to 23`,
		"+2:00-05:00":                   `hour "+2": want a number from 0 to 23`,
		"02:00-02:00":                   `times "02:00-02:00": start and end are the same; a whole day is 00:00-24:00`,
		"Mo 02:00-05:00":                `weekday "Mo": want Mon or Monday`,
		"Mon,,Tue 02:00-05:00":          `weekday "": want Mon or Monday`,
		"Mon..Tag 02:00-05:00":          `weekday "Tag": want Mon or Monday`,
		"Fri..Tue 02:00-05:00":          `weekdays "Fri..Tue": the week starts on Monday: write Fri..Sun,Mon..Tue`,
		"1 02:00-05:00":                 `date "1": want MONTH-DAY or YEAR-MONTH-DAY`,
		"13-1 02:00-05:00":              `month "13": want a number from 1 to 12`,
		"*-*-32 02:00-05:00":            `day "32": want a number from 1 to 31`,
		"*-*-0 02:00-05:00":             `day "0": want a number from 1 to 31`,
		"*-*~29 02:00-05:00":            `day "29": want a number from 1 to 28`,
		"26-1-1 02:00-05:00":            `year "26": want a number from 1970 to 2199`,
		"*-*-7..1 02:00-05:00":          `day "1": want a number from 7 to 31`,
		"*-*-1/0 02:00-05:00":           `step of day "0": want a number from 1 to 30`,
		"*-*-31/1 02:00-05:00":          `day "31/1": the step leads to no other day`,
		"*-*~1/1 02:00-05:00":           `day "1/1": the step leads to no other day`,
		"*-*-1,* 02:00-05:00":           `day "*": want a number from 1 to 31`,
		"*-*-*-1 02:00-05:00":           `month "*-*": want a number from 1 to 12`,
		"02:00-05:00 Europe/Berln":      "this host does not know time zone \"Europe/Berln\": use one from `timedatectl list-timezones`, or install the package tzdata",
		"02:00-05:00 Local":             `time zone "Local"`,
		"02:00-05:00 Europe":            `time zone "Europe"`,
		"02:00-05:00 Etc/../zone.tab":   `no time zone`,
		"02:00-05:00 Berlin 2026-01-01": "only times are required",
	} {
		if _, err := calendar.Parse(text, time.UTC); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want an error with %s", text, err, want)
		}
	}
}

// rule describes a window without its notation.
type rule struct {
	weekdays   string // digits of time.Weekday; empty for every day
	start, end int    // minutes since midnight of the day on which it starts
	zone       *time.Location
}

func randomRule(rng *rand.Rand, loc *time.Location) (rule, string) {
	r := rule{zone: loc, start: rng.IntN(24 * 60)}
	r.end = r.start + 1 + rng.IntN(24*60-1)
	var names []string
	if rng.IntN(2) == 0 {
		for range 1 + rng.IntN(4) {
			day := time.Weekday(rng.IntN(7))
			r.weekdays += fmt.Sprint(int(day))
			names = append(names, day.String()[:3])
		}
	}
	text := fmt.Sprintf("%s %02d:%02d-%02d:%02d %s", strings.Join(names, ","), r.start/60, r.start%60, r.end/60%24, r.end%60, loc)
	return r, text
}

// TestWindowsAgreeWithAClock checks each minute of some days against what clocks show. A window
// must be open from when clocks have shown its start or a later time, until they no longer show a
// time before its end.
func TestWindowsAgreeWithAClock(t *testing.T) {
	changes := []string{ // in UTC
		"Europe/Berlin 2026-03-29 01:00:00", "Europe/Berlin 2026-10-25 01:00:00",
		"America/New_York 2026-03-08 07:00:00", "America/New_York 2026-11-01 06:00:00",
		"Australia/Lord_Howe 2026-10-03 15:30:00", "Australia/Lord_Howe 2026-04-04 15:00:00",
		"Pacific/Apia 2011-12-30 10:00:00", "America/Havana 2026-03-08 05:00:00", "America/Havana 2026-11-01 05:00:00",
		"UTC 2026-02-28 00:00:00", "Asia/Kathmandu 2026-12-31 18:15:00",
	}
	const before, after, margin = 24 * 60, 24 * 60, 3 * 24 * 60 // minutes
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 31))
		name, at, _ := strings.Cut(changes[rng.IntN(len(changes))], " ")
		loc, first := zone(t, name), moment(t, at).Add(-(before+margin)*time.Minute)
		// shown[i] is what clocks show in minute i, as if in UTC. earliest[i] is the minimum from
		// minute i on, latest[i] the maximum up to it.
		shown := make([]time.Time, before+after+2*margin)
		for i := range shown {
			l := first.Add(time.Duration(i) * time.Minute).In(loc)
			shown[i] = time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC)
		}
		earliest, latest := make([]time.Time, len(shown)), make([]time.Time, len(shown))
		for i := range shown {
			latest[i] = shown[i]
			if i > 0 && latest[i-1].After(shown[i]) {
				latest[i] = latest[i-1]
			}
		}
		for i := len(shown) - 1; i >= 0; i-- {
			earliest[i] = shown[i]
			if i+1 < len(shown) && earliest[i+1].Before(shown[i]) {
				earliest[i] = earliest[i+1]
			}
		}
		var rules []rule
		var texts []string
		for range 1 + rng.IntN(3) {
			r, text := randomRule(rng, loc)
			rules, texts = append(rules, r), append(texts, text)
		}
		ws := parse(t, texts...)
		want := make([]bool, len(shown))
		for day := shown[0].Truncate(24 * time.Hour); day.Before(shown[len(shown)-1]); day = day.AddDate(0, 0, 1) {
			for _, r := range rules {
				if r.weekdays != "" && !strings.Contains(r.weekdays, fmt.Sprint(int(day.Weekday()))) {
					continue
				}
				start, end := day.Add(time.Duration(r.start)*time.Minute), day.Add(time.Duration(r.end)*time.Minute)
				for i := range want {
					want[i] = want[i] || !latest[i].Before(start) && earliest[i].Before(end)
				}
			}
		}
		for i := margin; i < len(shown)-margin; i++ {
			now := first.Add(time.Duration(i) * time.Minute)
			until, open := ws.Open(now)
			if open != want[i] {
				t.Fatalf("seed %d: Open(%v) of %q = %t, want %t", seed, now.In(loc), texts, open, want[i])
			}
			if i%15 != 0 && want[i] == want[i-1] {
				continue
			}
			start, end, found := ws.Next(now, 0)
			if !found || open != start.Equal(now) || open && !end.Equal(until) {
				t.Fatalf("seed %d: Next(%v) of %q = %v to %v, %t, where Open is %v, %t", seed, now.In(loc), texts, start, end, found, until, open)
			}
			if next := i + int(end.Sub(now)/time.Minute); open && next < len(want) && !end.IsZero() && want[next] {
				t.Fatalf("seed %d: Open(%v) of %q until %v, when a window is open", seed, now.In(loc), texts, until)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"02:00-05:00", "Mon..Fri 02:00-05:00", "Sat,Sun 22:00-04:00", "Sat *-*-1..7 03:00-06:00 Europe/Berlin",
		"*-*~1..3 03:00-06:00:30 UTC", "mon-wed, 2026..2030/2-1/3-7 0:0-24:00 Pacific/Apia", "*~28/7 1:2:3-4:5:6",
	} {
		f.Add(text)
	}
	now := moment(f, "2026-11-27 12:00:00")
	f.Fuzz(func(t *testing.T, text string) {
		w, err := calendar.Parse(text, time.UTC)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "window ") {
				t.Errorf("Parse(%q) = %v, want an error that names the window", text, err)
			}
			return
		}
		again, err := calendar.Parse(w.String(), time.UTC)
		if err != nil || fmt.Sprint(list(calendar.Windows{again}, now, 3)) != fmt.Sprint(list(calendar.Windows{w}, now, 3)) {
			t.Errorf("Parse(%q) = %v, which parses as %v (%v)", text, w, again, err)
		}
		if start, end, found := (calendar.Windows{w}).Next(now, 0); found {
			if until, open := (calendar.Windows{w}).Open(start); !open || !until.Equal(end) {
				t.Errorf("%v: Next() starts at %v and ends at %v, where Open() is %v, %t", w, start, end, until, open)
			}
		}
	})
}
