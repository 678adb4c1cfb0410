//go:build integration

package calendar_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/internal/calendar"
	"hostler.io/hostler/test/lab"
)

// TestWindowsStartWhenSystemdSays compares the starts of windows with the times at which systemd's
// calendar events elapse. The windows last one minute. So a window whose start is skipped by the
// clocks is empty, and systemd skips its event, too. America/Havana is omitted, because systemd 257
// is an hour off there.
func TestWindowsStartWhenSystemdSays(t *testing.T) {
	tools, err := lab.Fetch(t.Context(), lab.FetchOptions{Kits: []lab.Kit{lab.KitLogin}}, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		t.Fatal(err)
	}
	check := func(base time.Time, day, clock, zone string) {
		t.Helper()
		event := strings.TrimSpace(strings.Join([]string{day, clock, zone}, " "))
		start, err := time.Parse("15:4", clock)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(event, clock, clock+"-"+start.Add(time.Minute).Format("15:04"), 1)
		w, err := calendar.Parse(text, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		got, want := starts(w, base), elapses(t, tools.Analyze, event, base)
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%q after %v starts at\n%s\nwhere systemd's timer %q elapses at\n%s", text, base, strings.Join(got, "\n"), event, strings.Join(want, "\n"))
		}
	}

	base := time.Date(2026, 11, 27, 8, 0, 30, 0, time.UTC)
	for _, day := range []string{
		"", "Mon..Fri", "Sat,Sun", "sAt,thu,Monday..wed,Sat..Sun", "Wed..Wed,Wed *-1", "Wed,", "Mon-Wed",
		"*-*-1..7", "Sat *-*-1..7", "*-*~1", "*-*~1..3", "*-*~1..7/2", "*-*~1..7/4", "*~28/7", "Mon *-05~07/1", "*-*~7/3,2",
		"*-1/2-1,3", "mon,fri *-1/2-1,3", "*-12-*", "2-29", "Sat 2-29", "2-30", "*-*-31", "*-*-5/10", "*-*-5..20/4",
		"2030-02..04-05", "2027..2035/3-*-1", "2028/4-2-29", "2020-1-1", "Tue..Sat 2027-10-15",
	} {
		check(base, day, "03:10", "")
	}
	for _, change := range []struct{ zone, day, clocks string }{
		{"Europe/Berlin", "2026-03-28", "1:59 2:00 2:30 2:59 3:00"},
		{"Europe/Berlin", "2026-10-24", "1:59 2:00 2:30 2:59 3:00"},
		{"America/New_York", "2026-03-07", "1:59 2:00 2:30 3:00"},
		{"America/New_York", "2026-10-31", "0:59 1:00 1:30 2:00"},
		{"Australia/Lord_Howe", "2026-10-02", "1:59 2:00 2:15 2:30"},
		{"Australia/Lord_Howe", "2026-04-03", "1:29 1:30 1:45 2:00"},
		{"Pacific/Apia", "2011-12-28", "0:00 12:00 23:59"},
		{"America/St_Johns", "2010-11-05", "23:00 23:30 0:00"},
	} {
		day := moment(t, change.day+" 00:00:30")
		for _, clock := range strings.Fields(change.clocks) {
			check(day, "", clock, change.zone)
		}
	}

	rng := rand.New(rand.NewPCG(31, uint64(time.Now().Unix())))
	for range 200 {
		base := base.Add(time.Duration(rng.IntN(4*366*24*60)) * time.Minute)
		zones := []string{"", "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/St_Johns"}
		check(base, randomDay(rng), fmt.Sprintf("%02d:%02d", rng.IntN(24), rng.IntN(60)), zones[rng.IntN(len(zones))])
		if t.Failed() {
			return
		}
	}
}

func randomDay(rng *rand.Rand) string {
	list := func(item func() string) string {
		items := []string{item()}
		for rng.IntN(3) == 0 {
			items = append(items, item())
		}
		return strings.Join(items, ",")
	}
	numbers := func(lowest, highest int) string {
		if rng.IntN(3) == 0 {
			return "*"
		}
		return list(func() string {
			from := lowest + rng.IntN((highest-lowest)/2)
			to := from + 3 + rng.IntN(highest-from-2)
			return fmt.Sprintf([]string{"%[1]d", "%[1]d..%[2]d", "%[1]d..%[2]d/%[3]d"}[rng.IntN(3)], from, to, 1+rng.IntN(3))
		})
	}
	var parts []string
	if rng.IntN(2) == 0 {
		parts = append(parts, list(func() string {
			from := rng.IntN(7)
			to := from + rng.IntN(7-from)
			return time.Weekday((from + 1) % 7).String()[:3] + ".." + time.Weekday((to+1)%7).String()
		}))
	}
	switch rng.IntN(4) {
	case 0:
		parts = append(parts, numbers(1, 12)+"-"+numbers(1, 31))
	case 1:
		parts = append(parts, numbers(2026, 2040)+"-"+numbers(1, 12)+"-"+numbers(1, 31))
	case 2: // for each further list item, systemd lowers the highest day, 28, by 3
		parts = append(parts, fmt.Sprintf("*-%s~%s", numbers(1, 12), numbers(1, 10)))
	}
	return strings.Join(parts, " ")
}

const (
	most    = 20
	instant = "2006-01-02 15:04:05 UTC"
)

// starts returns the next times at which a window starts.
func starts(w calendar.Window, base time.Time) (all []string) {
	for from := base; len(all) < most; {
		start, end, found := calendar.Windows{w}.Next(from, 0)
		if !found || !start.Before(base.AddDate(10, 0, 0)) {
			break
		}
		if start.After(base) {
			all = append(all, start.UTC().Format(instant))
		}
		from = end
	}
	return all
}

// elapses returns the next times at which a timer elapses, within the range that windows are
// searched.
func elapses(t *testing.T, analyze lab.Tool, event string, base time.Time) (all []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), analyze.Path, "calendar", fmt.Sprint("--iterations=", most), "--base-time="+base.Format(instant), event)
	cmd.Env = append(analyze.Environ(), "TZ=UTC", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	for _, match := range regexp.MustCompile(`(?m)(?:Next elapse|Iter\. #\d+|Iteration #\d+): \w+ (.*)$`).FindAllStringSubmatch(string(out), -1) {
		at, err := time.Parse(instant, match[1])
		if err != nil {
			t.Fatal(err)
		}
		if at.Before(base.AddDate(10, 0, 0)) {
			all = append(all, at.Format(instant))
		}
	}
	return all
}
