package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"hostler.io/hostler/test/lab"
)

// startScheduler starts kube-scheduler with its defaults.
func (c *Cluster) startScheduler(ctx context.Context) error {
	kubeconfig, err := c.Kubeconfig(User{Name: "system:kube-scheduler"})
	if err != nil {
		return err
	}
	c.Scheduler, err = c.daemon(ctx, Scheduler, []string{"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0"})
	if err != nil {
		return err
	}
	return c.Scheduler.Start()
}

// inOwnTmp runs a program with another folder as /tmp. kubemark puts all files of a kubelet there,
// and removes none. The program itself may be below /tmp.
const inOwnTmp = `exec 3<"$1"; mount --bind "$0" /tmp; shift; exec /proc/self/fd/3 "$@"`

// StartHollowNode starts kubemark's kubelet for a Node: a real kubelet with a fake runtime and fake
// images, mounts and cgroups. It returns when the Node is registered. The kubelet ends with the
// cluster.
func (c *Cluster) StartHollowNode(ctx context.Context, name string) (*lab.Daemon, error) {
	d, err := c.startHollowNode(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("start hollow node %q: %w", name, err)
	}
	return d, nil
}

func (c *Cluster) startHollowNode(ctx context.Context, name string) (*lab.Daemon, error) {
	program, err := Kubemark.Path(ctx)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := c.NodeKubeconfig(name)
	if err != nil {
		return nil, err
	}
	temporary, err := os.MkdirTemp(c.dir, "hollow-")
	if err != nil {
		return nil, err
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return nil, err
	}
	// The kubelets of all clusters share the lab's addresses.
	first := 20000 + 100*c.number + 2*len(c.hollow)
	d := lab.NewDaemon("kubelet-"+name, lab.Tool{Path: unshare}, c.dir, nil,
		"--mount", "--propagation=private", "sh", "-ec", inOwnTmp, temporary, program,
		"--morph=kubelet", "--name="+name, "--kubeconfig="+kubeconfig, "--use-host-image-service=false",
		fmt.Sprintf("--kubelet-port=%d", first), fmt.Sprintf("--kubelet-read-only-port=%d", first+1))
	c.hollow = append(c.hollow, d)
	if err := d.Start(); err != nil {
		return nil, err
	}
	return d, d.Await(ctx, func(ctx context.Context) error { return c.get(ctx, "/api/v1/nodes/"+name) })
}

// WriteLogs writes the output of the cluster's daemons to a folder.
func (c *Cluster) WriteLogs(folder string) error {
	logs, err := filepath.Glob(c.file("*.log"))
	if err != nil {
		return err
	}
	errs := []error{os.MkdirAll(folder, 0o755)}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		errs = append(errs, err, os.WriteFile(filepath.Join(folder, filepath.Base(log)), text, 0o644))
	}
	return errors.Join(errs...)
}
