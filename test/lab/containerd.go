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
	// ImageFSBytes is the size of an own file system for images and
	// containers, mounted at Root; if zero they lie in the lab's tmpfs.
	ImageFSBytes int64
	// ImageFSTmpfs makes that file system a tmpfs rather than ext4 on a loop device.
	ImageFSTmpfs bool
	// ImageFSKind is what it is on the loop device: "ext4", as if empty, or "xfs"
	// or "btrfs", whose tools are of KitFilesystems.
	ImageFSKind string
	// ImageFSInodes is how many inodes an ext4 or a tmpfs has; as many as it gets
	// by itself if zero.
	ImageFSInodes int64
	// Registry is where images are pulled from, whatever registry their names
	// say; if nil containerd gets one of its own.
	Registry *Registry
	// NoNetwork leaves out the CNI configuration: CRI then reports
	// NetworkReady false, as on a fresh node.
	NoNetwork bool
	// HostLogs puts logs of pods where kubelet has them, below /var/log, which all containerds of a
	// lab share. Otherwise they are in a private folder.
	HostLogs bool
	// NoCRI switches CRI off, as in the containerd of Docker's own packages.
	NoCRI bool
	Debug bool // containerd logs what it does
}

// Containerd is a private containerd with its CRI plugin. The Daemon in it can
// be killed, hung and started again; pods live on meanwhile, as they do in real
// life. After Start, Ready waits until it answers.
type Containerd struct {
	*Daemon
	Endpoint     string // of CRI and of containerd's own API, such as "unix:///run/lab/containerd-1/containerd.sock"
	Root         string // holds images and containers; a mount of its own if ImageFSBytes is set
	Snapshotter  string // "overlayfs" or "native"
	SandboxImage string // what pods' sandboxes are made from
	Registry     *Registry

	// Runtime and Images are CRI's services.
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

// sandboxImage is the name that Kubernetes gives it; here it is made by the lab.
const sandboxImage = "registry.k8s.io/pause:3.8"

// containerdConfig serves containerd 1.6 to 2.x, which read version 2.
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

// cniConfig lets CRI report NetworkReady. Its plugin is never called: the lab's
// pods use the network of the lab.
const cniConfig = `{"cniVersion": "0.4.0", "name": "lab", "plugins": [{"type": "loopback"}]}`

// StartContainerd starts a containerd and returns once CRI answers.
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

// configure writes the files that containerd reads.
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

// Ready waits until CRI answers that the runtime is ready, or containerd itself that it is
// there where it has none.
func (c *Containerd) Ready(ctx context.Context) error {
	return c.Await(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		// After a while without a server grpc retries only every few seconds.
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

// Restart stops containerd and starts it again. Pods live on.
func (c *Containerd) Restart(ctx context.Context) error {
	return errors.Join(c.Stop(ctx), c.Start(), c.Ready(ctx))
}

// GoDown ends containerd with what is left of its pods and empties its state
// folder, as the machine's going down does. Images and containers on disk stay;
// Start and Ready bring them back.
func (c *Containerd) GoDown(ctx context.Context) error {
	err := c.Stop(ctx)
	c.killAll()
	state := filepath.Join(c.dir, "state")
	return errors.Join(err, c.lab.unmountBelow(state), os.RemoveAll(state), os.Mkdir(state, 0o755))
}

// Close ends containerd with all its pods, and removes its mounts, cgroups and
// files. It may be called more than once.
func (c *Containerd) Close(ctx context.Context) error {
	c.closing.Do(func() { c.closed = c.close(ctx) })
	return c.closed
}

func (c *Containerd) close(ctx context.Context) error {
	var errs []error
	if c.Daemon != nil {
		// A paused one would not hear that it has to end.
		if c.PID() != 0 {
			_ = c.Continue()
		}
		errs = append(errs, c.Stop(ctx))
	}
	// Shims outlive containerd, and kill their containers if they are asked to
	// end; here both are killed, and the kernel takes down the rest.
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

// killAll kills the shims, which name the socket in their arguments, and all
// that is in the containers' cgroups, until nothing of both is left.
func (c *Containerd) killAll() { killCgroup(c.cgroup(), c.shims) }

// killCgroup kills all that is in a cgroup and below, and what else others name,
// until nothing is left.
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

// cgroupProcesses lists the processes in a cgroup and below. Those of other PID
// namespaces appear as 0.
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
