package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/systemd/systemdtest"
)

const (
	login1Name    = "org.freedesktop.login1"
	login1Path    = dbus.ObjectPath("/org/freedesktop/login1")
	login1Manager = "org.freedesktop.login1.Manager"

	getProperty = "org.freedesktop.DBus.Properties.Get"
)

// PrivateSocket is the socket on which systemd accepts D-Bus calls without a bus.
const PrivateSocket = "/run/systemd/private"

// LoginOptions configure logind.
type LoginOptions struct {
	// InhibitDelayMax is written to /etc/systemd/logind.conf, in whole seconds. If zero, logind's
	// default of 5 s applies.
	InhibitDelayMax time.Duration
	Debug           bool // logind logs debug messages
}

// Login is a system bus with logind and a fake service manager. A lab has at most one at a time,
// because they listen on the usual sockets.
type Login struct {
	Bus     *Daemon
	Logind  *Daemon
	Manager *systemdtest.Manager
}

// StartLogin starts bus, manager and logind with a clean /run/systemd, and returns when logind
// answers.
func (l *Lab) StartLogin(ctx context.Context, o LoginOptions) (*Login, error) {
	if conn, err := net.Dial("unix", BusSocket); err == nil {
		_ = conn.Close()
		return nil, errors.New("start logind: this lab has a system bus already")
	}
	dir, err := os.MkdirTemp(Dir, "login-")
	if err != nil {
		return nil, err
	}
	if err := cleanRunSystemd(); err != nil {
		return nil, err
	}
	// logind must not use the host's terminals and power keys.
	config := "[Login]\nNAutoVTs=0\nReserveVT=0\nHandlePowerKey=ignore\nHandleSuspendKey=ignore\nHandleHibernateKey=ignore\nHandleLidSwitch=ignore\nHandleRebootKey=ignore\n"
	if o.InhibitDelayMax > 0 {
		config += fmt.Sprintf("InhibitDelayMaxSec=%d\n", int(o.InhibitDelayMax.Seconds()))
	}
	if err := os.WriteFile("/etc/systemd/logind.conf", []byte(config), 0o644); err != nil {
		return nil, err
	}
	level := "info"
	if o.Debug {
		level = "debug"
	}
	bus, err := l.newBus(dir)
	if err != nil {
		return nil, err
	}
	logind := NewDaemon("systemd-logind", l.Tools.Logind, dir,
		[]string{"SYSTEMD_LOG_TARGET=console", "SYSTEMD_LOG_LEVEL=" + level, "SYSTEMD_LOG_COLOR=0"})
	version, err := logindVersion(ctx, l.Tools.Logind)
	if err != nil {
		return nil, err
	}
	g := &Login{Bus: bus, Logind: logind, Manager: newManager(logind, version)}
	if err := errors.Join(g.Manager.Listen(PrivateSocket), g.StartBus(ctx), g.StartLogind(ctx)); err != nil {
		return nil, errors.Join(err, g.Close(context.WithoutCancel(ctx)))
	}
	return g, nil
}

// newManager returns the fake service manager for a logind of a version.
func newManager(logind *Daemon, version int) *systemdtest.Manager {
	m := systemdtest.NewManager(systemdtest.ManagerOptions{
		CanReload: version >= 253,
		Reload:    func() error { return logind.Signal(unix.SIGHUP) },
	})
	now := uint64(time.Now().UnixMicro())
	for name, value := range map[string]any{
		"Version":            strconv.Itoa(version),
		"UserspaceTimestamp": now, "UserspaceTimestampMonotonic": uint64(1_000_000),
		"FinishTimestamp": now, "FinishTimestampMonotonic": uint64(2_000_000),
	} {
		m.SetProperty(name, value)
	}
	for _, name := range []string{"reboot", "poweroff", "halt", "kexec", "soft-reboot", "suspend", "hibernate", "sleep"} {
		m.SetUnit(name+".target", map[string]any{"ActiveState": "inactive", "SubState": "dead"})
	}
	return m
}

// cleanRunSystemd deletes locks and sessions, as a boot does, but keeps configuration of a test.
func cleanRunSystemd() error {
	for _, name := range []string{"inhibit", "seats", "users", "sessions", "machines", "system"} {
		dir := filepath.Join("/run/systemd", name)
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
			return err
		}
	}
	return nil
}

// logindVersion returns systemd's version number, such as 252.
func logindVersion(ctx context.Context, logind Tool) (int, error) {
	out, err := run(ctx, "/", "env", append(logind.Environ(), logind.Path, "--version")...)
	if err != nil {
		return 0, fmt.Errorf("ask logind's version: %w", err)
	}
	match := regexp.MustCompile(`(?m)^systemd (\d+)`).FindStringSubmatch(out)
	if match == nil {
		return 0, fmt.Errorf("ask logind's version: it printed %q", out)
	}
	return strconv.Atoi(match[1])
}

// StartBus starts the bus, unless it runs, and connects the manager to it.
func (g *Login) StartBus(ctx context.Context) error {
	if g.Bus.PID() != 0 {
		return nil
	}
	// A killed bus leaves its socket.
	_ = os.Remove(BusSocket)
	if err := g.Bus.Start(); err != nil {
		return err
	}
	return g.Bus.Await(ctx, func(ctx context.Context) error { return g.Manager.Join(context.WithoutCancel(ctx), busAddress) })
}

