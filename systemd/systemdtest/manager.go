package systemdtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

const (
	systemdName    = "org.freedesktop.systemd1"
	systemdPath    = dbus.ObjectPath("/org/freedesktop/systemd1")
	systemdManager = "org.freedesktop.systemd1.Manager"
	systemdError   = "org.freedesktop.systemd1."
	logindUnit     = "systemd-logind.service"
)

// ManagerOptions describe logind to a Manager.
type ManagerOptions struct {
	CanReload bool         // its unit has a reload, not only SIGHUP
	Stops     bool         // a job to stop it is queued
	Reload    func() error // makes it read its configuration
}

// StartedUnit is a requested start of a unit.
type StartedUnit struct {
	Name string // such as "reboot.target"
	Mode string // such as "replace-irreversibly"
	Time time.Time
}

// Manager is a service manager that only records requests, so that nothing reboots; it only makes
// logind read its configuration. It serves a real bus (Join), the private socket (Listen), and the
// bus of a Fake. Its methods are safe for concurrent use.
type Manager struct {
	service *service
	options ManagerOptions

	mu         sync.Mutex
	state      ManagerState
	properties map[string]any // set by SetProperty
	reloads    []string
	stopped    []string
	started    []StartedUnit
	jobs       map[uint32]string // units that are starting
	lastJob    uint32
	private    *server    // nil before Listen
	bus        *dbus.Conn // nil before Join
}

// NewManager returns a Manager of a running system.
func NewManager(o ManagerOptions) *Manager {
	m := &Manager{options: o, state: ManagerState{SystemState: "running"}, properties: map[string]any{}, jobs: map[uint32]string{}}
	m.service = &service{name: systemdName, find: m.find}
	return m
}

// Join takes the manager's name on a real bus.
func (m *Manager) Join(ctx context.Context, address string) error {
	conn, err := dbus.Connect(address, dbus.WithContext(ctx), dbus.WithHandler(handler{m.service}))
	if err != nil {
		return fmt.Errorf("connect the manager to the bus: %w", err)
	}
	reply, err := conn.RequestName(systemdName, dbus.NameFlagDoNotQueue)
	if err == nil && reply != dbus.RequestNameReplyPrimaryOwner {
		err = errors.New(reply.String())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("own %s: %w", systemdName, err), conn.Close())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bus = conn
	return nil
}

// Listen serves the private socket at path, until Close.
func (m *Manager) Listen(path string) error {
	_ = os.Remove(path)
	private := newServer(path, m.service)
	if err := private.start(); err != nil {
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.private = private
	return nil
}

// Close closes all connections.
func (m *Manager) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.private != nil {
		m.private.stop()
	}
	if m.bus != nil {
		_ = m.bus.Close()
	}
}

// SetProperty sets a property of the manager, such as SystemState.
func (m *Manager) SetProperty(name string, value any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.properties[name] = value
}

// StartedUnits returns the requested starts so far, in order.
func (m *Manager) StartedUnits() []StartedUnit {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.started)
}

