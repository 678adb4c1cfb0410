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

// unitsBound bounds how long to wait for systemd's answer about units. While systemd reloads its
// units it does not answer, and a list of containers must not wait for that.
const unitsBound = 2 * time.Second

// QueryUnits requests units by name, for a list of containers. It takes at most a quarter of the
// time until ctx's deadline.
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

// unitPoll is the interval of requests for the progress of a stop.
const unitPoll = 200 * time.Millisecond

// UnitStop is the stop of a unit that runs a container.
type UnitStop struct {
	Units Units
	Name  string        // unit name
	Query time.Duration // timeout of one request
	Log   *slog.Logger
}

// Begin begins to stop the unit, if it runs and the process pid belongs to it, and reports whether
// it did. pid 0 skips the check of the process. Errors begin with what.
func (s UnitStop) Begin(ctx context.Context, what string, pid int) (stopping bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.Query)
	defer cancel()
	if stopping, err = s.Units.StopUnit(ctx, s.Name, pid, runtime.ReportUnitStops); err != nil {
		return false, fmt.Errorf("%s: stop its systemd unit: %w", what, err)
	}
	return stopping, nil
}

// holdMargin is added to a container's grace as the maximum time for which the stop of its unit is
// held.
const holdMargin = 30 * time.Second

// Hold queues the stop of the unit before its last containers are stopped. Otherwise systemd could
// start them again when they end. end begins the stop, or cancels it. It is nil if systemd does not
// hold the stop.
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

// AwaitTurn waits until the stop begins that was requested at asked. systemd first stops units that
// are ordered after this one; until then, its containers get no stop signal. before is the last
// time at which the stop had not begun. If ctx ends first, it returns an error that begins with
// what. If systemd does not answer, AwaitTurn does not wait.
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

// AwaitOver waits until the unit does not run any more. It returns false if ctx ends first, or if
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
