package systemd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
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
	const operation = "ask systemd for its units"
	conn, ctx, closeAll, err := m.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", operation, err)
	}
	defer closeAll()
	var units []Unit
	for _, name := range names {
		unit, err := readUnit(ctx, conn, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", operation, name, err)
		}
		units = append(units, unit)
	}
	return units, nil
}

// UnitsAtBoot tells of those units that there are, by name, whether systemd starts them at
// boots, as `systemctl enable` has it do; none where there is no systemd. What cannot be the
// name of a unit is none.
func (m *Manager) UnitsAtBoot(ctx context.Context, names ...string) (map[string]bool, error) {
	const operation = "ask systemd what it starts at boots"
	conn, ctx, closeAll, err := m.connect(ctx)
	if errors.Is(err, ErrNotSystemd) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", operation, err)
	}
	defer closeAll()
	enabled := map[string]bool{}
	for _, name := range names {
		unit, err := readUnit(ctx, conn, name)
		switch {
		case bus.ErrorName(err) == "org.freedesktop.DBus.Error.InvalidArgs":
		case err != nil:
			return nil, fmt.Errorf("%s: %s: %w", operation, name, err)
		case unit.LoadState != "not-found":
			enabled[name] = unit.UnitFileState == "enabled"
		}
	}
	return enabled, nil
}

func readUnit(ctx context.Context, conn *dbus.Conn, name string) (Unit, error) {
	var path dbus.ObjectPath
	if err := bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".LoadUnit", &path, name); err != nil {
		return Unit{}, err
	}
	// Those of all interfaces: of Unit and, for a service, of Service.
	var values map[string]dbus.Variant
	if err := bus.Call(ctx, conn, bus.Systemd, path, propertiesAll, &values, ""); err != nil {
		return Unit{}, err
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
	const operation = "ask systemd for the scopes of containers"
	conn, ctx, closeAll, err := m.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", operation, err)
	}
	defer closeAll()
	var list []listedUnit
	err = bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".ListUnitsByPatterns", &list, []string{"active"}, patterns)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", operation, err)
	}
	ordered := map[string]bool{}
	for _, unit := range list {
		var after []string
		if err := bus.Property(ctx, conn, bus.Systemd, unit.Path, systemdUnit, "Before", &after); err != nil {
			if bus.ErrorName(err) == "org.freedesktop.systemd1.NoSuchUnit" || bus.ErrorName(err) == "org.freedesktop.DBus.Error.UnknownObject" {
				continue // its container has ended meanwhile
			}
			return nil, fmt.Errorf("%s: %s: %w", operation, unit.Name, err)
		}
		ordered[unit.Name] = slices.Contains(after, before)
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
