package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/moby/moby/client"
)

// DockerOptions configure a Docker Engine.
type DockerOptions struct {
	// Dockerd is another program than the one of the kit. It uses the libraries of the kit.
	Dockerd string
	// Containerd runs its containers, as on a Debian host with both packages. If nil, Docker gets its
	// own.
	Containerd *Containerd
	// Root is the folder for images and containers, such as one on the filesystem of another runtime.
	// It is created. If empty, Docker gets its own.
	Root string
	// ImageFSBytes is the size of a separate ext4 for images and containers, mounted at Root. If zero,
	// they are in the lab's tmpfs.
	ImageFSBytes int64
	// ContainerdStore stores the images in containerd, which versions before 23 do not support.
	ContainerdStore bool
	// LiveRestore keeps containers running while dockerd does not run.
	LiveRestore bool
	Debug       bool // dockerd logs debug messages
}

// Docker is a separate Docker Engine without networks. Its Daemon, dockerd, can be killed, paused
// and started again. After Start, Ready waits until it answers.
type Docker struct {
	*Daemon
	Endpoint   string // such as "unix:///run/lab/docker-1/docker.sock"
	Root       string // folder of images and containers; a mount point if ImageFSBytes is set
	Driver     string // "overlay2" or "vfs", or containerd's snapshotter
	Containerd *Containerd
	Registry   *Registry // for Pull

	// API is a client of the Engine's API.
	API *client.Client

	lab           *Lab
	dir           string
	socket        string
	ownContainerd bool
	closing       sync.Once
	closed        error
}

// StartDocker starts a Docker Engine and returns when it answers.
func (l *Lab) StartDocker(ctx context.Context, o DockerOptions) (*Docker, error) {
	if l.Tools.Dockerd.Path == "" {
		return nil, fmt.Errorf("start docker: no dockerd: fetch the kit %q", KitDocker)
	}
	dir, err := os.MkdirTemp(Dir, "docker-")
	if err != nil {
		return nil, err
	}
	root := cmp.Or(o.Root, filepath.Join(dir, "root"))
	d := &Docker{lab: l, dir: dir, Root: root, socket: filepath.Join(dir, "docker.sock"), Containerd: o.Containerd}
	d.Endpoint = "unix://" + d.socket
	if err := d.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("start docker: %w", err), d.Close(context.WithoutCancel(ctx)))
	}
	return d, nil
}

func (d *Docker) start(ctx context.Context, o DockerOptions) error {
	if err := os.Mkdir(d.Root, 0o755); err != nil {
		return err
	}
	var err error
	if o.ImageFSBytes > 0 {
		err = d.lab.MountExt4(ctx, d.Root, o.ImageFSBytes)
	}
	if err != nil {
		return fmt.Errorf("mount file system: %w", err)
	}
	if d.Containerd == nil {
		if d.Containerd, err = d.lab.StartContainerd(ctx, ContainerdOptions{}); err != nil {
			return err
		}
		d.ownContainerd = true
	}
	d.Registry = d.Containerd.Registry
	d.Driver = "vfs"
	if carriesOverlay(d.Root) {
		d.Driver = "overlay2"
	}
	if o.ContainerdStore {
		d.Driver = d.Containerd.Snapshotter
	}
	if d.API, err = client.New(client.WithHost(d.Endpoint)); err != nil {
		return err
	}
	if err := d.configure(o); err != nil {
		return err
	}
	// With this variable dockerd assumes that it runs in a container, and loads no AppArmor profile,
	// which would change the host.
	environment := []string{"PATH=" + filepath.Dir(d.lab.Tools.Runc.Path) + ":" + os.Getenv("PATH"), "container=lab"}
	d.Daemon = NewDaemon("dockerd", Tool{Path: cmp.Or(o.Dockerd, d.lab.Tools.Dockerd.Path), Libraries: d.lab.Tools.Dockerd.Libraries}, d.dir, environment, "--config-file", d.dir+"/daemon.json")
	if err := d.Start(); err != nil {
		return err
	}
	return d.Ready(ctx)
}

// configure writes dockerd's file. Docker's networks are disabled, because they need iptables and a
// bridge. Containers have no network, or the lab's.
func (d *Docker) configure(o DockerOptions) error {
	config := map[string]any{
		"data-root": d.Root, "exec-root": d.dir + "/exec", "pidfile": d.dir + "/docker.pid", "hosts": []string{d.Endpoint},
		"containerd": d.Containerd.socket(), "storage-driver": d.Driver, "live-restore": o.LiveRestore, "debug": o.Debug,
		"features": map[string]bool{"containerd-snapshotter": o.ContainerdStore},
		"iptables": false, "ip6tables": false, "ip-forward": false, "ip-masq": false, "userland-proxy": false, "bridge": "none",
		"exec-opts":     []string{"native.cgroupdriver=cgroupfs"},
		"cgroup-parent": filepath.Join(d.Containerd.cgroup(), filepath.Base(d.dir)),
		// On a busy machine, dockerd must not kill containers because of a second.
		"shutdown-timeout": int(patience / time.Second),
	}
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(d.dir+"/daemon.json", text, 0o644)
}

// Ready waits until the Engine answers.
func (d *Docker) Ready(ctx context.Context) error {
	return d.Await(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		_, err := d.API.Ping(ctx, client.PingOptions{})
		return err
	})
}

// Restart stops dockerd and starts it again. That ends its containers unless LiveRestore is set.
func (d *Docker) Restart(ctx context.Context) error {
	return errors.Join(d.Stop(ctx), d.Start(), d.Ready(ctx))
}

// Upgrade restarts with another dockerd on the same data, as an upgrade of the package does.
func (d *Docker) Upgrade(ctx context.Context, dockerd string) error {
	d.replace(dockerd)
	return d.Restart(ctx)
}

// Close ends dockerd with all its containers, and removes its mounts, cgroups and files. It can be
// called again.
func (d *Docker) Close(ctx context.Context) error {
	d.closing.Do(func() { d.closed = d.close(ctx) })
	return d.closed
}

func (d *Docker) close(ctx context.Context) error {
	var errs []error
	if d.Daemon != nil {
		errs = append(errs, d.Kill())
	}
	if d.API != nil {
		errs = append(errs, d.API.Close())
	}
	switch {
	case d.Containerd == nil:
	case d.ownContainerd:
		errs = append(errs, d.Containerd.Close(ctx))
	default:
		// The shims belong to containerd, and end with their containers.
		killCgroup(filepath.Join(d.Containerd.cgroup(), filepath.Base(d.dir)))
	}
	return errors.Join(append(errs, unmountBelow(d.dir), os.RemoveAll(d.dir))...)
}
