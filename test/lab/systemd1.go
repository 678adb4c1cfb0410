package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	systemdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// PrivateSocket is where systemd takes D-Bus calls without a bus.
const PrivateSocket = "/run/systemd/private"

const (
	systemd1Name      = "org.freedesktop.systemd1"
	systemd1Path      = dbus.ObjectPath("/org/freedesktop/systemd1")
	systemd1Units     = systemd1Path + "/unit"
	systemd1Manager   = "org.freedesktop.systemd1.Manager"
	propertyInterface = "org.freedesktop.DBus.Properties"
	logindUnit        = "systemd-logind.service"
)

// StartedUnit is a unit that somebody asked the service manager to start.
type StartedUnit struct {
	Name string // such as "reboot.target"
	Mode string // such as "replace-irreversibly"
	Time time.Time
}

// Systemd1 stands in for the service manager on the bus and on its private
// socket. It is enough of one for logind, and for a service that asks after
// itself: it records what is started, so that nothing reboots, and really does
// KillUnit and ReloadUnit to logind. Its methods are safe for concurrent use.
type Systemd1 struct {
	logind *Daemon

	mu         sync.Mutex
	conns      map[*dbus.Conn]bool
	started    []StartedUnit
	jobs       map[uint32]StartedUnit
	lastJob    uint32
	properties map[string]dbus.Variant            // of the manager
	units      map[string]map[string]dbus.Variant // by name
	reloads    bool                               // logind's unit can be reloaded
	listener   net.Listener
}

func newSystemd1(logind *Daemon, reloads bool) *Systemd1 {
	now := uint64(time.Now().UnixMicro())
	s := &Systemd1{
		logind:  logind,
		conns:   map[*dbus.Conn]bool{},
		jobs:    map[uint32]StartedUnit{},
		reloads: reloads,
		properties: map[string]dbus.Variant{
			"Version":                     dbus.MakeVariant("252 (hostler lab)"),
			"SystemState":                 dbus.MakeVariant("running"),
			"UserspaceTimestamp":          dbus.MakeVariant(now),
			"UserspaceTimestampMonotonic": dbus.MakeVariant(uint64(1_000_000)),
			"FinishTimestamp":             dbus.MakeVariant(now),
			"FinishTimestampMonotonic":    dbus.MakeVariant(uint64(2_000_000)),
		},
		units: map[string]map[string]dbus.Variant{},
	}
	for _, name := range []string{"reboot", "poweroff", "halt", "kexec", "soft-reboot", "suspend", "hibernate", "sleep"} {
		s.SetUnit(name+".target", map[string]any{"ActiveState": "inactive", "SubState": "dead"})
	}
	s.SetUnit(logindUnit, map[string]any{"CanReload": reloads})
	return s
}

// SetUnit makes the manager know a unit, loaded and active unless the
// properties say otherwise.
func (s *Systemd1) SetUnit(name string, properties map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unit := map[string]dbus.Variant{
		"Id": dbus.MakeVariant(name), "Names": dbus.MakeVariant([]string{name}),
		"LoadState": dbus.MakeVariant("loaded"), "ActiveState": dbus.MakeVariant("active"), "SubState": dbus.MakeVariant("running"),
		"Job": dbus.MakeVariant(struct {
			ID   uint32
			Path dbus.ObjectPath
		}{0, "/"}),
	}
	for key, value := range properties {
		unit[key] = dbus.MakeVariant(value)
	}
	s.units[name] = unit
}

// SetProperty sets a property of the manager, such as SystemState.
func (s *Systemd1) SetProperty(name string, value any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.properties[name] = dbus.MakeVariant(value)
}

// StartedUnits returns what was started so far, in order.
func (s *Systemd1) StartedUnits() []StartedUnit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.started)
}

