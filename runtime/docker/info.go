package docker

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/moby/moby/client"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
)

// aboutAge is how long data about Docker stays valid while dockerd runs.
const aboutAge = 10 * time.Minute

// about has data that changes only with dockerd's process or configuration. Its request costs
// Docker more than any list, because Docker runs runc and docker-init for their versions.
type about struct {
	generation uint64
	askedAt    time.Time
	version    string

	root       string // its data folder
	driver     string // storage driver, or containerd's snapshotter
	containerd bool   // containerd stores the images
	address    string // containerd's socket, if Docker reports it
	snapshots  string // folder of containerd's snapshotter, once it is known
}

// fresh returns the known data, and whether it is still valid.
func (r *Runtime) fresh() (about, bool) {
	r.aboutMu.Lock()
	defer r.aboutMu.Unlock()
	a := r.about
	return a, !a.askedAt.IsZero() && a.generation == r.conn.Generation() && time.Since(a.askedAt) < aboutAge
}

// Info checks whether dockerd answers. It takes one call, or three after a start of dockerd.
func (r *Runtime) Info(ctx context.Context) (runtime.Info, error) {
	if _, known := r.fresh(); known {
		err := r.conn.Call(ctx, "Ping", "get runtime status", r.timeouts.Query, func(ctx context.Context, c *client.Client) error {
			_, err := c.Ping(ctx, client.PingOptions{})
			return err
		})
		if err != nil {
			return runtime.Info{}, err
		}
	}
	a, err := r.describe(ctx)
	if err != nil {
		return runtime.Info{}, err
	}
	return sanitize.Clean(runtime.Info{Name: "docker", Version: a.version, Endpoint: r.Endpoint(), Ready: true, NetworkReady: true}), nil
}

// describe requests data about Docker, unless it is known.
func (r *Runtime) describe(ctx context.Context) (about, error) {
	if a, known := r.fresh(); known {
		return a, nil
	}
	a := about{generation: r.conn.Generation()}
	v, err := queryVersion(ctx, r.conn, r.timeouts.Query)
	if err != nil {
		return about{}, err
	}
	info, err := engine.Get(ctx, r.conn, "Info", "get runtime status", r.timeouts.Query, func(ctx context.Context, c *client.Client) (client.SystemInfoResult, error) {
		return c.Info(ctx, client.InfoOptions{})
	})
	if err != nil {
		return about{}, err
	}
	if !filepath.IsAbs(info.Info.DockerRootDir) {
		return about{}, fmt.Errorf("ask runtime status: %w: its data folder %q is not an absolute path", runtime.ErrInvalidAnswer, info.Info.DockerRootDir)
	}
	a.version, a.root, a.driver = v.Version, info.Info.DockerRootDir, info.Info.Driver
	// `docker info` reports in "driver-type" that containerd stores the images.
	a.containerd = slices.Contains(info.Info.DriverStatus, [2]string{"driver-type", "io.containerd.snapshotter.v1"})
	if c := info.Info.Containerd; c != nil {
		a.address = c.Address
	}
	a.askedAt = time.Now()
	r.aboutMu.Lock()
	r.about = a
	r.aboutMu.Unlock()
	return a, nil
}
