package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/test/machine/job"
)

// The sockets of the containerd service, and of the containerd of the orchestrator.
const (
	usualSocket  = "/run/containerd/containerd.sock"
	nestedFolder = "/run/k3s/containerd"
	nestedSocket = nestedFolder + "/containerd.sock"
)

// socket returns the socket of CRI in this machine.
func socket() string {
	if _, err := os.Stat(nestedSocket); err == nil {
		return nestedSocket
	}
	return usualSocket
}

// resync is the interval at which the orchestrator checks for ended containers. A kubelet learns of
// them within a second.
const resync = 200 * time.Millisecond

// orchestrate simulates k3s, RKE2 and k0s. It runs containerd as a child that dies with it, and
// restarts ended pods of this boot as kubelet does. On SIGTERM it ends and leaves the pods running.
func orchestrate() error {
	goruntime.LockOSThread() // the end of this thread kills the child
	boot, err := bootID(bootFile)
	if err != nil {
		return err
	}
	if err := os.WriteFile("/proc/self/comm", []byte("k3s-server"), 0); err != nil {
		return err
	}
	containerd := exec.Command("containerd", "--config", "/etc/containerd/config.toml", "--address", nestedSocket, "--state", nestedFolder)
	containerd.Stdout, containerd.Stderr = os.Stdout, os.Stderr
	containerd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NOTIFY_SOCKET=") })
	containerd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := containerd.Start(); err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix://"+nestedSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	m := &maker{runtime: cri.NewRuntimeServiceClient(conn), images: cri.NewImageServiceClient(conn), boot: boot}
	if err := m.awaitRuntime(ctx); err != nil {
		return fmt.Errorf("wait for containerd: %w", err)
	}
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := m.startAgain(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "guest: start pods again:", err)
		}
		select {
		case <-time.After(resync):
		case <-ctx.Done():
		}
	}
	return nil
}

// startAgain restarts ended containers of this boot, and pods whose sandbox has ended.
func (m *maker) startAgain(ctx context.Context) error {
	list, err := m.runtime.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return err
	}
	latest := map[string]*cri.Container{} // by pod and container name
	for _, c := range list.Containers {
		key := c.Labels["io.kubernetes.pod.uid"] + "/" + c.Metadata.Name
		if old := latest[key]; old == nil || old.CreatedAt < c.CreatedAt {
			latest[key] = c
		}
	}
	var errs []error
	for _, c := range latest {
		if c.State == cri.ContainerState_CONTAINER_EXITED {
			errs = append(errs, m.again(ctx, c))
		}
	}
	return errors.Join(errs...)
}

// again runs a container again, in a new sandbox if the old one is not ready.
func (m *maker) again(ctx context.Context, c *cri.Container) error {
	status, err := m.runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: c.Id, Verbose: true})
	if err != nil {
		return err
	}
	var container struct{ Config *cri.ContainerConfig }
	if err := json.Unmarshal([]byte(status.Info["info"]), &container); err != nil {
		return fmt.Errorf("read the configuration of a container: %w", err)
	}
	if !slices.Contains(container.Config.Command, m.boot) {
		return nil // it belongs to an earlier boot, and would write in that boot's name
	}
	sandbox, err := m.runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: c.PodSandboxId, Verbose: true})
	if err != nil {
		return err
	}
	var pod struct{ Config *cri.PodSandboxConfig }
	if err := json.Unmarshal([]byte(sandbox.Info["info"]), &pod); err != nil {
		return fmt.Errorf("read the configuration of a pod: %w", err)
	}
	id := c.PodSandboxId
	if sandbox.Status.State != cri.PodSandboxState_SANDBOX_READY {
		pod.Config.Metadata.Attempt++
		made, err := m.runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: pod.Config})
		if err != nil {
			return err
		}
		id = made.PodSandboxId
	}
	container.Config.Metadata.Attempt++
	container.Config.Image = &cri.ImageSpec{Image: job.Image}
	made, err := m.runtime.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: id, SandboxConfig: pod.Config, Config: container.Config})
	if err != nil {
		return err
	}
	_, err = m.runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: made.ContainerId})
	return err
}
