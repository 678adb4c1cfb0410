package machine

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
	"sync"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine/debian"
	"hostler.io/hostler/test/machine/wire"
)

// container is a machine in systemd-nspawn. Its root is an overlay of the release's root.
// containerd's folder is outside the overlay, because overlays do not stack.
type container struct {
	tools  lab.Tools
	name   string
	dir    string
	groups string // cgroup v2 folder with one child for each time the machine was powered on; the lab removes it

	mu    sync.Mutex
	end   chan struct{} // closed when the machine is off
	group *os.File      // cgroup of the present run: one that was killed accepts no new processes
	// cutting prevents that a machine boots again after its power was cut.
	cutting bool
}

// rebootCode is the exit code of systemd-nspawn if the machine requests a reboot.
const rebootCode = 133

// nspawnScript mounts a cgroup v2 where systemd-nspawn expects it, even on hosts with controllers
// on v1.
const nspawnScript = `mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"`

func newContainer(p prepared, l *lab.Lab, o Options, name, dir string, files debian.Files) (*container, error) {
	c := &container{tools: p.Tools, name: name, dir: dir, end: make(chan struct{})}
	close(c.end)
	for _, sub := range []string{"base", "upper", "work", "root", "containerd", "port"} {
		if err := os.Mkdir(c.path(sub), 0o755); err != nil {
			return nil, err
		}
	}
	if err := lab.MountImage(p.Roots[o.Release].Image, c.path("base")); err != nil {
		return nil, err
	}
	layers := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", c.path("base"), c.path("upper"), c.path("work"))
	if err := unix.Mount("overlay", c.path("root"), "overlay", 0, layers); err != nil {
		return nil, fmt.Errorf("mount root: %w", err)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup2"))
	if err != nil || len(mounts) == 0 {
		return nil, fmt.Errorf("find cgroup v2 among %d mounts: %w", len(mounts), err)
	}
	c.groups = filepath.Join(mounts[0].Mountpoint, l.Cgroup, name)
	return c, files.WriteTo(c.path("root"))
}

func (c *container) path(name string) string { return filepath.Join(c.dir, name) }

func (c *container) start() error {
	end := make(chan struct{})
	if err := os.MkdirAll(c.groups, 0o755); err != nil {
		return err
	}
	folder, err := os.MkdirTemp(c.groups, "power")
	if err != nil {
		return err
	}
	group, err := os.Open(folder)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.cutting = false
	if c.group != nil {
		_ = c.group.Close()
	}
	c.group = group
	c.mu.Unlock()
	cmd, err := c.boot()
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.end = end
	c.mu.Unlock()
	go func() {
		defer close(end)
		for {
			_ = cmd.Wait() // the exit code has the result
			if cmd.ProcessState.ExitCode() != rebootCode {
				return
			}
			if cmd, err = c.boot(); err != nil {
				_ = os.WriteFile(c.path("nspawn.error"), []byte(err.Error()), 0o644)
				return
			}
		}
	}()
	return nil
}

// boot starts systemd-nspawn, which ends at each reboot.
func (c *container) boot() (*exec.Cmd, error) {
	log, err := os.OpenFile(c.path("console.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command("sh", "-c", nspawnScript, "sh", c.tools.Nspawn.Path,
		"--quiet", "--boot", "--register=no", "--keep-unit", "--machine="+c.name, "--directory="+c.path("root"), "--console=read-only", "--setenv=TERM=dumb",
		"--private-network", "--link-journal=no", "--resolv-conf=off", "--timezone=off",
		// The machine must not change the host's clock and modules.
		"--capability=all", "--drop-capability=CAP_SYS_TIME,CAP_SYS_MODULE",
		"--system-call-filter=add_key keyctl bpf perf_event_open @mount reboot swapon swapoff",
		"--bind="+c.path("containerd")+":/var/lib/containerd", "--bind="+c.path("port")+":"+filepath.Dir(wire.Socket),
		"--", "--show-status=yes")
	cmd.Env = append(append(os.Environ(), c.tools.Nspawn.Environ()...), "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1", "SYSTEMD_LOG_COLOR=0")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, UseCgroupFD: true, CgroupFD: int(c.group.Fd())}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cutting {
		return nil, errors.New("the power is cut")
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start systemd-nspawn: %w", err)
	}
	return cmd, nil
}

func (c *container) off() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end
}

// cut kills all processes in the machine's cgroup: its PID 1 is a grandchild of systemd-nspawn and
// would survive it.
func (c *container) cut() error {
	c.mu.Lock()
	c.cutting = true
	end := c.end
	c.mu.Unlock()
	if c.group == nil {
		return nil
	}
	if err := os.WriteFile(filepath.Join(c.group.Name(), "cgroup.kill"), []byte("1"), 0o644); err != nil {
		return fmt.Errorf("kill the machine: %w", err)
	}
	<-end
	for deadline := time.Now().Add(Patience); ; time.Sleep(10 * time.Millisecond) {
		events, err := os.ReadFile(filepath.Join(c.group.Name(), "cgroup.events"))
		if err != nil || strings.Contains(string(events), "populated 0") {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("kill the machine: %s is not empty after %v", c.group.Name(), Patience)
		}
	}
}

func (c *container) stuck() bool { return false }

func (c *container) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(c.path("port"), filepath.Base(wire.Socket)))
}

func (c *container) press(b button) error {
	return fmt.Errorf("a container has no %s: boot a VM", b)
}

func (c *container) close() error {
	err := c.cut()
	if c.group != nil {
		err = errors.Join(err, c.group.Close())
	}
	return err
}

// ForwardFiles are files with which a container reaches an outside address at 127.0.0.1:PORT, after
// Forward was called. They are for Options.Files.
func ForwardFiles(port int) map[string]string {
	unit := "etc/systemd/system/forward-" + strconv.Itoa(port)
	return map[string]string{
		unit + ".socket":  fmt.Sprintf("[Socket]\nListenStream=127.0.0.1:%d\n[Install]\nWantedBy=sockets.target\n", port),
		unit + ".service": fmt.Sprintf("[Service]\nExecStart=/usr/lib/systemd/systemd-socket-proxyd %s/forward-%d.sock\n", filepath.Dir(wire.Socket), port),
	}
}

// Forward connects a container with ForwardFiles to an address of the lab, until the test ends.
func (m *Machine) Forward(port int, address string) {
	m.t.Helper()
	path := filepath.Join(m.dir, "port", fmt.Sprintf("forward-%d.sock", port))
	l, err := net.Listen("unix", path)
	if err != nil {
		m.t.Fatalf("forward port %d of %s: %v", port, m, err)
	}
	m.t.Cleanup(lab.Relay(l, address))
	m.Run(fmt.Sprintf("systemctl enable --now forward-%d.socket", port))
}
