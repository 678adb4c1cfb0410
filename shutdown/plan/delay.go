package plan

import (
	"math"
	"time"
)

// NoLimit is the delay of an init system without a limit.
const NoLimit time.Duration = math.MaxInt64

// infinity is NoLimit in logind.conf(5).
const infinity = "infinity"

// Delay is how long the init system delays a shutdown. In JSON it is a string such as "1m30s" or
// "infinity".
type Delay struct{ time.Duration }

// String returns the JSON format.
func (d Delay) String() string {
	if d.Duration == NoLimit {
		return infinity
	}
	return d.Duration.String()
}

// MarshalText returns String.
func (d Delay) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses the result of MarshalText.
func (d *Delay) UnmarshalText(text []byte) (err error) {
	if string(text) == infinity {
		d.Duration = NoLimit
		return nil
	}
	d.Duration, err = time.ParseDuration(string(text))
	return err
}
