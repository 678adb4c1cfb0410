package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// PodmanOptions configure a Podman.
type PodmanOptions struct {
	// ImageFSBytes is the size of a separate ext4 for images and containers, mounted at Root. If zero,
	// they are in a tmpfs.
	ImageFSBytes int64
	// Activated starts the service at a connection, as systemd does with podman.socket. The service
	// exits after Idle without requests. Otherwise it runs all the time.
	Activated bool
	Idle      time.Duration // whole seconds; 5 s, as in Podman's own unit, if zero
	// Runtime runs its containers: "runc", also if empty, or "crun", which needs KitCrun.
	Runtime string
}

// Podman is the Podman of the lab, at its usual paths: there is one at a time. Its containers have
// no network. Its Daemon is the service of the API.
type Podman struct {
	*Daemon
	Endpoint string // "unix:///run/podman/podman.sock"
	Root     string // folder of images and containers; a mount point
	Driver   string // "overlay" or "vfs"
	Registry *Registry

	lab     *Lab
	dir     string
	cgroup  string
	idle    time.Duration
	socket  *activator // nil if the service runs all the time
	closing sync.Once
	closed  error
}

// podmanSocket is the path in Podman's own unit.
const podmanSocket = "/run/podman/podman.sock"

// podmanFolders has the other folders of a Podman, without images and containers.
var podmanFolders = [...]string{"/run/libpod", "/run/containers", "/run/podman", "/var/lib/cni", "/etc/containers"}

// StartPodman starts a Podman. It returns when the service answers or, with Activated, when the
// socket exists.
func (l *Lab) StartPodman(ctx context.Context, o PodmanOptions) (*Podman, error) {
	if l.Tools.Podman.Path == "" {
		return nil, fmt.Errorf("start podman: fetch the kit %q", KitPodman)
	}
	dir, err := os.MkdirTemp(Dir, "podman-")
	if err != nil {
		return nil, err
	}
	p := &Podman{lab: l, dir: dir, Endpoint: "unix://" + podmanSocket, Root: "/var/lib/containers/storage", cgroup: filepath.Join(l.Cgroup, filepath.Base(dir)), idle: o.Idle}
	if err := p.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("start podman: %w", err), p.Close(context.WithoutCancel(ctx)))
	}
	return p, nil
}

// noPackages hides the packages of the host. Otherwise Podman searches all of them for its programs whenever it is queried
// for its version, which takes longer on a busy machine than hostler waits for.
const noPackages = "DPKG_ADMINDIR=/nonexistent"

