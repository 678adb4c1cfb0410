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

// Unit is a loaded unit, which may be older than its files (NeedDaemonReload). It has a field for
// each property that hostler uses. See org.freedesktop.systemd1(5).
type Unit struct {
	Name          string
	LoadState     string // "loaded", "not-found", "masked", ...
	ActiveState   string // "active", "inactive", "failed", ...
	UnitFileState string // "enabled", "disabled", ...; empty without a file

	FragmentPath     string   // the unit file
	DropInPaths      []string // and what adds to it
	NeedDaemonReload bool
	Before, After    []string
	PulledInBy       []string // units with which systemd starts it: WantedBy, RequiredBy, TriggeredBy and the like
	StoppedWithIt    []string // units that systemd stops with it: RequiredBy, ConsistsOf and the like
	CanStart         bool
	Began            time.Time // when its last start began

	Job        bool          // it has a job: a start, a stop, ...
	JobTimeout time.Duration // how long a job may wait and run; zero for no limit

	// Only for services:

	Type                   string
	RemainAfterExit        bool          // it stays active after its processes have ended
	NotifyAccess           string        // who may send notifications: "main", "none", ...
	Restart                string        // when systemd restarts it: "no", "on-failure", ...
	TimeoutStop            time.Duration // zero for no limit
	FileDescriptorStoreMax uint32
	MainPID                uint32
	Result                 string // of its last run: "success", "exit-code", ...

	// Err is why it could not be read; then all but Name is empty.
	Err error
}

// Units returns units in the order of names. It loads them if necessary, but starts nothing.
func (t *Talk) Units(ctx context.Context, names ...string) []Unit {
	units, _ := concurrently(names, func(name string) (Unit, error) { // errors are in the Units
		values, err := t.unit(ctx, name)
		if err != nil {
			return Unit{Name: name, Err: withUnit(name, err)}, nil
		}
		return newUnit(name, values), nil
	})
	return units
}

// Unit returns one unit. It loads the unit if necessary, but starts nothing.
func (m *Manager) Unit(ctx context.Context, name string) (Unit, error) {
	return ask(ctx, m, "get properties of "+name, func(ctx context.Context, conn *dbus.Conn) (Unit, error) {
		values, err := newTalk(conn).unit(ctx, name)
		return newUnit(name, values), err
	})
}

// UnitsThatAre returns the units that exist, by name. It skips invalid names, and returns none if
// there is no systemd.
func (m *Manager) UnitsThatAre(ctx context.Context, names ...string) (map[string]Unit, error) {
	return orAbsent[map[string]Unit](nil)(ask(ctx, m, "get properties of units", func(ctx context.Context, conn *dbus.Conn) (map[string]Unit, error) {
		units := map[string]Unit{}
		for _, name := range names {
			unit, err := readUnit(ctx, conn, name)
			switch {
			case bus.ErrorName(err) == "org.freedesktop.DBus.Error.InvalidArgs":
			case err != nil:
				return nil, fmt.Errorf("%s: %w", name, err)
			case unit.LoadState != "not-found":
				units[name] = unit
			}
		}
		return units, nil
	}))
}

// AtBoot reports whether systemd starts the unit at boot, as after `systemctl enable`. Generated
// and static units start if other units want them. A masked unit is still wanted by the same units
// as before. A unit that is enabled only in /run is not enabled after the next boot.
func (u Unit) AtBoot() bool {
	switch {
	case u.LoadState != "loaded", u.UnitFileState == "enabled-runtime":
		return false
	}
	return u.UnitFileState == "enabled" || len(u.PulledInBy) > 0
}

// Runs reports whether there is anything to stop.
func (u Unit) Runs() bool { return !over(u.ActiveState) }

// Starts reports whether the unit is starting.
func (u Unit) Starts() bool { return u.ActiveState == "activating" }

// FromTemplate reports whether the unit has no file of its own: its template provides a unit for
// any instance name.
func (u Unit) FromTemplate() bool {
	return strings.HasSuffix(strings.TrimSuffix(u.FragmentPath, path.Ext(u.FragmentPath)), "@")
}

// readUnit loads a unit by its name.
func readUnit(ctx context.Context, conn *dbus.Conn, name string) (Unit, error) {
	var object dbus.ObjectPath
	if err := bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".LoadUnit", &object, name); err != nil {
		return Unit{}, err
	}
	var values map[string]dbus.Variant
	if err := bus.Call(ctx, conn, bus.Systemd, object, propertiesAll, &values, ""); err != nil {
		return Unit{}, err
	}
	return newUnit(name, values), nil
}

