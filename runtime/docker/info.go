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

// aboutAge is how long what Docker says of itself is believed in one life of dockerd.
const aboutAge = 10 * time.Minute

// about is what changes only with dockerd's process or configuration. To request it
// costs Docker more than any list: it runs runc and docker-init for their versions.
type about struct {
	life    uint64
	askedAt time.Time
	version string

	root       string // its data folder
	driver     string // storage driver, or snapshotter where containerd keeps the images
	containerd bool   // containerd keeps the images
	address    string // containerd's socket, if Docker reports it
	snapshots  string // folder of containerd's snapshotter, once it is known
}

// fresh returns what is known if it is still to be believed.
func (r *Runtime) fresh() (about, bool) {
	r.aboutMu.Lock()
	defer r.aboutMu.Unlock()
	a := r.about
	return a, !a.askedAt.IsZero() && a.life == r.conn.Life() && time.Since(a.askedAt) < aboutAge
}

// Info asks whether dockerd answers: one call, three in the first of its life.
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

// describe asks Docker what it is, unless that is known.
func (r *Runtime) describe(ctx context.Context) (about, error) {
	if a, known := r.fresh(); known {
		return a, nil
	}
	a := about{life: r.conn.Life()}
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
	// So Docker reports where containerd keeps the images: docker info, "driver-type".
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
