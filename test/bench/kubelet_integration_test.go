//go:build integration

package bench_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

// kubelet is a real kubelet with its own containerd.
type kubelet struct {
	*kube.KubeletDaemon
	process
}

// newKubelet prepares a new kubelet for the node of that name.
func newKubelet(b *testing.B, c *kube.Cluster, containerd *lab.Containerd, node string) *kubelet {
	b.Helper()
	return &kubelet{KubeletDaemon: kube.KubeletFor(b, c, kube.KubeletOptions{Node: node, Endpoint: containerd.Endpoint, CgroupRoot: cgroup(b)})}
}

// start starts it, the first time or again.
func (k *kubelet) start(b *testing.B) {
	b.Helper()
	check(b, k.Start())
	k.process = process{b, k.PID()}
}

// stop stops it with SIGTERM.
func (k *kubelet) stop(b *testing.B) {
	b.Helper()
	check(b, k.Stop(context.WithoutCancel(b.Context())))
}

// cgroup creates the parent cgroup of a kubelet's pods in every hierarchy, and returns its name.
func cgroup(b *testing.B) string {
	b.Helper()
	const mounted = "/sys/fs/cgroup"
	name := filepath.Join(lab.In(b).Cgroup, "kubelet")
	roots, err := filepath.Glob(filepath.Join(mounted, "*", "cgroup.procs"))
	check(b, err)
	if _, err := os.Stat(filepath.Join(mounted, "cgroup.procs")); err == nil {
		roots = []string{filepath.Join(mounted, "cgroup.procs")} // only version 2
	}
	for _, root := range roots {
		root = filepath.Dir(root)
		check(b, os.MkdirAll(filepath.Join(root, name), 0o755))
		// New cgroups of version 1 have no processors and no memory nodes.
		for _, dir := range []string{filepath.Dir(name), name} {
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				all, err := os.ReadFile(filepath.Join(root, file))
				if errors.Is(err, os.ErrNotExist) {
					continue
				}
				check(b, err)
				check(b, os.WriteFile(filepath.Join(root, dir, file), all, 0o644))
			}
		}
	}
	return name
}
