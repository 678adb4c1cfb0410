package unit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/lab/unit/message"
)

// patience limits how long a unit takes to start. A start takes far less.
const patience = 5 * time.Minute

// Options configure a Manager.
type Options struct {
	File    string // the unit file
	Spawner string // path of the binary of test/lab/unit/spawn
}

// Manager is a service manager in the lab. It runs each program as a process of a unit, in its own
// instance of the unit. Its methods are safe for concurrent use.
type Manager struct {
	daemon *lab.Daemon
	folder string
	bus    *dbus.Conn
	last   atomic.Int64 // number of the last instance
}

// Start starts a manager in a lab. It changes the lab: later mounts become visible to all units, as
// on a host with systemd.
func Start(ctx context.Context, l *lab.Lab, o Options) (*Manager, error) {
	folder, err := os.MkdirTemp(lab.Dir, "units-")
	if err != nil {
		return nil, err
	}
	m := &Manager{folder: folder}
	if err := errors.Join(setUpHost(), m.write(o)); err != nil {
		return nil, fmt.Errorf("prepare a service manager: %w", err)
	}
	members, err := makeCgroup(l.Cgroup + "/units")
	if err != nil {
		return nil, fmt.Errorf("make a cgroup for the service manager: %w", err)
	}
	tool := lab.Tool{Path: o.Spawner, Libraries: l.Tools.Manager.Libraries}
	m.daemon = lab.NewDaemon("manager", tool, folder, []string{
		"XDG_RUNTIME_DIR=" + m.folder,
		// A user's manager uses these instead of /var/lib.
		"XDG_STATE_HOME=/var/lib", "XDG_CONFIG_HOME=/var/lib",
		// Use no units of the host.
		"SYSTEMD_UNIT_PATH=" + m.units(), "SYSTEMD_GENERATOR_PATH=" + m.units() + "/none", "SYSTEMD_ENVIRONMENT_GENERATOR_PATH=" + m.units() + "/none",
		"SYSTEMD_LOG_TARGET=console", "SYSTEMD_LOG_COLOR=0",
	}, "manager", l.Tools.Manager.Path, members)
	if err := m.daemon.Start(); err != nil {
		return nil, err
	}
	if err := m.daemon.Await(ctx, m.connect); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// Close ends the manager. Its processes must have ended before.
func (m *Manager) Close() error {
	if m.bus != nil {
		_ = m.bus.Close()
	}
	// SIGTERM would start a target that does not exist.
	return m.daemon.Kill()
}

// Log returns the last lines of the manager's output.
func (m *Manager) Log() string { return m.daemon.Log(50) }

func (m *Manager) units() string { return filepath.Join(m.folder, "units") }

// write writes the unit unchanged, and a drop-in with the exceptions.
func (m *Manager) write(o Options) error {
	file, err := os.ReadFile(o.File)
	if err != nil {
		return err
	}
	dropIns := filepath.Join(m.units(), unitName("")+".d")
	if err := os.MkdirAll(dropIns, 0o755); err != nil {
		return err
	}
	command := fmt.Sprintf("%s serve %s/%%i", o.Spawner, m.folder)
	return errors.Join(
		os.WriteFile(filepath.Join(m.units(), unitName("")), file, 0o644),
		os.WriteFile(filepath.Join(dropIns, "lab.conf"), []byte(dropIn(command, filepath.Join(m.folder, "spawner.log"))), 0o644),
		// All units depend on it. An empty file would mask it.
		os.WriteFile(filepath.Join(m.units(), "basic.target"), []byte("[Unit]\nDescription=Nothing at all\n"), 0o644),
	)
}

func unitName(instance string) string { return "hostler@" + instance + ".service" }

// setUpHost creates the files that systemd finds on a host that it has booted.
func setUpHost() error {
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share the lab's mounts: %w", err)
	}
	// Mounted over files that must not be visible; see src/shared/dev-setup.c of systemd.
	const inaccessible = "/run/systemd/inaccessible"
	// The last one is from packaging/tmpfiles.conf.
	for _, folder := range []string{"/run/systemd/system", inaccessible, "/run/systemd/logind.conf.d"} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	for name, kind := range map[string]uint32{
		"reg": unix.S_IFREG, "fifo": unix.S_IFIFO, "sock": unix.S_IFSOCK, "chr": unix.S_IFCHR, "blk": unix.S_IFBLK,
	} {
		if err := unix.Mknod(filepath.Join(inaccessible, name), kind, 0); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("make %s/%s: %w", inaccessible, name, err)
		}
	}
	if err := os.Mkdir(filepath.Join(inaccessible, "dir"), 0); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// makeCgroup creates the cgroup that a manager uses as its root, and returns the file with its
