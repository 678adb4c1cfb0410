package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/test/lab"
)

// KubeletOptions configure a kubelet.
type KubeletOptions struct {
	Node     string // name of its Node
	Endpoint string // of CRI, such as "unix:///run/lab/containerd-1/containerd.sock"
	// CgroupRoot is the parent of the pods' cgroups. If it is empty, pods have no cgroups.
	CgroupRoot string
	// Config has additional lines of the configuration file, such as "nodeStatusUpdateFrequency: 1s".
	Config string
}

// KubeletDaemon is a real kubelet, with its own credentials. Like the control plane's daemons it
// can be stopped, killed, paused and started again.
type KubeletDaemon struct {
	*lab.Daemon
	dir     string
	covered []string // files below /proc/sys that were replaced
}

// kubeletConfig has kubelet's defaults. It differs in settings that protect the host, and in those
// that depend on the host: version and driver of cgroups, swap.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: %s
podLogsDir: %s
%s
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
makeIPTablesUtilChains: false
%s
`

// tunables are kernel settings of the whole host that kubelet sets.
func tunables() map[string]string {
	return map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	}
}

// NewKubelet prepares a kubelet for a new Node of the cluster.
func (c *Cluster) NewKubelet(ctx context.Context, o KubeletOptions) (*KubeletDaemon, error) {
	k, err := c.newKubelet(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("prepare kubelet of node %q: %w", o.Node, err)
	}
	return k, nil
}

func (c *Cluster) newKubelet(ctx context.Context, o KubeletOptions) (*KubeletDaemon, error) {
	program, err := Kubelet.Path(ctx)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := c.NodeKubeconfig(o.Node)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(c.dir, "kubelet-")
	if err != nil {
		return nil, err
	}
	cgroups := "cgroupsPerQOS: false\nenforceNodeAllocatable: []"
	if o.CgroupRoot != "" {
		cgroups = "cgroupRoot: " + o.CgroupRoot
	}
	config := filepath.Join(dir, "config.yaml")
	text := fmt.Appendf(nil, kubeletConfig, o.Endpoint, filepath.Join(dir, "logs"), cgroups, o.Config)
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return nil, err
	}
	k := &KubeletDaemon{dir: dir, Daemon: lab.NewDaemon("kubelet", lab.Tool{Path: program}, dir, nil,
		"--config="+config, "--kubeconfig="+kubeconfig, "--hostname-override="+o.Node,
		"--root-dir="+filepath.Join(dir, "root"), "--cert-dir="+filepath.Join(dir, "pki"))}
	for name, value := range tunables() {
		if err := k.cover(name, value); err != nil {
			return nil, errors.Join(err, k.Close())
		}
	}
	return k, nil
}

// Start starts it as a service of the host, as real kubelets run.
func (k *KubeletDaemon) Start() error {
	l, err := lab.Current()
	if err != nil {
		return err
	}
	if err := k.Daemon.Start(); err != nil {
		return err
	}
	return l.IntoService(k.PID(), "kubelet.service")
}

// cover shows the lab a kernel setting with the value that kubelet wants, as a separate file, so
// that kubelet does not change the host's.
func (k *KubeletDaemon) cover(name, value string) error {
	target, file := filepath.Join("/proc/sys", name), filepath.Join(k.dir, filepath.Base(name))
	if _, err := os.Stat(target); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
		return err
	}
	if err := unix.Mount(file, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cover %s: %w", target, err)
	}
	k.covered = append(k.covered, target)
	return nil
}

// Close ends the kubelet and removes its files.
func (k *KubeletDaemon) Close() error {
	err := k.Kill()
	for _, target := range k.covered {
		err = errors.Join(err, unix.Unmount(target, unix.MNT_DETACH))
	}
	// kubelet has bind-mounted its root folder.
	return errors.Join(err, lab.Unmount(k.dir), os.RemoveAll(k.dir))
}

// KubeletFor is NewKubelet for the time of a test. If the test fails, it logs the kubelet's output.
func KubeletFor(tb testing.TB, c *Cluster, o KubeletOptions) *KubeletDaemon {
	tb.Helper()
	k, err := c.NewKubelet(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("log of kubelet:\n%s", k.Log(50))
		}
		if err := k.Close(); err != nil {
			tb.Error(err)
		}
	})
	return k
}

// PodsCgroup makes a cgroup that the pods of a kubelet are to lie below, in every hierarchy, and returns its name for
// KubeletOptions.CgroupRoot.
func PodsCgroup(tb testing.TB) string {
	tb.Helper()
	const mounted = "/sys/fs/cgroup"
	name := filepath.Join(lab.In(tb).Cgroup, "kubelet")
	roots, err := filepath.Glob(filepath.Join(mounted, "*", "cgroup.procs"))
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(mounted, "cgroup.procs")); err == nil {
		roots = []string{filepath.Join(mounted, "cgroup.procs")} // version 2 alone
	}
	for _, root := range roots {
		if err := podsCgroup(filepath.Dir(root), name); err != nil {
			tb.Fatal(err)
		}
	}
	return name
}

// podsCgroup makes a cgroup in one hierarchy. Those of version 1 begin without any processor and memory.
func podsCgroup(root, name string) error {
	if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Dir(name), name} {
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			all, err := os.ReadFile(filepath.Join(root, file))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(root, dir, file), all, 0o644)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
