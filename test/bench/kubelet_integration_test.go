//go:build integration

package bench_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

// kubeletConfig has kubelet's defaults but for what keeps it off the host, and for
// what hosts differ in: version and driver of cgroups, swap.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: %s
cgroupRoot: %s
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
makeIPTablesUtilChains: false
registerNode: true
`

// kubelet is a real one, with a containerd of its own.
type kubelet struct {
	*lab.Daemon
	process
}

// newKubelet makes a kubelet that has never run, as the node of that name.
func newKubelet(b *testing.B, c *kube.Cluster, containerd *lab.Containerd, node string) *kubelet {
	b.Helper()
	program, err := kube.Kubelet.Path(b.Context())
	check(b, err)
	folder, err := filepath.Abs(filepath.Join(scratch, node))
	check(b, err)
	check(b, os.MkdirAll(folder, 0o755))
	kubeconfig, err := c.NodeKubeconfig(node)
	check(b, err)
	config := filepath.Join(folder, "config.yaml")
	check(b, os.WriteFile(config, fmt.Appendf(nil, kubeletConfig, containerd.Endpoint, cgroup(b)), 0o600))
	daemon := lab.NewDaemon("kubelet", lab.Tool{Path: program}, folder, nil,
		"--config="+config, "--kubeconfig="+kubeconfig, "--hostname-override="+node,
		"--root-dir="+filepath.Join(folder, "root"), "--cert-dir="+filepath.Join(folder, "pki"))
	b.Cleanup(func() {
		// Where kubelet mounts its folder onto itself, it would be in use.
		if err := unix.Unmount(filepath.Join(folder, "root"), unix.MNT_DETACH); !errors.Is(err, unix.EINVAL) {
			check(b, err)
		}
	})
	return &kubelet{Daemon: daemon}
}

// start starts it, anew or again.
func (k *kubelet) start(b *testing.B) {
	b.Helper()
	check(b, k.Start())
	k.process = process{b, k.PID()}
}

// stop asks it to end. What it has made goes with the lab.
func (k *kubelet) stop(b *testing.B) {
	b.Helper()
	check(b, k.Stop(context.WithoutCancel(b.Context())))
	if b.Failed() {
		b.Logf("log of kubelet:\n%s", k.Log(50))
	}
}

// cgroup makes the one that a kubelet's pods are to lie below, in every hierarchy,
// and returns its name.
func cgroup(b *testing.B) string {
	b.Helper()
	const mounted = "/sys/fs/cgroup"
	name := filepath.Join(lab.In(b).Cgroup, "kubelet")
	roots, err := filepath.Glob(filepath.Join(mounted, "*", "cgroup.procs"))
	check(b, err)
	if _, err := os.Stat(filepath.Join(mounted, "cgroup.procs")); err == nil {
		roots = []string{filepath.Join(mounted, "cgroup.procs")} // version 2 alone
	}
	for _, root := range roots {
		root = filepath.Dir(root)
		check(b, os.MkdirAll(filepath.Join(root, name), 0o755))
		// Those of version 1 begin without any processor and memory.
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

// sealKernel shows the lab settings of the whole host's kernel as kubelet wants
// them, in files of its own: kubelet would set them, and leaves those of the host
// alone then.
func sealKernel(b *testing.B) {
	b.Helper()
	for name, value := range map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	} {
		target, file := filepath.Join("/proc/sys", name), filepath.Join(b.TempDir(), "value")
		if _, err := os.Stat(target); errors.Is(err, os.ErrNotExist) {
			continue
		}
		check(b, os.WriteFile(file, []byte(value+"\n"), 0o644))
		check(b, unix.Mount(file, target, "", unix.MS_BIND, ""))
		b.Cleanup(func() { check(b, unix.Unmount(target, unix.MNT_DETACH)) })
	}
}
