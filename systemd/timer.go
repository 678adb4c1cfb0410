package systemd

import (
	"context"

	"hostler.io/hostler/systemd/bus"
)

// Timer is a timer unit and the unit that it starts.
type Timer struct {
	Name   string
	Starts string // the unit that it starts
	// Commands are the commands in the Exec settings of that unit, each with its arguments.
	Commands [][]string
	// SuccessAction is what systemd does when that unit has ended, such as "reboot".
	SuccessAction string
}

// Active lists the names of active units that match one of the patterns, in systemctl's syntax.
func (t *Talk) Active(ctx context.Context, patterns ...string) (names []string, err error) {
	list, err := t.active(ctx, patterns...)
	for _, unit := range list {
		names = append(names, unit.Name)
	}
	return names, err
}

// Timers returns timers by name, and the error of a timer that could not be read, if any.
func (t *Talk) Timers(ctx context.Context, names ...string) ([]Timer, error) {
	return concurrently(names, func(name string) (Timer, error) {
		timer := Timer{Name: name}
		if err := t.property(ctx, name, bus.Systemd+".Timer", "Unit", &timer.Starts); err != nil {
			return timer, withUnit(name, err)
		}
		values, err := t.unit(ctx, timer.Starts)
		for _, property := range []string{"ExecStartPre", "ExecStart", "ExecStartPost", "ExecStopPost"} {
			timer.Commands = append(timer.Commands, commands(values[property])...)
		}
		timer.SuccessAction = value[string](values, "SuccessAction")
		return timer, withUnit(timer.Starts, err)
	})
}
