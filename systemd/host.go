package systemd

import (
	"context"
	"time"

	"github.com/godbus/dbus/v5"
)

// Run is how systemd runs a service, according to the loaded unit.
type Run struct {
	Commands    [][]string    // of ExecStart=, each with its arguments
	Environment []string      // of Environment=, as "NAME=value"; without those of EnvironmentFile=
	Watchdog    time.Duration // watchdog timeout; zero if there is none
}

// Run reports how a service is run. It loads the unit if necessary, but starts nothing. For a
// missing service it returns an empty Run. It queries systemd itself, which accepts only root.
// Without systemd the error is ErrNotSystemd.
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

// commands returns the arguments of each command in a property such as ExecStart. It drops the
// other fields, which describe the last run.
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
