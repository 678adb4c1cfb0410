package systemd

import (
	"context"
	"maps"
	"os"
	"path"
	"slices"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/systemd/bus"
)

// maxOrdered bounds how many units are read to find the order. It is far more than a host orders
// after one service.
const maxOrdered = 500

// OrderedAfter returns, for each of the units, the running services that systemd stops before it at
// shutdown. They are ordered after it (After=, Before=), possibly through other units such as
// targets. The result also has the same for each of these services. Services without a process are
// omitted, unless their stop runs a command. Such a service does not count for a runtime, after
// which this service is ordered. Its command may be the one that stops containers, such as `docker
// compose down`. Units that stop after this service are omitted, too. Without systemd, the result
// is empty.
func (m *Manager) OrderedAfter(ctx context.Context, units ...string) (map[string][]string, error) {
	return orAbsent[map[string][]string](nil)(ask(ctx, m, "list units ordered after container units", func(ctx context.Context, conn *dbus.Conn) (map[string][]string, error) {
		talk := newTalk(conn)
		known, err := ordered(ctx, talk, units)
		if err != nil {
			return nil, err
		}
		var outlive map[string]bool
		if stops := func(u orderedUnit) bool { return u.hasProcess || u.command }; slices.ContainsFunc(slices.Collect(maps.Values(known)), stops) { // else there is nothing to stop
			if outlive, err = outliving(ctx, talk, conn); err != nil {
				return nil, err
			}
		}
		after := map[string][]string{}
		for name, unit := range known {
			if slices.Contains(units, name) || (unit.hasProcess || unit.command) && !outlive[name] {
				after[name] = workingAfter(name, known, outlive)
			}
		}
		return after, nil
	}))
}

// outliving returns this service, and the units that systemd stops after it.
func outliving(ctx context.Context, talk *Talk, conn *dbus.Conn) (map[string]bool, error) {
	own, err := ownerOf(ctx, conn, os.Getpid())
	if err != nil || own == "" { // the agent was started manually
		return nil, err
	}
	values, err := talk.properties(ctx, own, systemdUnit)
	if err != nil {
		return nil, err
	}
	outlive := map[string]bool{value[string](values, "Id"): true}
	for _, name := range value[[]string](values, "After") {
		if path.Ext(name) == ".service" {
			outlive[name] = true
		}
	}
	return outlive, nil
}

// orderedUnit has the properties of a unit that matter for the order of others.
type orderedUnit struct {
	name       string
	runs       bool
	hasProcess bool     // a service that has a process
	command    bool     // a service without a process whose stop runs a command
	before     []string // units that are ordered after it
}

// ordered reads the units, the running units that are ordered after them, those after these, and so
// on.
func ordered(ctx context.Context, talk *Talk, units []string) (map[string]orderedUnit, error) {
	known := map[string]orderedUnit{}
	seen := map[string]bool{}
	for next := units; len(next) > 0 && len(known) < maxOrdered; {
		read, err := concurrently(next, func(name string) (orderedUnit, error) {
			unit, err := readOrdered(ctx, talk, name)
			return unit, withUnit(name, err)
		})
		if err != nil {
			return nil, err
		}
		next = nil
		for _, unit := range read {
			if !slices.Contains(units, unit.name) && !unit.runs {
				continue
			}
			known[unit.name] = unit
			for _, name := range unit.before {
				if !seen[name] && !slices.Contains(units, name) {
					seen[name], next = true, append(next, name)
				}
			}
		}
	}
	return known, nil
}

// readOrdered reads only the necessary properties, because the pods' grace periods are running.
func readOrdered(ctx context.Context, talk *Talk, name string) (orderedUnit, error) {
	unit := orderedUnit{name: name}
	var active string
	if err := talk.property(ctx, name, systemdUnit, "ActiveState", &active); err != nil || over(active) {
		if bus.ErrorName(err) == "org.freedesktop.DBus.Error.InvalidArgs" { // not a valid unit name
			err = nil
		}
		return unit, err
	}
	unit.runs = true
	if err := talk.property(ctx, name, systemdUnit, "Before", &unit.before); err != nil {
		return unit, err
	}
	if path.Ext(name) != ".service" {
		return unit, nil
	}
	var pid uint32
	if err := talk.property(ctx, name, systemdService, "MainPID", &pid); err != nil || pid != 0 {
		unit.hasProcess = pid != 0
		return unit, err
	}
	var state string
	if err := talk.property(ctx, name, systemdUnit, "SubState", &state); err != nil || state != "exited" {
		unit.hasProcess = err == nil // it has processes, as with Type=forking without a known main process
		return unit, err
	}
	var err error
	unit.command, err = runsAtStop(ctx, talk, name)
	return unit, err
}

// runsAtStop reports whether the stop of a service runs a command. Type=oneshot with
// RemainAfterExit= may have one without having a process, and the command may need the units after
// which it is ordered.
func runsAtStop(ctx context.Context, talk *Talk, name string) (bool, error) {
	for _, property := range []string{"ExecStop", "ExecStopPost"} {
		var commands [][]any
		if err := talk.property(ctx, name, systemdService, property, &commands); err != nil || len(commands) > 0 {
			return len(commands) > 0, err
		}
	}
	return false, nil
}

// workingAfter returns the known services that are ordered after a unit, sorted, without those that
// must outlive this service.
func workingAfter(name string, known map[string]orderedUnit, outlive map[string]bool) (services []string) {
	seen := map[string]bool{name: true}
	for ask := slices.Clone(known[name].before); len(ask) > 0; ask = ask[1:] {
		unit, reads := known[ask[0]]
		if seen[ask[0]] || !reads {
			continue
		}
		seen[ask[0]] = true
		ask = append(ask, unit.before...)
		if (unit.hasProcess || unit.command && !outlive[name]) && !outlive[unit.name] {
			services = append(services, unit.name)
		}
	}
	slices.Sort(services)
	return services
}
