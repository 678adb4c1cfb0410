package systemd

import (
	"context"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/systemd/bus"
)

const (
	systemdService = bus.Systemd + ".Service"
	propertiesAll  = bus.Properties + ".GetAll"
)

// Unit is what systemd has loaded of a unit, which may be an older reading than
// its files (NeedDaemonReload). See org.freedesktop.systemd1(5).
type Unit struct {
	Name          string
	LoadState     string // "loaded", "not-found", "masked", ...
	ActiveState   string // "active", "inactive", "failed", ...
	UnitFileState string // "enabled", "disabled", ...; empty for one without a file

	FragmentPath     string   // its file
	DropInPaths      []string // and what adds to it
	NeedDaemonReload bool
	Before, After    []string
	PulledInBy       []string // units that systemd starts it with: WantedBy, RequiredBy, TriggeredBy and the like

	// JobTimeout is how long a job of it may wait and run; zero for no limit.
	JobTimeout time.Duration

	// Of a service alone:

	Type                   string
	NotifyAccess           string        // who may send notifications: "main", "none", ...
	TimeoutStop            time.Duration // zero for no limit
	FileDescriptorStoreMax uint32
	MainPID                uint32
}

// Units tells of units, in the order of names, loading those that are not; that
// starts nothing. It asks systemd itself, which lets in root alone.
// ErrNotSystemd where there is none.
func (m *Manager) Units(ctx context.Context, names ...string) ([]Unit, error) {
	return ask(ctx, m, "ask systemd for its units", func(ctx context.Context, conn *dbus.Conn) ([]Unit, error) {
		return atOnce(ctx, names, func(ctx context.Context, name string) (Unit, error) {
			unit, err := readUnit(ctx, conn, name)
			return unit, about(name, err)
		})
	})
}

// UnitsAtBoot tells of those units that there are, by name, whether systemd starts them at
// boots, as `systemctl enable` has it do; none where there is no systemd. What cannot be the
// name of a unit is none, and nor is an instance of a template that systemd does not start:
// with the template there is one of any name.
func (m *Manager) UnitsAtBoot(ctx context.Context, names ...string) (map[string]bool, error) {
	return orAbsent[map[string]bool](nil)(ask(ctx, m, "ask systemd what it starts at boots", func(ctx context.Context, conn *dbus.Conn) (map[string]bool, error) {
		enabled := map[string]bool{}
		for _, name := range names {
			unit, err := readUnit(ctx, conn, name)
			switch {
			case bus.ErrorName(err) == "org.freedesktop.DBus.Error.InvalidArgs":
			case err != nil:
				return nil, fmt.Errorf("%s: %w", name, err)
			case unit.LoadState != "not-found" && (unit.atBoot() || !unit.fromTemplate()):
				enabled[name] = unit.atBoot()
			}
		}
		return enabled, nil
	}))
}

// atBoot tells whether systemd starts it at boots. What generators have made, and what has
// nothing to be enabled by, is started where others pull it in, if they are. A unit that is
// masked is still wanted by who wanted it before, and what is enabled until the boot by a
// link that is gone after it.
func (u Unit) atBoot() bool {
	switch {
	case u.LoadState != "loaded", u.UnitFileState == "enabled-runtime":
		return false
	}
	return u.UnitFileState == "enabled" || len(u.PulledInBy) > 0
}

// fromTemplate tells whether it has no file of its own.
func (u Unit) fromTemplate() bool {
	return strings.HasSuffix(strings.TrimSuffix(u.FragmentPath, path.Ext(u.FragmentPath)), "@")
}

// pulls are the properties that name who starts a unit with itself.
func pulls() []string {
	return []string{"WantedBy", "RequiredBy", "UpheldBy", "BoundBy", "TriggeredBy"}
}

// loaded are the properties of a unit, which is loaded if it is not: those of all interfaces,
// of Unit and, for a service, of Service.
func loaded(ctx context.Context, conn *dbus.Conn, name string) (map[string]dbus.Variant, error) {
	var object dbus.ObjectPath
	if err := bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".LoadUnit", &object, name); err != nil {
		return nil, err
	}
	return properties(ctx, conn, object, "")
}

