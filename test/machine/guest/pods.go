package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/test/machine/job"
)

const (
	// podsPatience limits the time to run all pods of an order.
	podsPatience = 15 * time.Minute
	// runtimePatience limits the wait for a runtime that starts.
	runtimePatience = 5 * time.Minute
)

// maker runs pods.
type maker struct {
	runtime cri.RuntimeServiceClient
	images  cri.ImageServiceClient
	boot    string
	parent  string
}

// runPods runs the pods of an order, and returns when all their workloads run.
func runPods(from io.Reader) error {
	var order job.Order
	if err := json.NewDecoder(from).Decode(&order); err != nil {
		return fmt.Errorf("read pods: %w", err)
	}
	return carryOut(order)
}

// runPod runs one requested pod.
func runPod(args []string) error {
	container := job.Container{Name: "main"}
	pod := job.Pod{Namespace: "default", Labels: map[string]string{}}
	flags := flag.NewFlagSet("guest pod", flag.ExitOnError)
	flags.BoolVar(&pod.Critical, "critical", false, "stop it in the last phase")
	flags.DurationVar(&pod.Grace, "grace", 0, "its termination grace period, such as 20s")
	flags.DurationVar(&container.EndsSlowly, "ends-slowly", 0, "how long it takes to end after SIGTERM")
	flags.DurationVar(&container.EndsAfter, "ends-after", 0, "when it ends by itself")
	flags.BoolVar(&container.IgnoresTERM, "ignore-term", false, "only SIGKILL ends it")
	flags.Func("label", "one of the pod, as `KEY=VALUE`; may be given again", func(text string) error {
		key, value, found := strings.Cut(text, "=")
		if !found || key == "" {
			return errors.New("write it like hostler.io/keep=true")
		}
		pod.Labels[key] = value
		return nil
	})
	parent := flags.String("cgroup-parent", "/kubepods", "of the pod; kubepods.slice where systemd makes cgroups")
	_ = flags.Parse(args) // exits on an error
	if flags.NArg() != 1 {
		return errors.New("guest pod wants the name of a pod, behind all flags")
	}
	pod.Name, pod.Containers = flags.Arg(0), []job.Container{container}
	return carryOut(job.Order{Pods: []job.Pod{pod}, CgroupParent: *parent})
}

func carryOut(order job.Order) error {
	conn, err := grpc.NewClient("unix://"+socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), podsPatience)
	defer cancel()
	m := &maker{runtime: cri.NewRuntimeServiceClient(conn), images: cri.NewImageServiceClient(conn), parent: order.CgroupParent}
	if m.boot, err = bootID(bootFile); err != nil {
		return err
	}
	if err := os.MkdirAll(job.Dir, 0o755); err != nil {
		return err
	}
	if err := m.awaitRuntime(ctx); err != nil {
		return fmt.Errorf("wait for containerd: %w", err)
	}
	if err := m.loadImage(ctx); err != nil {
		return fmt.Errorf("load image: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(goruntime.NumCPU())
	for _, pod := range order.Pods {
		group.Go(func() error {
			if err := m.run(ctx, pod); err != nil {
				return fmt.Errorf("run pod %s/%s: %w", pod.Namespace, pod.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// awaitRuntime waits until containerd's CRI answers. Its unit counts as started a moment earlier,
// when every call is still refused.
func (m *maker) awaitRuntime(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, runtimePatience)
	defer cancel()
	for {
		_, err := m.runtime.Status(ctx, &cri.StatusRequest{}, grpc.WaitForReady(true))
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(retryInterval)
	}
}

// loadImage loads the only image, once in the machine's life.
func (m *maker) loadImage(ctx context.Context) error {
	for loaded := false; ; loaded = true {
		status, err := m.images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: job.Image}}, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		if status.Image != nil {
			return nil
		}
		if loaded { // CRI gets an event about it
			time.Sleep(retryInterval)
			continue
		}
		if out, err := exec.CommandContext(ctx, "ctr", "--address", socket(), "--namespace", "k8s.io", "images", "import", job.ImageArchive).CombinedOutput(); err != nil {
			return fmt.Errorf("ctr: %w: %s", err, out)
		}
	}
}

// attempts is the number of attempts to run a pod. On a busy host, containerd gives up a shim that
// an emulated processor starts too slowly.
const attempts = 3

func (m *maker) run(ctx context.Context, pod job.Pod) error {
	for attempt := 1; ; attempt++ {
		sandbox, err := m.try(ctx, pod)
		if err == nil || attempt == attempts || ctx.Err() != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "guest: run pod %s/%s, attempt %d: %v\n", pod.Namespace, pod.Name, attempt, err)
		if sandbox == "" {
			continue
		}
		_, stopErr := m.runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox})
		_, removeErr := m.runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandbox})
		if removeErr != nil { // another attempt would leave an additional pod
			return errors.Join(err, stopErr, removeErr)
		}
	}
}

