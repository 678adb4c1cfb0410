package plan

import (
	"math"
	"time"
)

// NoLimit is the delay of an init system that waits without limit.
const NoLimit time.Duration = math.MaxInt64

// infinity is NoLimit as logind.conf(5) writes it.
const infinity = "infinity"

// Delay is how long the init system delays a shutdown. In JSON it is a string such as "1m30s",
// or "infinity".
type Delay struct{ time.Duration }

// String is the delay as JSON has it.
func (d Delay) String() string {
	if d.Duration == NoLimit {
		return infinity
	}
	return d.Duration.String()
}

// MarshalText writes the delay.
func (d Delay) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText has written.
func (d *Delay) UnmarshalText(text []byte) (err error) {
	if string(text) == infinity {
		d.Duration = NoLimit
		return nil
	}
	d.Duration, err = time.ParseDuration(string(text))
	return err
}
