package doctor

import (
	"fmt"
	"time"

	"hostler.io/hostler/shutdown/plan"
)

// Span formats a delay that logind grants. plan.NoLimit stands for logind's infinity.
func Span(d time.Duration) string {
	if d == plan.NoLimit {
		return "time without limit"
	}
	return d.String()
}

// life formats the remaining lifetime of a certificate: in days, from two days on.
func life(left time.Duration) string {
	const day = 24 * time.Hour
	if left < 2*day {
		return left.Round(time.Minute).String()
	}
	return fmt.Sprintf("%d days", left/day)
}