// AwaitStart waits until a start of a unit of that name was requested after since.
func (m *Manager) AwaitStart(ctx context.Context, name string, since time.Time) (StartedUnit, error) {
	for {
		for _, u := range m.StartedUnits() {
			if u.Name == name && u.Time.After(since) {
				return u, nil
			}
		}
		select {
		case <-ctx.Done():
			return StartedUnit{}, fmt.Errorf("wait for the start of %s: %w", name, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// CancelJobs ends the jobs of started units without effect, like `systemctl cancel`. logind then
// reports that no shutdown is in preparation any more.
func (m *Manager) CancelJobs() error {
	m.mu.Lock()
	jobs := m.jobs
	m.jobs = map[uint32]string{}
	m.properties["SystemState"] = "running"
	m.mu.Unlock()
	var errs []error
	for id, unit := range jobs {
		errs = append(errs, m.emit("JobRemoved", id, jobPath(id), unit, "canceled"))
	}
	return errors.Join(errs...)
}

// emit sends a signal of the manager to all connections. It ignores errors of closed connections.
func (m *Manager) emit(member string, values ...any) error {
	m.mu.Lock()
	private, bus := m.private, m.bus
	m.mu.Unlock()
	if private != nil {
		private.emit(m.service, systemdPath, systemdManager, member, values...)
	}
	if bus == nil {
		return nil
	}
	err := bus.Emit(systemdPath, systemdManager+"."+member, values...)
	if errors.Is(err, dbus.ErrClosed) || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// manager returns the manager's own object. The caller holds mu.
func (m *Manager) manager() object {
	values := map[string]any{
		"Version": "252.fake", "SystemState": m.state.SystemState, "UserspaceTimestamp": m.state.StartedAtUsec,
	}
	maps.Copy(values, m.properties)
	nothing := func([]any) ([]any, *dbus.Error) { return nil, nil }
	return object{systemdManager: iface{
		methods: map[string]method{
			"Subscribe":          {"", nothing},
			"Unsubscribe":        {"", nothing},
			"Reload":             {"", nothing},
			"GetUnit":            {"s", m.getUnit},
			"GetUnitByPID":       {"u", m.getUnitByPID},
			"LoadUnit":           {"s", loadUnit},
			"StopUnit":           {"ss", m.stopUnit},
			"StartUnit":          {"ss", m.startUnit},
			"StartUnitWithFlags": {"sst", m.startUnit},
			"KillUnit":           {"ssi", m.killUnit},
			"ReloadUnit":         {"ss", m.reloadUnit},
			"ListJobs":           {"", m.listJobs},

			"ListUnitsByPatterns": {"asas", m.listUnits},
		},
		properties: read(values),
	}}
}

func (m *Manager) getUnit(args []any) ([]any, *dbus.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := args[0].(string)
	if _, loaded := m.units()[name]; !loaded {
		return nil, noSuchUnit(name)
	}
	return []any{unitPath(name)}, nil
}

func (m *Manager) getUnitByPID(args []any) ([]any, *dbus.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if pid := args[0].(uint32); !slices.Contains(m.state.Service.Members, pid) {
		return nil, fault(systemdError+"NoUnitForPID", "PID %d does not belong to any loaded unit", pid)
	}
	return []any{unitPath(m.state.Service.Name)}, nil
}

// loadUnit also answers for a unit that does not exist.
func loadUnit(args []any) ([]any, *dbus.Error) {
	name := args[0].(string)
	if strings.ContainsAny(name, " /") || !strings.Contains(name, ".") {
		return nil, fault(busError+"InvalidArgs", "unit name %s is neither a valid invocation ID nor unit name", name)
	}
	return []any{unitPath(name)}, nil
}

func (m *Manager) stopUnit(args []any) ([]any, *dbus.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	unit, mode := args[0].(string), args[1].(string)
	switch _, loaded := m.units()[unit]; {
	case !loaded:
		return nil, noSuchUnit(unit)
	case !strings.Contains(" replace fail isolate ignore-dependencies ", " "+mode+" "):
		return nil, fault(busError+"InvalidArgs", "job mode %q invalid", mode)
	}
	m.stopped = append(m.stopped, unit+" "+mode)
	return []any{m.job()}, nil
}

func (m *Manager) startUnit(args []any) ([]any, *dbus.Error) {
	m.mu.Lock()
	unit, mode := args[0].(string), args[1].(string)
	target := strings.HasSuffix(unit, ".target")
	_, loaded := m.units()[unit]
	var refused *dbus.Error
	switch {
	case !loaded:
		refused = noSuchUnit(unit)
	case mode != "fail" && !target:
		refused = fault(busError+"InvalidArgs", "a start in mode %q would undo the next shutdown", mode)
	case unit == m.state.Service.Name && m.state.Service.Job == "stop":
		refused = fault(systemdError+"TransactionIsDestructive", "transaction for %s/start is destructive (%s has 'stop' job queued, but 'start' is included in transaction)", unit, unit)
	}
	if refused != nil {
		m.mu.Unlock()
		return nil, refused
	}
	m.started = append(m.started, StartedUnit{unit, mode, time.Now()})
	path, id := m.job(), m.lastJob
	m.jobs[id] = unit
	if slices.Contains([]string{"reboot.target", "poweroff.target", "halt.target", "kexec.target", "soft-reboot.target"}, unit) {
		m.properties["SystemState"] = "stopping"
	}
	m.mu.Unlock()
	_ = m.emit("JobNew", id, path, unit) // a closed connection is not an error of the caller
	return []any{path}, nil
}

func (m *Manager) killUnit(args []any) ([]any, *dbus.Error) {
	unit, who, number := args[0].(string), args[1].(string), args[2].(int32)
	switch {
	case unit != logindUnit:
		return nil, noSuchUnit(unit)
	case who != "main" && who != "all":
		return nil, fault(busError+"InvalidArgs", "invalid who argument %q", who)
	case unix.Signal(number) != unix.SIGHUP:
		return nil, fault(busError+"InvalidArgs", "logind would not survive signal %d", number)
	}
	return nil, m.reload("KillUnit " + who)
}

// reloadUnit fails as systemd does for a unit without ExecReload, such as logind's before systemd
// 253.
func (m *Manager) reloadUnit(args []any) ([]any, *dbus.Error) {
	unit, mode := args[0].(string), args[1].(string)
	switch {
	case unit != logindUnit:
		return nil, noSuchUnit(unit)
	case !strings.Contains(" replace fail isolate ", " "+mode+" "):
		return nil, fault(busError+"InvalidArgs", "job mode %q invalid", mode)
	case !m.options.CanReload:
		return nil, fault(systemdError+"JobTypeNotApplicable", "job type reload is not applicable for unit %s", unit)
	case m.options.Stops && mode == "fail":
		return nil, fault(systemdError+"TransactionIsDestructive", "transaction for %s/reload is destructive (%s has 'stop' job queued, but 'reload' is included in transaction)", unit, unit)
	}
	if refused := m.reload("ReloadUnit " + mode); refused != nil {
		return nil, refused
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	path, id := m.job(), m.lastJob
	if m.private != nil { // the reply must be sent before the end of the job is reported
		time.AfterFunc(5*time.Millisecond, func() { _ = m.emit("JobRemoved", id, path, unit, "done") })
	}
	return []any{path}, nil
}

func (m *Manager) reload(how string) *dbus.Error {
	m.mu.Lock()
	m.reloads = append(m.reloads, how)
	m.mu.Unlock()
	if err := m.options.Reload(); err != nil {
		return fault(busError+"Failed", "%v", err)
	}
	return nil
}

// job returns a new job. The caller holds mu.
func (m *Manager) job() dbus.ObjectPath {
	m.lastJob++
	return jobPath(m.lastJob)
}

func jobPath(id uint32) dbus.ObjectPath {
	return dbus.ObjectPath(fmt.Sprintf("%s/job/%d", systemdPath, id))
}

func (m *Manager) listJobs([]any) ([]any, *dbus.Error) {
	type job struct {
		ID                uint32
		Unit, Type, State string
		Path, UnitPath    dbus.ObjectPath
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	list := []job{}
	for _, id := range slices.Sorted(maps.Keys(m.jobs)) {
		list = append(list, job{id, m.jobs[id], "start", "waiting", jobPath(id), unitPath(m.jobs[id])})
	}
	return []any{list}, nil
}

func noSuchUnit(name string) *dbus.Error {
	return fault(systemdError+"NoSuchUnit", "unit %s not loaded", name)
}
