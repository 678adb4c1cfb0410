package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"time"

	"github.com/containerd/containerd/api/services/version/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerdOptions configure a containerd.
type ContainerdOptions struct {
	// ImageFSBytes is the size of a separate file system for images and containers, mounted at Root.
	// If zero, they are in the lab's tmpfs.
	ImageFSBytes int64
	// ImageFSTmpfs makes that file system a tmpfs instead of an ext4 on a loop device.
	ImageFSTmpfs bool
	// ImageFSKind is the type of the file system on the loop device: "ext4", also if empty, or "xfs"
	// or "btrfs", which need KitFilesystems.
	ImageFSKind string
	// ImageFSInodes is the number of inodes of an ext4 or a tmpfs; the default number if zero.
	ImageFSInodes int64
	// Registry serves all images, whatever registry their names have. If nil, containerd gets its own.
	Registry *Registry
	// NoNetwork leaves out the CNI configuration. CRI then reports NetworkReady false, as on a new
	// node.
	NoNetwork bool
	// HostLogs puts logs of pods where kubelet puts them, below /var/log, which all containerds of a
	// lab share. Otherwise they are in a separate folder.
	HostLogs bool
	// NoCRI disables CRI, as in the containerd of Docker's packages.
	NoCRI bool
	Debug bool // containerd logs debug messages
}

// Containerd is a separate containerd with its CRI plugin. Its Daemon can be killed, paused and
// started again. Pods continue to run meanwhile, as on a real host. After Start, Ready waits until
// it answers.
type Containerd struct {
	*Daemon
	Endpoint     string // of CRI and of containerd's own API, such as "unix:///run/lab/containerd-1/containerd.sock"
	Root         string // folder of images and containers; a mount point if ImageFSBytes is set
	Snapshotter  string // "overlayfs" or "native"
	SandboxImage string // image of pods' sandboxes
	Registry     *Registry

	// Runtime and Images are the services of CRI.
	Runtime cri.RuntimeServiceClient
	Images  cri.ImageServiceClient

	lab         *Lab
	dir         string
	opts        ContainerdOptions
	ownRegistry bool
	conn        *grpc.ClientConn
	closing     sync.Once
	closed      error
}

// sandboxImage has Kubernetes' name, but the lab makes the image.
const sandboxImage = "registry.k8s.io/pause:3.8"

// containerdConfig is for containerd 1.6 to 2.x, which all read version 2.
const containerdConfig = `version = 2
disabled_plugins = [{{.Disabled}}]
root = "{{.Root}}"
state = "{{.Dir}}/state"
[grpc]
  address = "{{.Socket}}"
[debug]
  level = "{{.Level}}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{{.Dir}}/opt"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{{.SandboxImage}}"
  # Root may lack CAP_SYS_RESOURCE; loading an AppArmor profile would change the host.
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{{.Dir}}/cni/bin"
    conf_dir = "{{.Dir}}/cni/conf"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{{.Dir}}/registry"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{{.Snapshotter}}"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{{.Runc}}"
        Root = "{{.Dir}}/runc"
        SystemdCgroup = false
`

// cniConfig makes CRI report NetworkReady. Its plugin is never called, because the lab's pods use
// the network of the lab.
const cniConfig = `{"cniVersion": "0.4.0", "name": "lab", "plugins": [{"type": "loopback"}]}`

// StartContainerd starts a containerd and returns when CRI answers.
func (l *Lab) StartContainerd(ctx context.Context, o ContainerdOptions) (*Containerd, error) {
	dir, err := os.MkdirTemp(Dir, "containerd-")
	if err != nil {
		return nil, err
	}
	c := &Containerd{
		opts: o, lab: l, dir: dir, Root: filepath.Join(dir, "root"),
		SandboxImage: sandboxImage, Registry: o.Registry,
	}
	c.Endpoint = "unix://" + c.socket()
	if err := c.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("start containerd: %w", err), c.Close(context.WithoutCancel(ctx)))
	}
	return c, nil
}

