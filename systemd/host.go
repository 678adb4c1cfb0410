package systemd

import (
	"context"
	"time"

	"github.com/godbus/dbus/v5"
)

// Run is how systemd runs a service, by what it has loaded.
type Run struct {
	Commands    [][]string    // of ExecStart=, each with its arguments
	Environment []string      // of Environment=, as "NAME=value"; not what files hold
	Watchdog    time.Duration // in which it has to be heard of; zero where nobody waits for that
}

// Run reports how a service is run, loading it if it is not; that starts nothing. It is
// empty for a service that is not there. It asks systemd itself, which lets in root
// alone. ErrNotSystemd where there is none.
func (m *Manager) Run(ctx context.Context, service string) (Run, error) {
	return ask(ctx, m, "get properties of "+service, func(ctx context.Context, conn *dbus.Conn) (Run, error) {
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
		Commands:    commands(values["ExecStart"]),
		Environment: value[[]string](values, "Environment"),
		Watchdog:    limit(value[uint64](values, "WatchdogUSec")),
	}, nil
}

// commands are the arguments of each command in a property such as ExecStart, whose other
// fields report how it went.
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