// AwaitStart waits until a unit of that name was started after since.
func (s *Systemd1) AwaitStart(ctx context.Context, name string, since time.Time) (StartedUnit, error) {
	for {
		for _, u := range s.StartedUnits() {
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

// CancelJobs ends the jobs of started units without doing them, as `systemctl
// cancel` does. logind then says that no shutdown is being prepared any more.
func (s *Systemd1) CancelJobs() error {
	s.mu.Lock()
	jobs := s.jobs
	s.jobs = map[uint32]StartedUnit{}
	s.properties["SystemState"] = dbus.MakeVariant("running")
	s.mu.Unlock()
	var errs []error
	for id, unit := range jobs {
		errs = append(errs, s.emit("JobRemoved", id, jobPath(id), unit.Name, "canceled"))
	}
	return errors.Join(errs...)
}

func jobPath(id uint32) dbus.ObjectPath {
	return dbus.ObjectPath(fmt.Sprintf("%s/job/%d", systemd1Path, id))
}

func unitPath(name string) dbus.ObjectPath {
	return systemd1Units + "/" + dbus.ObjectPath(systemdbus.PathBusEscape(name))
}

// join takes the manager's name on the bus.
func (s *Systemd1) join(ctx context.Context) error {
	conn, err := connectBus(ctx)
	if err != nil {
		return err
	}
	if err := s.export(conn); err != nil {
		return errors.Join(err, conn.Close())
	}
	reply, err := conn.RequestName(systemd1Name, dbus.NameFlagDoNotQueue)
	if err == nil && reply != dbus.RequestNameReplyPrimaryOwner {
		err = errors.New(reply.String())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("own %s: %w", systemd1Name, err), conn.Close())
	}
	s.remember(conn)
	return nil
}

// listen takes calls on the private socket until close.
func (s *Systemd1) listen() error {
	_ = os.Remove(PrivateSocket)
	listener, err := net.Listen("unix", PrivateSocket)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", PrivateSocket, err)
	}
	s.listener = listener
	go func() {
		for {
			peer, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go func() {
				conn, err := acceptPeer(context.Background(), peer, s.export)
				if err != nil {
					_ = peer.Close()
					return
				}
				s.remember(conn)
			}()
		}
	}()
	return nil
}

// remember keeps a connection, to send signals to.
func (s *Systemd1) remember(conn *dbus.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.conns, func(c *dbus.Conn, _ bool) bool { return !c.Connected() })
	s.conns[conn] = true
}

// export answers the calls that come in on a connection.
func (s *Systemd1) export(conn *dbus.Conn) error {
	manager := map[string]any{
		"Subscribe":           func() *dbus.Error { return nil },
		"Unsubscribe":         func() *dbus.Error { return nil },
		"Reload":              func() *dbus.Error { return nil },
		"StartUnit":           s.startUnit,
		"StartUnitWithFlags":  func(name, mode string, _ uint64) (dbus.ObjectPath, *dbus.Error) { return s.startUnit(name, mode) },
		"KillUnit":            s.killUnit,
		"ReloadUnit":          s.reloadUnit,
		"GetUnit":             s.getUnit,
		"LoadUnit":            loadUnit,
		"ListJobs":            s.listJobs,
		"ListUnitsByPatterns": s.listUnits,
	}
	return errors.Join(
		conn.ExportMethodTable(manager, systemd1Path, systemd1Manager),
		conn.ExportMethodTable(map[string]any{"Get": s.managerProperty, "GetAll": s.managerProperties}, systemd1Path, propertyInterface),
		conn.ExportSubtreeMethodTable(map[string]any{"Get": s.unitProperty, "GetAll": s.unitProperties}, systemd1Units, propertyInterface),
	)
}