// newUnit returns the unit with these properties.
func newUnit(name string, values map[string]dbus.Variant) Unit {
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
		PulledInBy:             named(values, "WantedBy", "RequiredBy", "UpheldBy", "BoundBy", "TriggeredBy"),
		StoppedWithIt:          named(values, "RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo"),
		CanStart:               value[bool](values, "CanStart"),
		Began:                  moment(value[uint64](values, "InactiveExitTimestamp")),
		Job:                    hasJob(values["Job"]),
		JobTimeout:             limit(value[uint64](values, "JobTimeoutUSec")),
		Type:                   value[string](values, "Type"),
		RemainAfterExit:        value[bool](values, "RemainAfterExit"),
		NotifyAccess:           value[string](values, "NotifyAccess"),
		Restart:                value[string](values, "Restart"),
		TimeoutStop:            limit(value[uint64](values, "TimeoutStopUSec")),
		FileDescriptorStoreMax: value[uint32](values, "FileDescriptorStoreMax"),
		MainPID:                value[uint32](values, "MainPID"),
		Result:                 value[string](values, "Result"),
	}
}

// hasJob reports whether a unit's property Job, a job's number and object, names a job.
func hasJob(property dbus.Variant) bool {
	job, _ := property.Value().([]any)
	return len(job) > 0 && job[0] != uint32(0)
}

// named returns the units in some properties.
func named(values map[string]dbus.Variant, properties ...string) (names []string) {
	for _, property := range properties {
		names = append(names, value[[]string](values, property)...)
	}
	return names
}

// value returns a property, or the zero value if there is none of that name and type.
func value[T any](values map[string]dbus.Variant, name string) T {
	v, _ := values[name].Value().(T)
	return v
}

// moment converts a time from systemd; zero means never.
func moment(microseconds uint64) time.Time {
	if microseconds == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(microseconds))
}

// limit converts a timeout from systemd; infinity becomes 0, no limit.
func limit(microseconds uint64) time.Duration {
	if d := fromMicroseconds(microseconds); d < math.MaxInt64 {
		return d
	}
	return 0
}

// Scopes returns, for each active unit that matches one of the patterns (in systemctl's syntax),
// whether it is ordered before a unit. With an error, the result has only the units that could be
// read.
func (t *Talk) Scopes(ctx context.Context, before string, patterns ...string) (map[string]bool, error) {
	list, err := t.active(ctx, patterns...)
	if err != nil || len(list) == 0 {
		return map[string]bool{}, err
	}
	ordered := map[string]bool{}
	// Units that are ordered before a unit are in its property After, so one answer is usually
	// enough. Units that are not in it, or all if it is missing, are queried individually.
	var after dbus.Variant
	if err := t.call(ctx, unitPath(before), bus.Properties+".Get", &after, systemdUnit, "After"); err == nil {
		names, _ := after.Value().([]string)
		for _, name := range names {
			ordered[name] = true
		}
	}
	reported := map[string]bool{}
	var others []listedUnit
	for _, unit := range list {
		if ordered[unit.Name] {
			reported[unit.Name] = true
		} else {
			others = append(others, unit)
		}
	}
	type order struct {
		name string
		gone bool // its container has ended
		is   bool
	}
	answers, err := concurrently(others, func(unit listedUnit) (order, error) {
		var precedes dbus.Variant
		err := t.call(ctx, unit.Path, bus.Properties+".Get", &precedes, systemdUnit, "Before")
		if name := bus.ErrorName(err); name == "org.freedesktop.systemd1.NoSuchUnit" || name == "org.freedesktop.DBus.Error.UnknownObject" {
			return order{gone: true}, nil
		}
		names, _ := precedes.Value().([]string)
		return order{name: unit.Name, is: slices.Contains(names, before)}, withUnit(unit.Name, err)
	})
	for _, o := range answers {
		if !o.gone {
			reported[o.name] = o.is
		}
	}
	return reported, err
}

// listedUnit is an element of the answer to ListUnitsByPatterns, field by field.
type listedUnit struct {
	Name, Description                string
	LoadState, ActiveState, SubState string
	Following                        string
	Path                             dbus.ObjectPath
	JobID                            uint32
	JobType                          string
	JobPath                          dbus.ObjectPath
}