// StartLogind starts logind, unless it runs, and waits until it answers.
func (g *Login) StartLogind(ctx context.Context) error {
	if err := g.Logind.Start(); err != nil {
		return err
	}
	return g.Logind.Await(ctx, func(ctx context.Context) error {
		_, err := g.Preparing(ctx)
		return err
	})
}

// RestartLogind stops logind and starts it again. Locks stay.
func (g *Login) RestartLogind(ctx context.Context) error {
	return errors.Join(g.Logind.Stop(ctx), g.StartLogind(ctx))
}

// RestartBus kills the bus and starts it again, with logind, which ends with its bus or cannot be
// used without it.
func (g *Login) RestartBus(ctx context.Context) error {
	return errors.Join(g.Bus.Kill(), g.Logind.Kill(), g.StartBus(ctx), g.StartLogind(ctx))
}

// Close stops logind and the bus, and removes drop-ins of logind's configuration. It can be called
// again.
func (g *Login) Close(ctx context.Context) error {
	err := errors.Join(g.Logind.Stop(ctx), g.Bus.Stop(ctx))
	g.Manager.Close()
	const folder = "/run/systemd/logind.conf.d" // is not removed: a running unit may have mounted it
	entries, readErr := os.ReadDir(folder)
	if !errors.Is(readErr, fs.ErrNotExist) {
		err = errors.Join(err, readErr)
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(folder, e.Name())))
	}
	return err
}

// call calls a method of logind's manager over a new connection, so that it works after a restart
// of the bus.
func (g *Login) call(ctx context.Context, method string, args []any, results ...any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := connectBus(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Object(login1Name, login1Path).CallWithContext(ctx, method, 0, args...).Store(results...); err != nil {
		return fmt.Errorf("call %s: %w", method, err)
	}
	return nil
}

// Reboot requests a reboot from logind, as `systemctl reboot` does. It returns before the delay
// locks are released.
func (g *Login) Reboot(ctx context.Context) error {
	return g.call(ctx, login1Manager+".Reboot", []any{false})
}

// PowerOff requests a power-off from logind.
func (g *Login) PowerOff(ctx context.Context) error {
	return g.call(ctx, login1Manager+".PowerOff", []any{false})
}

// Schedule schedules a shutdown of a kind ("reboot", "poweroff", "halt") in logind, as `shutdown`
// does.
func (g *Login) Schedule(ctx context.Context, kind string, at time.Time) error {
	return g.call(ctx, login1Manager+".ScheduleShutdown", []any{kind, uint64(at.UnixMicro())})
}

// CancelScheduled cancels a scheduled shutdown, and reports whether there was one. It does not end
// a shutdown that logind already prepares. Manager.CancelJobs does, after its target was started.
func (g *Login) CancelScheduled(ctx context.Context) (bool, error) {
	var cancelled bool
	err := g.call(ctx, login1Manager+".CancelScheduledShutdown", nil, &cancelled)
	return cancelled, err
}

// Preparing reports whether logind has announced a shutdown.
func (g *Login) Preparing(ctx context.Context) (bool, error) {
	var v dbus.Variant
	if err := g.call(ctx, getProperty, []any{login1Manager, "PreparingForShutdown"}, &v); err != nil {
		return false, err
	}
	preparing, ok := v.Value().(bool)
	if !ok {
		return false, fmt.Errorf("PreparingForShutdown is a %s", v.Signature())
	}
	return preparing, nil
}

// Announced sends the time at which the bus delivers the announcement of a shutdown, until ctx
// ends.
func (g *Login) Announced(ctx context.Context) (<-chan time.Time, error) {
	conn, err := connectBus(ctx)
	if err != nil {
		return nil, err
	}
	if err := conn.AddMatchSignal(dbus.WithMatchInterface(login1Manager), dbus.WithMatchMember("PrepareForShutdown")); err != nil {
		return nil, errors.Join(fmt.Errorf("listen to logind: %w", err), conn.Close())
	}
	signals, announced := make(chan *dbus.Signal, 8), make(chan time.Time, 1)
	conn.Signal(signals)
	go func() {
		for s := range signals { // ends when the connection is closed
			if len(s.Body) == 1 && s.Body[0] == true && len(announced) == 0 {
				announced <- time.Now()
			}
		}
	}()
	return announced, nil
}

// InhibitDelayMax returns the longest delay that logind grants at present.
func (g *Login) InhibitDelayMax(ctx context.Context) (time.Duration, error) {
	var v dbus.Variant
	if err := g.call(ctx, getProperty, []any{login1Manager, "InhibitDelayMaxUSec"}, &v); err != nil {
		return 0, err
	}
	usec, ok := v.Value().(uint64)
	if !ok {
		return 0, fmt.Errorf("InhibitDelayMaxUSec is a %s", v.Signature())
	}
	return time.Duration(usec) * time.Microsecond, nil
}

// InhibitorLock is a lock in logind's list.
type InhibitorLock struct {
	What, Who, Why, Mode string
	UID, PID             uint32
}

// Inhibitors lists the locks.
func (g *Login) Inhibitors(ctx context.Context) ([]InhibitorLock, error) {
	var locks []InhibitorLock
	err := g.call(ctx, login1Manager+".ListInhibitors", nil, &locks)
	return locks, err
}

// Inhibit takes a delay lock on shutdown; closing the file releases it.
func (g *Login) Inhibit(ctx context.Context, who, why string) (*os.File, error) {
	var fd dbus.UnixFD
	if err := g.call(ctx, login1Manager+".Inhibit", []any{"shutdown", who, why, "delay"}, &fd); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "inhibitor-lock"), nil
}