func (p *Podman) start(ctx context.Context, o PodmanOptions) error {
	for _, dir := range []string{p.Root, filepath.Dir(podmanSocket)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	mountRoot := tmpfs("mode=755")
	if o.ImageFSBytes > 0 {
		mountRoot = func(target string) error { return p.lab.MountExt4(ctx, target, o.ImageFSBytes) }
	}
	err := mountRoot(p.Root)
	if err == nil {
		err = p.lab.show(p.Root)
	}
	if err != nil {
		return fmt.Errorf("mount file system: %w", err)
	}
	if p.Registry, err = StartRegistry(); err != nil {
		return err
	}
	if err := p.configure(cmp.Or(o.Runtime, "runc")); err != nil {
		return err
	}
	args := []string{"system", "service", "--time", fmt.Sprint(int(p.idle / time.Second))}
	if o.Activated {
		if p.idle == 0 {
			args[3] = "5"
		}
		// systemd passes the PID of the process that gets the socket.
		script := fmt.Sprintf("export LISTEN_PID=$$ LISTEN_FDS=1; exec %s %s", p.lab.Tools.Podman.Path, strings.Join(args, " "))
		p.Daemon = NewDaemon("podman", Tool{Path: "/bin/sh", Libraries: p.lab.Tools.Podman.Libraries}, p.dir, []string{noPackages}, "-c", script)
		p.socket, err = activate(p.Daemon)
		return err
	}
	p.Daemon = NewDaemon("podman", p.lab.Tools.Podman, p.dir, []string{noPackages}, append(args, p.Endpoint)...)
	if err := p.Start(); err != nil {
		return err
	}
	return p.Ready(ctx)
}

// configure writes Podman's files. Podman runs its helper programs without environment variables,
// so scripts set the paths of downloaded libraries.
func (p *Podman) configure(runtime string) error {
	tools := map[string]Tool{"conmon": p.lab.Tools.Conmon, "runc": p.lab.Tools.Runc}
	if runtime == "crun" {
		script := filepath.Join(p.dir, "crun-here")
		if err := p.lab.writeCrun(script); err != nil {
			return err
		}
		tools[runtime] = Tool{Path: script, Libraries: p.lab.Tools.Crun.Libraries}
	}
	wrapped := map[string]string{}
	for name, tool := range tools {
		wrapped[name] = filepath.Join(p.dir, name)
		libraries := strings.Trim(p.lab.Tools.Podman.Libraries+":"+tool.Libraries, ":")
		script := fmt.Sprintf("#!/bin/sh\nexport LD_LIBRARY_PATH=%s\nexec %s \"$@\"\n", libraries, tool.Path)
		if err := os.WriteFile(wrapped[name], []byte(script), 0o755); err != nil {
			return err
		}
	}
	p.Driver = "vfs"
	if carriesOverlay(p.Root) {
		p.Driver = "overlay"
	}
	files := map[string]string{
		"storage.conf": p.storage(),
		"containers.conf": fmt.Sprintf(`[containers]
netns = "none"
log_driver = "k8s-file"
seccomp_profile = %q
apparmor_profile = "unconfined"
pids_limit = 0
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = %q
conmon_path = [%q]
helper_binaries_dir = [%q, "/usr/lib/podman"]
[engine.runtimes]
%s = [%q]
`, p.lab.Tools.Seccomp, runtime, wrapped["conmon"], filepath.Dir(p.lab.Tools.Pause.Path), runtime, wrapped[runtime]),
		"policy.json":     `{"default": [{"type": "insecureAcceptAnything"}]}`,
		"registries.conf": fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", p.Registry.Address),
	}
	if err := os.MkdirAll("/etc/containers", 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join("/etc/containers", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return p.lab.show("/etc/containers")
}

// storage returns Podman's configuration of images and containers.
func (p *Podman) storage() string {
	return fmt.Sprintf("[storage]\ndriver = %q\ngraphroot = %q\nrunroot = \"/run/containers/storage\"\n", p.Driver, p.Root)
}

// Ready waits until Podman answers.
func (p *Podman) Ready(ctx context.Context) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", podmanSocket)
	}}}
	return p.Await(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://podman/_ping", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}

// Command runs the podman command line and returns its output.
func (p *Podman) Command(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.lab.Tools.Podman.Path, args...)
	cmd.Env = append(append(os.Environ(), noPackages), p.lab.Tools.Podman.Environ()...)
	var out, complaint strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaint
	// Processes of containers inherit the pipes and would keep them open.
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return "", fmt.Errorf("podman %s: %w: %s", strings.Join(args, " "), err, LastLines(complaint.String(), 5))
	}
	return strings.TrimSpace(out.String()), nil
}

// Boot does what a boot of the host does to a Podman: it ends all its processes and mounts, and
// deletes its files in /run.
func (p *Podman) Boot(ctx context.Context) error {
	errs := []error{p.Kill()}
	killCgroup(p.cgroup)
	for _, dir := range []string{p.Driver, p.Driver + "-containers"} {
		errs = append(errs, p.lab.unmountBelow(filepath.Join(p.Root, dir)))
	}
	for _, dir := range []string{"/run/libpod", "/run/containers"} {
		errs = append(errs, p.lab.unmountBelow(dir), os.RemoveAll(dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("boot podman: %w", err)
	}
	if p.socket != nil {
		return nil
	}
	return errors.Join(p.Start(), p.Ready(ctx))
}

// Close ends the service and all containers, and removes mounts, cgroups and files. It can be
// called again.
func (p *Podman) Close(ctx context.Context) error {
	p.closing.Do(func() { p.closed = p.close(ctx) })
	return p.closed
}

func (p *Podman) close(ctx context.Context) error {
	var errs []error
	if p.socket != nil {
		errs = append(errs, p.socket.close())
	}
	if p.Daemon != nil {
		errs = append(errs, p.Kill())
		for _, what := range []string{"pod", "container"} {
			command := []string{what, "rm", "--all", "--force", "--time", "0"}
			if _, err := p.Command(ctx, command...); err != nil {
				errs = append(errs, err)
			}
		}
	}
	killCgroup(p.cgroup)
	errs = append(errs, removeCgroup(p.cgroup, patience))
	if p.Registry != nil {
		errs = append(errs, p.Registry.Close())
	}
	errs = append(errs, p.lab.unmountBelow(p.Root))
	for _, dir := range append(podmanFolders[:], p.dir) {
		errs = append(errs, p.lab.unmountBelow(dir), os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}
