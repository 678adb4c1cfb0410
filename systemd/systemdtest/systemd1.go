package systemdtest

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

const (
	systemdName    = "org.freedesktop.systemd1"
	systemdPath    = dbus.ObjectPath("/org/freedesktop/systemd1")
	systemdManager = "org.freedesktop.systemd1.Manager"
	systemdUnit    = "org.freedesktop.systemd1.Unit"
	logindUnitPath = dbus.ObjectPath("/org/freedesktop/systemd1/unit/systemd_2dlogind_2eservice")
	shutdownPath   = dbus.ObjectPath("/org/freedesktop/systemd1/unit/shutdown_2etarget")
	servicePath    = dbus.ObjectPath("/org/freedesktop/systemd1/unit/some_2eservice")
	serviceJob     = dbus.ObjectPath("/org/freedesktop/systemd1/job/7")
	systemdService = "org.freedesktop.systemd1.Service"
)

// ManagerState is what the fake manager says of itself. The zero value is a
// system that never heard of a shutdown.
type ManagerState struct {
	SystemState    string // "running", "starting", "stopping", ...
	ShutdownLoaded bool   // whether shutdown.target is loaded
	ShutdownState  string // its ActiveState
	ShutdownJob    uint32 // its job, or 0
	StartedAtUsec  uint64 // UserspaceTimestamp
	Service        ServiceState
	Units          map[string]UnitState // others that are there, by name
}

// UnitState are properties of a unit; it is loaded and inactive where they do not say.
type UnitState map[string]any

// ServiceState is that of a service beside logind's, if it has a name.
type ServiceState struct {
	Name        string
	ActiveState string
	Job         string // type of the job that is queued, such as "start"; or empty
	MainPID     uint32
	Members     []uint32 // processes in its cgroup
}

// systemd1 is the fake manager: on the bus for logind's reload, and on its
// private socket.
type systemd1 struct {
	service   *service
	canReload bool // whether logind's unit can reload
	stops     bool // whether a job to stop it is queued

	mu      sync.Mutex
	state   ManagerState
	reloads []string
	stopped []string
	started []string
}

func newSystemd1(canReload, stops bool, reload func() error) *systemd1 {
	m := &systemd1{canReload: canReload, stops: stops, state: ManagerState{SystemState: "running"}}
	get := func(read func(ManagerState) any) func() any {
		return func() any { m.mu.Lock(); defer m.mu.Unlock(); return read(m.state) }
	}
	job := func(s ManagerState) any {
		path := dbus.ObjectPath("/")
		if s.ShutdownJob != 0 {
			path = dbus.ObjectPath(fmt.Sprintf("%s/job/%d", systemdPath, s.ShutdownJob))
		}
		return struct {
			ID   uint32
			Path dbus.ObjectPath
		}{s.ShutdownJob, path}
	}
	reloaded := func(how string) *dbus.Error {
		m.mu.Lock()
		m.reloads = append(m.reloads, how)
		m.mu.Unlock()
		if err := reload(); err != nil {
			return fault(busError+"Failed", "%v", err)
		}
		return nil
	}
	m.service = &service{name: systemdName, objects: map[dbus.ObjectPath]object{
		systemdPath: {systemdManager: iface{
			methods: map[string]method{
				"GetUnit":      {"s", m.getUnit},
				"GetUnitByPID": {"u", m.getUnitByPID},
				"LoadUnit":     {"s", func(args []any) ([]any, *dbus.Error) { return []any{unitPath(args[0].(string))}, nil }},
				"StopUnit":     {"ss", m.stopUnit},
				"StartUnit":    {"ss", m.startUnit},
				"KillUnit":     {"ssi", func(args []any) ([]any, *dbus.Error) { return nil, m.killUnit(args, reloaded) }},
				"ReloadUnit":   {"ss", func(args []any) ([]any, *dbus.Error) { return m.reloadUnit(args, reloaded) }},

				"ListUnitsByPatterns": {"asas", m.listUnits},
			},
			properties: map[string]func() any{
				"SystemState":        get(func(s ManagerState) any { return s.SystemState }),
				"UserspaceTimestamp": get(func(s ManagerState) any { return s.StartedAtUsec }),
				"Version":            func() any { return "252.fake" },
			},
		}},
		logindUnitPath: {systemdUnit: iface{properties: map[string]func() any{"CanReload": func() any { return m.canReload }}}},
		servicePath: {
			systemdUnit: iface{properties: map[string]func() any{
				"Id":          get(func(s ManagerState) any { return s.Service.Name }),
				"ActiveState": get(func(s ManagerState) any { return s.Service.ActiveState }),
				"Job":         get(func(s ManagerState) any { return queued(s.Service.Job) }),
			}},
			systemdService: iface{properties: map[string]func() any{"MainPID": get(func(s ManagerState) any { return s.Service.MainPID })}},
		},
		serviceJob: {systemdName + ".Job": iface{properties: map[string]func() any{"JobType": get(func(s ManagerState) any { return s.Service.Job })}}},
		shutdownPath: {systemdUnit: iface{properties: map[string]func() any{
			"ActiveState": get(func(s ManagerState) any { return s.ShutdownState }),
			"Job":         get(job),
		}}},
	}}
	m.service.more = m.unit
	return m
}

