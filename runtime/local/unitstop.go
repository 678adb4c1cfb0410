package local

import (
	"context"
	"log/slog"
	"time"
)

// unitPoll is how often systemd is asked how far the stop of a unit is.
const unitPoll = 200 * time.Millisecond

// UnitStop is the stop of a unit that systemd was asked for.
type UnitStop struct {
	Units Units
	Name  string        // of the unit
	Query time.Duration // how long one question may take
	Log   *slog.Logger
}

// AwaitTurn waits until the stop begins, which was asked for at a moment: systemd stops others
// first that are ordered after the unit, and a container of it has not been asked to end before
// that. It returns the last moment at which the stop had not begun, and false if ctx ends first.
// Where systemd does not answer, nobody waits for it.
func (s UnitStop) AwaitTurn(ctx context.Context, asked time.Time) (before time.Time, begun bool) {
	for before = asked; ; {
		now := time.Now()
		asking, cancel := context.WithTimeout(ctx, s.Query)
		stops, err := s.Units.UnitStops(asking, s.Name)
		cancel()
		if err != nil {
			s.Log.Debug("systemd does not answer whether a unit stops", "unit", s.Name, "error", err)
		}
		if (stops || err != nil) && ctx.Err() == nil {
			return before, true
		}
		before = now
		if !pause(ctx) {
			return before, false
		}
	}
}

// AwaitOver waits until the unit does not run any more, and returns false if ctx ends first, or
// systemd does not answer.
func (s UnitStop) AwaitOver(ctx context.Context) bool {
	for {
		asking, cancel := context.WithTimeout(ctx, s.Query)
		units, err := s.Units.Units(asking, s.Name)
		cancel()
		switch {
		case err != nil:
			s.Log.Debug("systemd does not answer whether a unit runs", "unit", s.Name, "error", err)
			return false
		case !units[s.Name].Runs:
			return ctx.Err() == nil
		case !pause(ctx):
			return false
		}
	}
}

func pause(ctx context.Context) bool {
	select {
	case <-time.After(unitPoll):
		return true
	case <-ctx.Done():
		return false
	}
}