func properties(ctx context.Context, conn *dbus.Conn, path dbus.ObjectPath, of string) (values map[string]dbus.Variant, err error) {
	err = bus.Call(ctx, conn, bus.Systemd, path, propertiesAll, &values, of)
	return values, err
}

func readUnit(ctx context.Context, conn *dbus.Conn, name string) (Unit, error) {
	values, err := loaded(ctx, conn, name)
	if err != nil {
		return Unit{}, err
	}
	var pulledIn []string
	for _, property := range pulls() {
		pulledIn = append(pulledIn, value[[]string](values, property)...)
	}
	return Unit{
		Name:                   name,
		LoadState:              value[string](values, "LoadState"),
		ActiveState:            value[string](values, "ActiveState"),
		UnitFileState:          value[string](values, "UnitFileState"),
		FragmentPath:           value[string](values, "FragmentPath"),
		DropInPaths:            value[[]string](values, "DropInPaths"),
		NeedDaemonReload:       value[bool](values, "NeedDaemonReload"),
		Before:                 value[[]string](values, "Before"),
		After:                  value[[]string](values, "After"),
		PulledInBy:             pulledIn,
		JobTimeout:             limit(value[uint64](values, "JobTimeoutUSec")),
		Type:                   value[string](values, "Type"),
		NotifyAccess:           value[string](values, "NotifyAccess"),
		TimeoutStop:            limit(value[uint64](values, "TimeoutStopUSec")),
		FileDescriptorStoreMax: value[uint32](values, "FileDescriptorStoreMax"),
		MainPID:                value[uint32](values, "MainPID"),
	}, nil
}

// value is a property, or nothing where the unit has none of that name and type.
func value[T any](values map[string]dbus.Variant, name string) T {
	v, _ := values[name].Value().(T)
	return v
}

// limit is a time-out of systemd's, whose infinity is no limit.
func limit(microseconds uint64) time.Duration {
	if d := fromMicroseconds(microseconds); d < math.MaxInt64 {
		return d
	}
	return 0
}

// Scopes tells of the active units that match one of the patterns (as systemctl
// takes them) whether they are ordered before a unit, by name.
func (m *Manager) Scopes(ctx context.Context, before string, patterns ...string) (map[string]bool, error) {
	return ask(ctx, m, "ask systemd for the scopes of containers", func(ctx context.Context, conn *dbus.Conn) (map[string]bool, error) {
		return scopes(ctx, conn, before, patterns)
	})
}

func scopes(ctx context.Context, conn *dbus.Conn, before string, patterns []string) (map[string]bool, error) {
	var list []listedUnit
	if err := bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".ListUnitsByPatterns", &list, []string{"active"}, patterns); err != nil {
		return nil, err
	}
	type orders struct {
		gone  bool // its container has ended meanwhile
		after []string
	}
	answers, err := atOnce(ctx, list, func(ctx context.Context, unit listedUnit) (o orders, err error) {
		err = bus.Property(ctx, conn, bus.Systemd, unit.Path, systemdUnit, "Before", &o.after)
		if bus.ErrorName(err) == "org.freedesktop.systemd1.NoSuchUnit" || bus.ErrorName(err) == "org.freedesktop.DBus.Error.UnknownObject" {
			return orders{gone: true}, nil
		}
		return o, about(unit.Name, err)
	})
	if err != nil {
		return nil, err
	}
	ordered := map[string]bool{}
	for i, unit := range list {
		if !answers[i].gone {
			ordered[unit.Name] = slices.Contains(answers[i].after, before)
		}
	}
	return ordered, nil
}

// listedUnit is one of ListUnitsByPatterns' answer, field by field.
type listedUnit struct {
	Name, Description                string
	LoadState, ActiveState, SubState string
	Following                        string
	Path                             dbus.ObjectPath
	JobID                            uint32
	JobType                          string
	JobPath                          dbus.ObjectPath
}
