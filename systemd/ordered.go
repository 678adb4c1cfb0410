package systemd

import (
	"context"
	"os"
	"path"
	"slices"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/systemd/bus"
)

// maxOrdered bounds how many units are looked at for the order of some: far more than a host
// orders after one service.
const maxOrdered = 500

// OrderedAfter returns, by name, the services that run and that systemd stops before each of the
// units when the host goes down, because they are ordered after it (After=, Before=), also by way
// of other units such as targets; and the same for each of these services. Services without a main
// process are left out, and so is what outlives this service itself, because that is ordered
// after it. Empty where there is no systemd.
func (m *Manager) OrderedAfter(ctx context.Context, units ...string) (map[string][]string, error) {
	return orAbsent[map[string][]string](nil)(ask(ctx, m, "ask systemd what is ordered after container units", func(ctx context.Context, conn *dbus.Conn) (map[string][]string, error) {
		talk := newTalk(conn)
		outlive, err := outliving(ctx, talk, conn)
		if err != nil {
			return nil, err
		}
		known, err := ordered(ctx, talk, units)
		if err != nil {
			return nil, err
		}
		after := map[string][]string{}
		for name, unit := range known {
			if slices.Contains(units, name) || unit.works() && !outlive[name] {
				after[name] = workingAfter(name, known, outlive)
			}
		}
		return after, nil
	}))
}

// outliving are the units that systemd stops after this service, and this service.
func outliving(ctx context.Context, talk *Talk, conn *dbus.Conn) (map[string]bool, error) {
	own, err := ownerOf(ctx, conn, os.Getpid())
	if err != nil || own == "" { // it runs by hand
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

// ordered reads units, those that are ordered after them and run, those after these, and so on.
func ordered(ctx context.Context, talk *Talk, units []string) (map[string]Unit, error) {
	known := map[string]Unit{}
	seen := map[string]bool{}
	for next := units; len(next) > 0 && len(known) < maxOrdered; {
		read, err := sideBySide(next, func(name string) (Unit, error) {
			values, err := talk.unit(ctx, name)
			if bus.ErrorName(err) == "org.freedesktop.DBus.Error.InvalidArgs" { // no name of a unit
				return Unit{Name: name}, nil
			}
			return newUnit(name, values), about(name, err)
		})
		if err != nil {
			return nil, err
		}
		next = nil
		for _, unit := range read {
			if !slices.Contains(units, unit.Name) && !unit.Runs() {
				continue
			}
			known[unit.Name] = unit
			for _, name := range unit.Before {
				if !seen[name] && !slices.Contains(units, name) {
					seen[name], next = true, append(next, name)
				}
			}
		}
	}
	return known, nil
}

// works reports whether it is a service with a process of its own that runs.
func (u Unit) works() bool {
	return path.Ext(u.Name) == ".service" && u.Runs() && u.MainPID != 0
}

// workingAfter are the services among the known units that are ordered after one, by name, without
// those that are to outlive this service.
func workingAfter(name string, known map[string]Unit, outlive map[string]bool) (services []string) {
	seen := map[string]bool{name: true}
	for ask := slices.Clone(known[name].Before); len(ask) > 0; ask = ask[1:] {
		unit, reads := known[ask[0]]
		if seen[ask[0]] || !reads {
			continue
		}
		seen[ask[0]] = true
		ask = append(ask, unit.Before...)
		if unit.works() && !outlive[unit.Name] {
			services = append(services, unit.Name)
		}
	}
	slices.Sort(services)
	return services
}