// try runs a pod. It returns its sandbox even if not all containers run.
func (m *maker) try(ctx context.Context, pod job.Pod) (id string, err error) {
	uid := strings.ToLower(rand.Text())
	labels := map[string]string{
		"io.kubernetes.pod.name": pod.Name, "io.kubernetes.pod.namespace": pod.Namespace, "io.kubernetes.pod.uid": uid,
	}
	if pod.Critical {
		labels["hostler.io/critical"] = "true"
	}
	maps.Copy(labels, pod.Labels)
	network := &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER, Ipc: cri.NamespaceMode_POD}
	config := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: uid},
		LogDirectory: filepath.Join("/var/log/pods", pod.Namespace+"_"+pod.Name+"_"+uid),
		Labels:       labels,
		Annotations:  pod.Annotations,
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    m.parent,
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: network},
		},
	}
	sandbox, err := m.runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		return "", err
	}
	for _, container := range pod.Containers {
		name := strings.Join([]string{pod.Namespace, pod.Name, container.Name}, "/")
		labels := map[string]string{"io.kubernetes.container.name": container.Name}
		for _, key := range []string{"io.kubernetes.pod.name", "io.kubernetes.pod.namespace", "io.kubernetes.pod.uid"} {
			labels[key] = config.Labels[key]
		}
		annotations := map[string]string{"io.kubernetes.container.restartCount": "0"}
		if pod.Grace != 0 {
			annotations["io.kubernetes.pod.terminationGracePeriod"] = strconv.Itoa(int(pod.Grace.Seconds()))
		}
		maps.Copy(annotations, container.Annotations)
		if err := os.MkdirAll(filepath.Join(config.LogDirectory, container.Name), 0o755); err != nil {
			return sandbox.PodSandboxId, err
		}
		created, err := m.runtime.CreateContainer(ctx, &cri.CreateContainerRequest{
			PodSandboxId:  sandbox.PodSandboxId,
			SandboxConfig: config,
			Config: &cri.ContainerConfig{
				Metadata: &cri.ContainerMetadata{Name: container.Name},
				Image:    &cri.ImageSpec{Image: job.Image},
				Command: []string{
					job.SeenProgram, "work", "-name", name, "-boot", m.boot, fmt.Sprintf("-ignore-term=%t", container.IgnoresTERM),
					"-ends-slowly", container.EndsSlowly.String(), "-ends-after", container.EndsAfter.String(),
				},
				Mounts: []*cri.Mount{
					{HostPath: job.Dir, ContainerPath: job.SeenDir},
					{HostPath: "/usr/local/bin/guest", ContainerPath: job.SeenProgram, Readonly: true},
				},
				Labels:      labels,
				Annotations: annotations,
				LogPath:     filepath.Join(container.Name, "0.log"),
				Linux: &cri.LinuxContainerConfig{
					Resources:       &cri.LinuxContainerResources{CpuShares: 2, OomScoreAdj: 1000},
					SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: network},
				},
			},
		})
		if err != nil {
			return sandbox.PodSandboxId, fmt.Errorf("create container %s: %w", container.Name, err)
		}
		if _, err := m.runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: created.ContainerId}); err != nil {
			return sandbox.PodSandboxId, fmt.Errorf("start container %s: %w", container.Name, err)
		}
		if err := m.awaitStarted(ctx, name, config.LogDirectory); err != nil {
			return sandbox.PodSandboxId, err
		}
	}
	return sandbox.PodSandboxId, nil
}

// awaitStarted waits until a workload has recorded that it runs: from then on it handles signals.
func (m *maker) awaitStarted(ctx context.Context, name, logs string) error {
	file := filepath.Join(job.Dir, strings.ReplaceAll(name, "/", "_")+".events")
	for {
		data, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(data), m.boot) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the workload of %s to start: %w: see %s", name, ctx.Err(), logs)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