// queued is a unit's property Job, of one that is that of a service.
func queued(kind string) any {
	if kind == "" {
		return struct {
			ID   uint32
			Path dbus.ObjectPath
		}{0, "/"}
	}
	return struct {
		ID   uint32
		Path dbus.ObjectPath
	}{7, serviceJob}
}

func (m *systemd1) getUnit(args []any) ([]any, *dbus.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch name := args[0].(string); {
	case name == "systemd-logind.service":
		return []any{logindUnitPath}, nil
	case name == "shutdown.target" && m.state.ShutdownLoaded:
		return []any{shutdownPath}, nil
	case name != "" && name == m.state.Service.Name:
		return []any{servicePath}, nil
	default:
		return nil, fault("org.freedesktop.systemd1.NoSuchUnit", "unit %s not loaded", name)
	}
}

func (m *systemd1) getUnitByPID(args []any) ([]any, *dbus.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if pid := args[0].(uint32); !slices.Contains(m.state.Service.Members, pid) {
		return nil, fault("org.freedesktop.systemd1.NoUnitForPID", "PID %d does not belong to any loaded unit", pid)
	}
	return []any{servicePath}, nil
}

func (m *systemd1) stopUnit(args []any) ([]any, *dbus.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	unit, mode := args[0].(string), args[1].(string)
	switch {
	case unit == "" || unit != m.state.Service.Name:
		return nil, fault("org.freedesktop.systemd1.NoSuchUnit", "unit %s not loaded", unit)
	case !strings.Contains(" replace fail isolate ignore-dependencies ", " "+mode+" "):
		return nil, fault(busError+"InvalidArgs", "job mode %q invalid", mode)
	}
	m.stopped = append(m.stopped, unit+" "+mode)
	return []any{systemdPath + "/job/2"}, nil
}

func (m *systemd1) startUnit(args []any) ([]any, *dbus.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	unit, mode := args[0].(string), args[1].(string)
	switch {
	case unit == "" || unit != m.state.Service.Name:
		return nil, fault("org.freedesktop.systemd1.NoSuchUnit", "unit %s not found", unit)
	case mode != "fail":
		return nil, fault(busError+"InvalidArgs", "a start in mode %q would undo the next shutdown", mode)
	case m.state.Service.Job == "stop":
		return nil, fault("org.freedesktop.systemd1.TransactionIsDestructive", "transaction for %s/start is destructive (%s has 'stop' job queued, but 'start' is included in transaction)", unit, unit)
	}
	m.started = append(m.started, unit)
	return []any{systemdPath + "/job/3"}, nil
}

func (m *systemd1) killUnit(args []any, reloaded func(string) *dbus.Error) *dbus.Error {
	unit, who, number := args[0].(string), args[1].(string), args[2].(int32)
	switch {
	case unit != "systemd-logind.service":
		return fault("org.freedesktop.systemd1.NoSuchUnit", "unit %s not loaded", unit)
	case who != "main" && who != "all":
		return fault(busError+"InvalidArgs", "invalid who argument %q", who)
	case unix.Signal(number) != unix.SIGHUP:
		return fault(busError+"InvalidArgs", "logind would not survive signal %d", number)
	}
	return reloaded("KillUnit " + who)
}

func (m *systemd1) reloadUnit(args []any, reloaded func(string) *dbus.Error) ([]any, *dbus.Error) {
	unit, mode := args[0].(string), args[1].(string)
	switch {
	case unit != "systemd-logind.service":
		return nil, fault("org.freedesktop.systemd1.NoSuchUnit", "unit %s not loaded", unit)
	case !strings.Contains(" replace fail isolate ", " "+mode+" "):
		return nil, fault(busError+"InvalidArgs", "job mode %q invalid", mode)
	case !m.canReload:
		return nil, fault("org.freedesktop.systemd1.JobTypeNotApplicable", "job type reload is not applicable for unit %s", unit)
	}
	if m.stops && mode == "fail" {
		return nil, fault("org.freedesktop.systemd1.TransactionIsDestructive", "transaction for %s/reload is destructive (%s has 'stop' job queued, but 'reload' is included in transaction)", unit, unit)
	}
	return []any{systemdPath + "/job/1"}, reloaded("ReloadUnit " + mode)
}
