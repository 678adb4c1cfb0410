package systemd

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/systemd/bus"
)

// Run is how systemd runs a service, by what it has loaded.
type Run struct {
	Commands    [][]string    // of ExecStart= and ExecStartPost=, each with its arguments
	Environment []string      // of Environment=, as "NAME=value"; not what files hold
	Watchdog    time.Duration // in which it has to be heard of; zero where nobody waits for that
}

// Run tells how a service is run, loading it if it is not; that starts nothing. It is
// empty for a service that is not there. It asks systemd itself, which lets in root
// alone. ErrNotSystemd where there is none.
func (m *Manager) Run(ctx context.Context, service string) (Run, error) {
	return ask(ctx, m, "ask systemd how it runs "+service, func(ctx context.Context, conn *dbus.Conn) (Run, error) {
		return newTalk(conn).Run(ctx, service)
	})
}

// Run is Manager.Run.
func (t *Talk) Run(ctx context.Context, service string) (Run, error) {
	values, err := t.unit(ctx, service)
	if err != nil {
		return Run{}, err
	}
	return Run{
		Commands:    append(commands(values["ExecStart"]), commands(values["ExecStartPost"])...),
		Environment: value[[]string](values, "Environment"),
		Watchdog:    limit(value[uint64](values, "WatchdogUSec")),
	}, nil
}

// Timer is one that is active, with what it starts.
type Timer struct {
	Name string
	Runs []Run
}

// Timers are those that are active, by name. With an error it is those alone that systemd
// told of.
func (t *Talk) Timers(ctx context.Context) ([]Timer, error) {
	list, err := t.active(ctx, "*.timer")
	if err != nil {
		return nil, err
	}
	timers, err := sideBySide(list, func(unit listedUnit) (Timer, error) { return t.timer(ctx, unit) })
	slices.SortFunc(timers, func(a, b Timer) int { return cmp.Compare(a.Name, b.Name) })
	return timers, err
}

func (t *Talk) timer(ctx context.Context, unit listedUnit) (Timer, error) {
	timer := Timer{Name: unit.Name}
	var starts dbus.Variant
	if err := t.call(ctx, unit.Path, bus.Properties+".Get", &starts, systemdUnit, "Triggers"); err != nil {
		return timer, about(unit.Name, err)
	}
	services, _ := starts.Value().([]string)
	for _, service := range services {
		run, err := t.Run(ctx, service)
		if err != nil {
			return timer, about(service, err)
		}
		timer.Runs = append(timer.Runs, run)
	}
	return timer, nil
}

// commands are the arguments of each command in a property such as ExecStart, whose other
// fields tell how it went.
func commands(property dbus.Variant) [][]string {
	list, _ := property.Value().([][]any)
	var all [][]string
	for _, fields := range list {
		if len(fields) > 1 {
			if arguments, ok := fields[1].([]string); ok {
				all = append(all, arguments)
			}
		}
	}
	return all
}
