package docker

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/api/services/introspection/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

// containerdSockets are containerd's sockets if Docker does not report one, as before API 1.46.
// dockerd's own is first; it exists only while dockerd runs its own containerd.
var containerdSockets = []string{"/run/docker/containerd/containerd.sock", "/run/containerd/containerd.sock"}

// snapshots returns the folder of images' snapshots if containerd stores the images. Only
// containerd knows it, not Docker. There is no default: if hostler freed space on another
// filesystem, it would remove images in vain. The result stays valid as long as the other data
// about Docker.
func (r *Runtime) snapshots(ctx context.Context, a about) (string, error) {
	if a.snapshots != "" {
		return a.snapshots, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Query)
	defer cancel()
	conn, err := r.dialContainerd(a)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	folder, err := snapshotsOf(ctx, conn, a.driver)
	if err != nil {
		return "", err
	}
	r.aboutMu.Lock()
	defer r.aboutMu.Unlock()
	if r.about.generation == a.generation {
		r.about.snapshots = folder
	}
	return folder, nil
}

// dialContainerd connects to the containerd that stores Docker's images.
func (r *Runtime) dialContainerd(a about) (*grpc.ClientConn, error) {
	socket := strings.TrimPrefix(a.address, "unix://")
	if socket == "" {
		i := slices.IndexFunc(containerdSockets, func(s string) bool { _, err := os.Stat(s); return err == nil })
		if i < 0 {
			return nil, fmt.Errorf("images of Docker are in containerd, but none of its sockets %q exists", containerdSockets)
		}
		socket = containerdSockets[i]
	}
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return local.Dial(ctx, socket)
		}),
		grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, fmt.Errorf("prepare connection to %s: %w", socket, err)
	}
	return conn, nil
}

// snapshotsOf requests the folder of a snapshotter from containerd.
func snapshotsOf(ctx context.Context, conn *grpc.ClientConn, snapshotter string) (string, error) {
	answer, err := introspection.NewIntrospectionClient(conn).Plugins(ctx, &introspection.PluginsRequest{
		Filters: []string{fmt.Sprintf("type==io.containerd.snapshotter.v1,id==%q", snapshotter)},
	})
	what := fmt.Sprintf("get snapshotter %s of containerd", snapshotter)
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	for _, plugin := range answer.GetPlugins() {
		if folder := plugin.GetExports()["root"]; filepath.IsAbs(folder) {
			return folder, nil
		}
	}
	return "", fmt.Errorf("%s: %w: no folder", what, runtime.ErrInvalidAnswer)
}