// members. It is in the hierarchy in which systemd tracks processes.
func makeCgroup(cgroup string) (members string, err error) {
	const root = "/sys/fs/cgroup"
	var stat unix.Statfs_t
	if err := unix.Statfs(root, &stat); err != nil {
		return "", err
	}
	hierarchy := root
	if stat.Type != unix.CGROUP2_SUPER_MAGIC {
		hierarchy = filepath.Join(root, "unified")
		if err := unix.Statfs(hierarchy, &stat); err != nil || stat.Type != unix.CGROUP2_SUPER_MAGIC {
			hierarchy = filepath.Join(root, "systemd")
		}
	}
	folder := filepath.Join(hierarchy, cgroup)
	return filepath.Join(folder, "cgroup.procs"), os.MkdirAll(folder, 0o755)
}

// connect makes the manager serve its private socket, because there is no bus.
func (m *Manager) connect(context.Context) error {
	conn, err := dbus.Dial("unix:path=" + filepath.Join(m.folder, "systemd/private"))
	if err != nil {
		return err
	}
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
		return errors.Join(err, conn.Close())
	}
	m.bus = conn
	_, err = m.object().GetProperty("org.freedesktop.systemd1.Manager.Version")
	return err
}

func (m *Manager) object() dbus.BusObject {
	return m.bus.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
}

// Start starts a command as a process of the unit: its program, arguments and environment, and its
// standard output, standard error and additional descriptors, if they are files. It inherits
// nothing else from the caller, not even the working directory. more are directives for this start
// only, as in a drop-in: "PrivateTmp=no".
func (m *Manager) Start(cmd *exec.Cmd, more ...string) (*Process, error) {
	p, err := m.start(cmd, more)
	if err != nil {
		return nil, fmt.Errorf("start %s as a unit: %w\n%s", cmd.Path, err, m.Log())
	}
	return p, nil
}

func (m *Manager) start(cmd *exec.Cmd, more []string) (*Process, error) {
	instance := strconv.FormatInt(m.last.Add(1), 10)
	if len(more) > 0 {
		dropIns := filepath.Join(m.units(), unitName(instance)+".d")
		if err := os.Mkdir(dropIns, 0o755); err != nil {
			return nil, err
		}
		text := "[Service]\n" + strings.Join(more, "\n") + "\n"
		if err := os.WriteFile(filepath.Join(dropIns, "more.conf"), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	out, isFile := cmd.Stdout.(*os.File)
	problems, alsoFile := cmd.Stderr.(*os.File)
	if !isFile || !alsoFile {
		return nil, errors.New("standard output and standard error are not files")
	}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(m.folder, instance), Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	if err := listener.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if err := m.object().Call("org.freedesktop.systemd1.Manager.StartUnit", 0, unitName(instance), "replace").Err; err != nil {
		return nil, err
	}
	conn, err := listener.AcceptUnix()
	if err != nil {
		return nil, err
	}
	request := message.Request{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env}
	err = message.Send(conn, request, append([]*os.File{out, problems}, cmd.ExtraFiles...)...)
	var a message.Answer
	if err == nil {
		_, err = message.Receive(conn, &a)
	}
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return follow(unitName(instance), a.PID, conn)
}

// Property returns a property of a running service.
func (m *Manager) Property(p *Process, name string) (any, error) {
	var path dbus.ObjectPath
	if err := m.object().Call("org.freedesktop.systemd1.Manager.GetUnit", 0, p.unit).Store(&path); err != nil {
		return nil, err
	}
	v, err := m.bus.Object("org.freedesktop.systemd1", path).GetProperty("org.freedesktop.systemd1.Service." + name)
	return v.Value(), err
}
