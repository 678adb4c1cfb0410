package doctor

import (
	"fmt"
	"time"

	"hostler.io/hostler/shutdown/plan"
)

// Span is a time that logind grants, whose infinity is the longest that there is.
func Span(d time.Duration) string {
	if d == plan.NoLimit {
		return "time without limit"
	}
	return d.String()
}

// life is how long a certificate lasts, for a person: in days while there are some.
func life(left time.Duration) string {
	const day = 24 * time.Hour
	if left < 2*day {
		return left.Round(time.Minute).String()
	}
	return fmt.Sprintf("%d days", left/day)
}
