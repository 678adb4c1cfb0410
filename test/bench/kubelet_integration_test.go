//go:build integration

package bench_test

import (
	"context"
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
	return &kubelet{KubeletDaemon: kube.KubeletFor(b, c, kube.KubeletOptions{Node: node, Endpoint: containerd.Endpoint, CgroupRoot: kube.PodsCgroup(b)})}
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
