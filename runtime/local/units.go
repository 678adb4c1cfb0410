package local

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"hostler.io/hostler/runtime"
)

// unitsBound is how long systemd may take to answer about units: a list of what runs does not
// depend on it, and while systemd reads its units again it answers nobody.
const unitsBound = 2 * time.Second

// QueryUnits asks about the units of the names, for a list of containers. It takes no more than a
// quarter of the time that ctx leaves.
func QueryUnits(ctx context.Context, units Units, names map[string]bool) (map[string]Unit, error) {
	if len(names) == 0 {
		return nil, nil
	}
	patience := unitsBound
	if deadline, bounded := ctx.Deadline(); bounded {
		patience = min(patience, time.Until(deadline)/4)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return units.Units(ctx, slices.Sorted(maps.Keys(names))...)
}

// unitPoll is how often systemd is asked how far the stop of a unit is.
const unitPoll = 200 * time.Millisecond

// UnitStop is the stop of a unit that runs a container.
type UnitStop struct {
	Units Units
	Name  string        // of the unit
	Query time.Duration // how long one question may take
	Log   *slog.Logger
}

// Begin has systemd begin to stop the unit, if it runs and a process is of it, unless that is 0, and
// reports whether it does. what is being done is named in the error.
func (s UnitStop) Begin(ctx context.Context, what string, pid int) (stopping bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.Query)
	defer cancel()
	if stopping, err = s.Units.StopUnit(ctx, s.Name, pid, runtime.ReportUnitStops); err != nil {
		return false, fmt.Errorf("%s: stop its systemd unit: %w", what, err)
	}
	return stopping, nil
}

// holdMargin is how much longer than its grace a container may take to end while the stop of its unit
// is held.
const holdMargin = 30 * time.Second

// Hold queues the stop of the unit before its last containers are requested to end, so that systemd
// does not start them again in the moment in which they have ended. The function that it returns
// begins the stop, or withdraws it. It is nil if systemd does not hold the stop.
func (s UnitStop) Hold(ctx context.Context, grace time.Duration) (end func(begin bool)) {
	asking, cancel := context.WithTimeout(ctx, s.Query)
	defer cancel()
	hold, err := s.Units.HoldStop(asking, s.Name, grace+holdMargin, runtime.ReportUnitStops)
	if err != nil {
		s.Log.Warn("cannot delay stop of service until its containers exit, systemd may restart them", "unit", s.Name, "error", err)
	}
	if hold == nil {
		return nil
	}
	return func(begin bool) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Query)
		defer cancel()
		finish := hold.Cancel
		if begin {
			finish = hold.Release
		}
		if err := finish(ctx); err != nil {
			s.Log.Warn("cannot release delayed stop of service, the delay expires after the grace period", "unit", s.Name, "begin", begin, "error", err)
		}
	}
}

// AwaitTurn waits until the stop begins, which was requested at a moment: systemd stops others
// first that are ordered after the unit, and a container of it has not been sent the stop signal before
// that. It returns the last moment at which the stop had not started, and fails if ctx ends first:
// what is being done is named in the error. Where systemd does not answer, nobody waits for it.
func (s UnitStop) AwaitTurn(ctx context.Context, what string, asked time.Time) (before time.Time, err error) {
	for before = asked; ; {
		now := time.Now()
		asking, cancel := context.WithTimeout(ctx, s.Query)
		stops, err := s.Units.UnitStops(asking, s.Name)
		cancel()
		if err != nil {
			s.Log.Debug("cannot read from systemd whether unit is stopping", "unit", s.Name, "error", err)
		}
		if (stops || err != nil) && ctx.Err() == nil {
			return before, nil
		}
		before = now
		if !pause(ctx) {
			return before, fmt.Errorf("%s: %w while %s waits for other units to stop", what, context.Cause(ctx), s.Name)
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
			s.Log.Debug("cannot read from systemd whether unit is running", "unit", s.Name, "error", err)
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