func (c *Containerd) start(ctx context.Context, o ContainerdOptions) error {
	for _, dir := range []string{c.Root, c.dir + "/state", c.dir + "/cni/conf", c.dir + "/registry/_default", c.dir + "/logs"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	var err error
	if o.ImageFSBytes > 0 {
		if err = c.lab.mountImageFS(ctx, c.Root, o); err == nil {
			err = c.lab.show(c.Root)
		}
	}
	if err != nil {
		return fmt.Errorf("mount image file system: %w", err)
	}
	c.Snapshotter = "native"
	if carriesOverlay(c.Root) {
		c.Snapshotter = "overlayfs"
	}
	if c.Registry == nil {
		if c.Registry, err = StartRegistry(); err != nil {
			return err
		}
		c.ownRegistry = true
	}
	pause := ImageSpec{Names: []string{c.SandboxImage}, Command: []string{"sleep", "2147483647"}}
	if err := c.lab.push(ctx, c.Registry, pause); err != nil {
		return err
	}
	if err := c.configure(o); err != nil {
		return err
	}
	c.conn, err = grpc.NewClient(c.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return err
	}
	c.Runtime, c.Images = cri.NewRuntimeServiceClient(c.conn), cri.NewImageServiceClient(c.conn)
	tools := c.lab.Tools
	path := strings.Join([]string{filepath.Dir(tools.Shim.Path), filepath.Dir(tools.Runc.Path), os.Getenv("PATH")}, ":")
	c.Daemon = NewDaemon("containerd", tools.Containerd, c.dir, []string{"PATH=" + path}, "--config", c.dir+"/config.toml")
	if err := c.Start(); err != nil {
		return err
	}
	return c.Ready(ctx)
}

// configure writes containerd's files.
func (c *Containerd) configure(o ContainerdOptions) error {
	level := "info"
	if o.Debug {
		level = "debug"
	}
	disabled := ""
	if o.NoCRI {
		disabled = `"io.containerd.grpc.v1.cri"`
	}
	parsed, err := template.New("config.toml").Parse(containerdConfig)
	if err != nil {
		return err
	}
	var config strings.Builder
	err = parsed.Execute(&config, map[string]string{
		"Root": c.Root, "Dir": c.dir, "Socket": c.socket(), "Level": level, "SandboxImage": c.SandboxImage,
		"Snapshotter": c.Snapshotter, "Disabled": disabled, "Runc": c.lab.Tools.Runc.Path,
	})
	if err != nil {
		return err
	}
	url := "http://" + c.Registry.Address
	hosts := fmt.Sprintf("server = %q\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", url, url)
	if !o.NoNetwork {
		if err := os.WriteFile(c.dir+"/cni/conf/10-lab.conflist", []byte(cniConfig), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(
		os.WriteFile(c.dir+"/config.toml", []byte(config.String()), 0o644),
		os.WriteFile(c.dir+"/registry/_default/hosts.toml", []byte(hosts), 0o644))
}

// Ready waits until CRI answers that the runtime is ready. Without CRI, it waits until containerd
// answers.
func (c *Containerd) Ready(ctx context.Context) error {
	return c.Await(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		// If no server answers for a while, grpc retries only every few seconds.
		c.conn.ResetConnectBackoff()
		if c.opts.NoCRI {
			_, err := version.NewVersionClient(c.conn).Version(ctx, &emptypb.Empty{})
			return err
		}
		status, err := c.Runtime.Status(ctx, &cri.StatusRequest{})
		if err != nil {
			return err
		}
		for _, condition := range status.Status.Conditions {
			if condition.Type == cri.RuntimeReady && !condition.Status {
				return errors.New(condition.Message)
			}
		}
		return nil
	})
}

// Restart stops containerd and starts it again. Pods continue to run.
func (c *Containerd) Restart(ctx context.Context) error {
	return errors.Join(c.Stop(ctx), c.Start(), c.Ready(ctx))
}

// GoDown ends containerd with its pods and empties its state folder, as a shutdown of the machine
// does. Images and containers stay on disk. Start and Ready start it again.
func (c *Containerd) GoDown(ctx context.Context) error {
	err := c.Stop(ctx)
	c.killAll()
	state := filepath.Join(c.dir, "state")
	return errors.Join(err, c.lab.unmountBelow(state), os.RemoveAll(state), os.Mkdir(state, 0o755))
}

// Close ends containerd with all its pods, and removes its mounts, cgroups and files. It can be
// called again.
func (c *Containerd) Close(ctx context.Context) error {
	c.closing.Do(func() { c.closed = c.close(ctx) })
	return c.closed
}

func (c *Containerd) close(ctx context.Context) error {
	var errs []error
	if c.Daemon != nil {
		// A paused containerd would not handle the signal.
		if c.PID() != 0 {
			_ = c.Continue()
		}
		errs = append(errs, c.Stop(ctx))
	}
	// Shims outlive containerd, and kill their containers when they are stopped. Here both are killed,
	// and the kernel removes the rest.
	c.killAll()
	if c.conn != nil {
		errs = append(errs, c.conn.Close())
	}
	if c.ownRegistry {
		errs = append(errs, c.Registry.Close())
	}
	if err := c.lab.unmountBelow(c.dir); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir), removeCgroup(c.cgroup(), patience))...)
}

func (c *Containerd) socket() string { return filepath.Join(c.dir, "containerd.sock") }

func (c *Containerd) cgroup() string { return filepath.Join(c.lab.Cgroup, filepath.Base(c.dir)) }

// killAll kills the shims, which have the socket in their arguments, and all processes in the
// containers' cgroups, until none is left.
func (c *Containerd) killAll() { killCgroup(c.cgroup(), c.shims) }

// killCgroup kills all processes in a cgroup and below, and those that others return, until none is
// left.
func killCgroup(cgroup string, others ...func() []int) {
	for range 500 {
		roots, err := cgroupRoots()
		if err != nil {
			return
		}
		var pids []int
		for _, list := range others {
			pids = append(pids, list()...)
		}
		for _, root := range roots {
			pids = append(pids, cgroupProcesses(filepath.Join(root, cgroup))...)
		}
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (c *Containerd) shims() []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), "shim") && strings.Contains(string(line), c.socket()) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// cgroupProcesses lists the processes in a cgroup and below. Processes of other PID namespaces
// appear as 0.
func cgroupProcesses(dir string) []int {
	var pids []int
	data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for _, field := range strings.Fields(string(data)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			pids = append(pids, cgroupProcesses(filepath.Join(dir, e.Name()))...)
		}
	}
	return pids
}
