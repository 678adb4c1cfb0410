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

// patience bounds how long a unit takes to start: far longer than it does.
const patience = time.Minute

// Options say which unit the programs of a manager are of.
type Options struct {
	File    string // the unit's
	Spawner string // the binary of test/lab/unit/spawn
}

// Manager is a service manager in the lab, which runs programs as processes of a unit, each
// of an instance of its own. Its methods are safe for concurrent use.
type Manager struct {
	daemon *lab.Daemon
	folder string
	bus    *dbus.Conn
	last   atomic.Int64 // instance
}

// Start starts a manager in a lab. It changes the lab: later mounts are visible to all units, as on
// a host with systemd.
func Start(ctx context.Context, l *lab.Lab, o Options) (*Manager, error) {
	folder, err := os.MkdirTemp(lab.Dir, "units-")
	if err != nil {
		return nil, err
	}
	m := &Manager{folder: folder}
	if err := errors.Join(furnish(), m.write(o)); err != nil {
		return nil, fmt.Errorf("prepare a service manager: %w", err)
	}
	members, err := makeCgroup(l.Cgroup + "/units")
	if err != nil {
		return nil, fmt.Errorf("make a cgroup for the service manager: %w", err)
	}
	tool := lab.Tool{Path: o.Spawner, Libraries: l.Tools.Manager.Libraries}
	m.daemon = lab.NewDaemon("manager", tool, folder, []string{
		"XDG_RUNTIME_DIR=" + m.folder,
		// A user's manager takes these for what /var/lib is to the system's.
		"XDG_STATE_HOME=/var/lib", "XDG_CONFIG_HOME=/var/lib",
		// None of the host's own units.
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

// Close ends the manager. What it runs has to have ended before.
func (m *Manager) Close() error {
	if m.bus != nil {
		_ = m.bus.Close()
	}
	// On SIGTERM it would start a target that there is not.
	return m.daemon.Kill()
}

// Log is what the manager said last.
func (m *Manager) Log() string { return m.daemon.Log(50) }

func (m *Manager) units() string { return filepath.Join(m.folder, "units") }

// write writes the unit unchanged, and beside it the drop-in with the differences.
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
		// All units want it. An empty file would forbid it.
		os.WriteFile(filepath.Join(m.units(), "basic.target"), []byte("[Unit]\nDescription=Nothing at all\n"), 0o644),
	)
}

func unitName(instance string) string { return "hostler@" + instance + ".service" }

// furnish gives the lab what systemd finds on a host that it has booted.
func furnish() error {
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share the lab's mounts: %w", err)
	}
	// What is mounted over files that are not to be seen; see src/shared/dev-setup.c of systemd.
	const inaccessible = "/run/systemd/inaccessible"
	// The last one is of packaging/tmpfiles.conf.
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

// makeCgroup creates the cgroup that a manager uses as its root, and returns the file of its
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

// connect has the manager answer on its private socket, where there is no bus.
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

// Start starts a command as a process of the unit: its program, arguments and environment,
// with standard output, standard error and more descriptors that are files. It has nothing
// else of who starts it, not even the working directory. more are directives for this start
// alone, as of a drop-in: "PrivateTmp=no".
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

// Property is what the manager says of a service that runs.
func (m *Manager) Property(p *Process, name string) (any, error) {
	var path dbus.ObjectPath
	if err := m.object().Call("org.freedesktop.systemd1.Manager.GetUnit", 0, p.unit).Store(&path); err != nil {
		return nil, err
	}
	v, err := m.bus.Object("org.freedesktop.systemd1", path).GetProperty("org.freedesktop.systemd1.Service." + name)
	return v.Value(), err
}
