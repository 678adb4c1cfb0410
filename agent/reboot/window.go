package reboot

import (
	"fmt"
	"time"

	"hostler.io/hostler/internal/calendar"
)

// Policy is the configuration of a decision.
type Policy struct {
	Windows  calendar.Windows
	ReadyFor time.Duration // time that the Node must be Ready after the reboot
}

// closed says why a reboot of this duration may not begin now, and when it may; empty if it may begin now.
func (p Policy) closed(now time.Time, takes time.Duration) (why string, next time.Time) {
	if len(p.Windows) == 0 {
		return "", time.Time{}
	}
	start, _, found := p.Windows.Next(now, takes)
	until, open := p.Windows.Open(now)
	switch {
	case !found && takes > 0:
		return fmt.Sprintf("no window of `reboot.window` is as long as the longest of the last reboots, %v", takes), time.Time{}
	case !found:
		return "no window of `reboot.window` opens within the next years", time.Time{}
	case !start.After(now):
		return "", time.Time{}
	case open:
		return fmt.Sprintf("the window ends at %s, and the longest of the last reboots took %v; the next window opens at %s", clock(until), takes, clock(start)), start
	}
	return "the window opens at " + clock(start), start
}

// Window says whether a reboot of this duration may begin now, or when. It is empty if there are no windows.
func (p Policy) Window(now time.Time, takes time.Duration) string {
	if len(p.Windows) == 0 {
		return ""
	}
	if why, _ := p.closed(now, takes); why != "" {
		return why
	}
	until, _ := p.Windows.Open(now)
	if until.IsZero() {
		return "the window does not close within a year"
	}
	return "the window is open until " + clock(until)
}

func clock(at time.Time) string { return at.Format("2006-01-02 15:04:05 MST") }
