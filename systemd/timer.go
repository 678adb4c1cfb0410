package systemd

import (
	"context"

	"hostler.io/hostler/systemd/bus"
)

// Timer is a timer unit, and what it starts.
type Timer struct {
	Name   string
	Starts string // the unit that it starts
	// Commands are those of the Exec lines of that unit, each with its arguments.
	Commands [][]string
	// SuccessAction is what systemd does when that unit has ended, such as "reboot".
	SuccessAction string
}

// Active lists the names of active units that match one of the patterns, as systemctl takes them.
func (t *Talk) Active(ctx context.Context, patterns ...string) (names []string, err error) {
	list, err := t.active(ctx, patterns...)
	for _, unit := range list {
		names = append(names, unit.Name)
	}
	return names, err
}

// Timers returns timers by their names, and the error of one that systemd did not report, if any.
func (t *Talk) Timers(ctx context.Context, names ...string) ([]Timer, error) {
	return sideBySide(names, func(name string) (Timer, error) {
		timer := Timer{Name: name}
		if err := t.property(ctx, name, bus.Systemd+".Timer", "Unit", &timer.Starts); err != nil {
			return timer, about(name, err)
		}
		values, err := t.unit(ctx, timer.Starts)
		for _, property := range []string{"ExecStartPre", "ExecStart", "ExecStartPost", "ExecStopPost"} {
			timer.Commands = append(timer.Commands, commands(values[property])...)
		}
		timer.SuccessAction = value[string](values, "SuccessAction")
		return timer, about(timer.Starts, err)
	})
}