// emit sends a signal of the manager to everybody who is connected. Who hangs up
// meanwhile does not want it.
func (s *Systemd1) emit(name string, values ...any) error {
	s.mu.Lock()
	conns := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	var errs []error
	for _, conn := range conns {
		err := conn.Emit(systemd1Path, systemd1Manager+"."+name, values...)
		if !errors.Is(err, dbus.ErrClosed) && !errors.Is(err, syscall.EPIPE) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *Systemd1) close() {
	if s.listener != nil {
		_ = s.listener.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.Close()
	}
	clear(s.conns)
}

func (s *Systemd1) startUnit(name, mode string) (dbus.ObjectPath, *dbus.Error) {
	s.mu.Lock()
	unit := StartedUnit{Name: name, Mode: mode, Time: time.Now()}
	s.started = append(s.started, unit)
	s.lastJob++
	id := s.lastJob
	s.jobs[id] = unit
	switch name {
	case "reboot.target", "poweroff.target", "halt.target", "kexec.target", "soft-reboot.target":
		s.properties["SystemState"] = dbus.MakeVariant("stopping")
	}
	s.mu.Unlock()
	// A listener that is gone is no fault of the caller's.
	_ = s.emit("JobNew", id, jobPath(id), name)
	return jobPath(id), nil
}

func (s *Systemd1) killUnit(name, _ string, signal int32) *dbus.Error {
	if name != logindUnit {
		return noSuchUnit(name)
	}
	if err := s.logind.Signal(syscall.Signal(signal)); err != nil {
		return dbus.MakeFailedError(err)
	}
	return nil
}

// reloadUnit answers as systemd does for a unit without ExecReload, which
// logind's was before systemd 253.
func (s *Systemd1) reloadUnit(name, _ string) (dbus.ObjectPath, *dbus.Error) {
	if name != logindUnit {
		return "/", noSuchUnit(name)
	}
	if !s.reloads {
		return "/", dbus.NewError("org.freedesktop.systemd1.JobTypeNotApplicable",
			[]any{"Job type reload is not applicable for unit " + name + "."})
	}
	if err := s.logind.Signal(syscall.SIGHUP); err != nil {
		return "/", dbus.MakeFailedError(err)
	}
	s.mu.Lock()
	s.lastJob++
	id := s.lastJob
	s.mu.Unlock()
	// The reply must leave before the job is reported done.
	time.AfterFunc(5*time.Millisecond, func() { _ = s.emit("JobRemoved", id, jobPath(id), name, "done") })
	return jobPath(id), nil
}

func (s *Systemd1) getUnit(name string) (dbus.ObjectPath, *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.units[name]; !ok {
		return "/", noSuchUnit(name)
	}
	return unitPath(name), nil
}

// loadUnit answers for a unit that there is not, too.
func loadUnit(name string) (dbus.ObjectPath, *dbus.Error) {
	if strings.ContainsAny(name, " /") || !strings.Contains(name, ".") {
		return "/", dbus.NewError("org.freedesktop.DBus.Error.InvalidArgs", []any{"Unit name " + name + " is neither a valid invocation ID nor unit name."})
	}
	return unitPath(name), nil
}

// job is one entry of ListJobs.
type job struct {
	ID                uint32
	Unit, Type, State string
	Path, UnitPath    dbus.ObjectPath
}

func (s *Systemd1) listJobs() ([]job, *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	jobs := []job{}
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		name := s.jobs[id].Name
		jobs = append(jobs, job{id, name, "start", "waiting", jobPath(id), unitPath(name)})
	}
	return jobs, nil
}

func (s *Systemd1) managerProperty(_, name string) (dbus.Variant, *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return pick(s.properties, name)
}

func (s *Systemd1) managerProperties(_ string) (map[string]dbus.Variant, *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.properties), nil
}

func (s *Systemd1) unitProperty(call dbus.Message, _, name string) (dbus.Variant, *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return pick(s.unitOf(call), name)
}

func (s *Systemd1) unitProperties(call dbus.Message, _ string) (map[string]dbus.Variant, *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.unitOf(call)), nil
}

// unitOf finds the unit that a call is about, for callers that hold mu. systemd
// answers for a unit that it does not have, too.
func (s *Systemd1) unitOf(call dbus.Message) map[string]dbus.Variant {
	object, _ := call.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
	for name, unit := range s.units {
		if unitPath(name) == object {
			return unit
		}
	}
	return map[string]dbus.Variant{"LoadState": dbus.MakeVariant("not-found"), "ActiveState": dbus.MakeVariant("inactive"), "SubState": dbus.MakeVariant("dead")}
}

func pick(properties map[string]dbus.Variant, name string) (dbus.Variant, *dbus.Error) {
	value, ok := properties[name]
	if !ok {
		return value, dbus.NewError("org.freedesktop.DBus.Error.UnknownProperty", []any{"Unknown property " + name})
	}
	return value, nil
}

func noSuchUnit(name string) *dbus.Error {
	return dbus.NewError("org.freedesktop.systemd1.NoSuchUnit", []any{"Unit " + strings.TrimSpace(name) + " not loaded."})
}
