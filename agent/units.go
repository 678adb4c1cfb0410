package agent

import (
	"context"
	"slices"
	"time"

	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/systemd"
)

// unitBound is how long a unit that is to be stopped waits until that is on disk.
const unitBound = time.Second

// units are systemd's as runtimes see them, who stop some for containers of theirs.
type units struct {
	*systemd.Manager
	stops func(ctx context.Context, names []string) // is told right before; nil where nobody stops any
}

// StopUnit is that of systemd.Manager.
func (u units) StopUnit(ctx context.Context, name string, pid int) (stopping bool, err error) {
	return u.StopUnitAfter(ctx, name, pid, u.stops)
}

// Units tells of those units that there are, by name.
func (u units) Units(ctx context.Context, names ...string) (map[string]local.Unit, error) {
	known, err := u.UnitsThatAre(ctx, names...)
	list := make(map[string]local.Unit, len(known))
	for name, unit := range known {
		list[name] = local.Unit{
			Instance: unit.FromTemplate(), AtBoot: unit.AtBoot(), Runs: unit.Runs(), Starts: unit.Starts(),
			Oneshot: unit.Type == "oneshot" && !unit.RemainAfterExit, Main: int(unit.MainPID), TimeoutStop: unit.TimeoutStop,
		}
	}
	return list, err
}

// unitStops puts on record that a unit is about to be stopped for a container of it, and others
// with it: where the shutdown is called off they are started again, whatever becomes of this
// process. What a person drains stays down.
func (a *Agent) unitStops(ctx context.Context, names []string) {
	if g := a.guard.Status(); g.ByHand != nil && g.State != shutdown.Draining {
		a.journal.WaiveUnits(func(owed string) bool { return slices.Contains(names, owed) })
		return
	}
	for _, name := range names {
		a.journal.OweUnit(name, time.Now())
	}
	ctx, cancel := context.WithTimeout(ctx, unitBound)
	defer cancel()
	a.journal.Flush(ctx)
}
