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

// maxOrdered bounds how many units are read for the order of some: far more than a host
// orders after one service.
const maxOrdered = 500

// OrderedAfter returns, by name, the services that run and that systemd stops before each of the
// units when the host goes down, because they are ordered after it (After=, Before=), also by way
// of other units such as targets; and the same for each of these services. Services without a process
// are left out, unless their stop runs a command. Such a service does not count after a runtime, which
// this service is ordered after: its command may be the one that stops containers, such as `docker
// compose down`. What outlives this service itself is left out, too. Empty where there is no systemd.
func (m *Manager) OrderedAfter(ctx context.Context, units ...string) (map[string][]string, error) {
	return orAbsent[map[string][]string](nil)(ask(ctx, m, "list units ordered after container units", func(ctx context.Context, conn *dbus.Conn) (map[string][]string, error) {
		talk := newTalk(conn)
		known, err := ordered(ctx, talk, units)
		if err != nil {
			return nil, err
		}
		var outlive map[string]bool
		if stops := func(u orderedUnit) bool { return u.works || u.command }; slices.ContainsFunc(slices.Collect(maps.Values(known)), stops) { // else nobody is to be stopped
			if outlive, err = outliving(ctx, talk, conn); err != nil {
				return nil, err
			}
		}
		after := map[string][]string{}
		for name, unit := range known {
			if slices.Contains(units, name) || (unit.works || unit.command) && !outlive[name] {
				after[name] = workingAfter(name, known, outlive)
			}
		}
		return after, nil
	}))
}

// outliving are the units that systemd stops after this service, and this service.
func outliving(ctx context.Context, talk *Talk, conn *dbus.Conn) (map[string]bool, error) {
	own, err := ownerOf(ctx, conn, os.Getpid())
	if err != nil || own == "" { // it runs manually
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

// orderedUnit is what counts of a unit for the order of others.
type orderedUnit struct {
	name    string
	runs    bool
	works   bool     // it is a service that has a process
	command bool     // it is a service without a process whose stop runs a command
	before  []string // units that are ordered after it
}

// ordered reads units, those that are ordered after them and run, those after these, and so on.
func ordered(ctx context.Context, talk *Talk, units []string) (map[string]orderedUnit, error) {
	known := map[string]orderedUnit{}
	seen := map[string]bool{}
	for next := units; len(next) > 0 && len(known) < maxOrdered; {
		read, err := sideBySide(next, func(name string) (orderedUnit, error) {
			unit, err := readOrdered(ctx, talk, name)
			return unit, about(name, err)
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

// readOrdered reads the few properties that count: the pods' time runs.
func readOrdered(ctx context.Context, talk *Talk, name string) (orderedUnit, error) {
	unit := orderedUnit{name: name}
	var active string
	if err := talk.property(ctx, name, systemdUnit, "ActiveState", &active); err != nil || over(active) {
		if bus.ErrorName(err) == "org.freedesktop.DBus.Error.InvalidArgs" { // no name of a unit
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
		unit.works = pid != 0
		return unit, err
	}
	var state string
	if err := talk.property(ctx, name, systemdUnit, "SubState", &state); err != nil || state != "exited" {
		unit.works = err == nil // its processes, as those of one of Type=forking whose main process is not known
		return unit, err
	}
	var err error
	unit.command, err = runsAtStop(ctx, talk, name)
	return unit, err
}

// runsAtStop reports whether the stop of a service runs a command. One of Type=oneshot with
// RemainAfterExit= may, that has no process any more, and may need what it is ordered after.
func runsAtStop(ctx context.Context, talk *Talk, name string) (bool, error) {
	for _, property := range []string{"ExecStop", "ExecStopPost"} {
		var commands [][]any
		if err := talk.property(ctx, name, systemdService, property, &commands); err != nil || len(commands) > 0 {
			return len(commands) > 0, err
		}
	}
	return false, nil
}

// workingAfter are the services among the known units that are ordered after one, by name, without
// those that are to outlive this service.
func workingAfter(name string, known map[string]orderedUnit, outlive map[string]bool) (services []string) {
	seen := map[string]bool{name: true}
	for ask := slices.Clone(known[name].before); len(ask) > 0; ask = ask[1:] {
		unit, reads := known[ask[0]]
		if seen[ask[0]] || !reads {
			continue
		}
		seen[ask[0]] = true
		ask = append(ask, unit.before...)
		if (unit.works || unit.command && !outlive[name]) && !outlive[unit.name] {
			services = append(services, unit.name)
		}
	}
	slices.Sort(services)
	return services
}
