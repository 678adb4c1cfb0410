package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PodSpec describes a pod. It runs as kubelet runs one: with kubelet's labels, in the host's
// network, and below its own cgroup.
type PodSpec struct {
	Name        string
	Namespace   string        // "default" if empty
	UID         string        // random if empty
	Grace       time.Duration // termination grace period in the pod's annotations, if not zero
	Labels      map[string]string
	Annotations map[string]string
	Containers  []ContainerSpec
}

// ContainerSpec describes a container.
type ContainerSpec struct {
	Name    string
	Image   string   // pulled if missing
	Command []string // default of the image if nil
	// Ready is a text that the container prints when it is ready. RunPod waits for it. ServeFor and
	// IgnoreTerm print "ready".
	Ready       string
	Attempt     uint32 // differs for containers of one pod and name
	Unstarted   bool   // only created, not started
	Labels      map[string]string
	Annotations map[string]string
}

// Pod is a pod that was started.
type Pod struct {
	ID, Name, Namespace, UID string
	Containers               map[string]string // IDs of the last attempts, by name

	config *cri.PodSandboxConfig
	spec   PodSpec
}

// RunPod runs a pod with all its containers, and returns when they are ready.
func (c *Containerd) RunPod(ctx context.Context, spec PodSpec) (*Pod, error) {
	if spec.Namespace == "" {
		spec.Namespace = "default"
	}
	if spec.UID == "" {
		spec.UID = newUID()
	}
	labels := map[string]string{
		"io.kubernetes.pod.name":      spec.Name,
		"io.kubernetes.pod.namespace": spec.Namespace,
		"io.kubernetes.pod.uid":       spec.UID,
	}
	maps.Copy(labels, spec.Labels)
	p := &Pod{Name: spec.Name, Namespace: spec.Namespace, UID: spec.UID, spec: spec, Containers: map[string]string{}}
	p.config = &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: spec.Name, Namespace: spec.Namespace, Uid: spec.UID},
		LogDirectory: filepath.Join(c.logs("pods"), spec.Namespace+"_"+spec.Name+"_"+spec.UID),
		Labels:       labels,
		Annotations:  spec.Annotations,
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent: filepath.Join(c.cgroup(), "pod"+spec.UID),
			SecurityContext: &cri.LinuxSandboxSecurityContext{
				NamespaceOptions: namespaces(),
			},
		},
	}
	reply, err := c.Runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: p.config})
	if err != nil {
		return nil, fmt.Errorf("run pod %s/%s: %w", spec.Namespace, spec.Name, err)
	}
	p.ID = reply.PodSandboxId
	for _, container := range spec.Containers {
		if _, err := c.RunContainer(ctx, p, container); err != nil {
			return nil, fmt.Errorf("run pod %s/%s: %w", spec.Namespace, spec.Name, err)
		}
	}
	return p, nil
}

// logs returns the folder of pods' logs, or of the links to them.
func (c *Containerd) logs(kind string) string {
	if c.opts.HostLogs {
		return filepath.Join("/var/log", kind)
	}
	return filepath.Join(c.dir, "logs", kind)
}

// namespaces returns options that put pods into the lab's network, so that they need no CNI plugin.
func namespaces() *cri.NamespaceOption {
	return &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER, Ipc: cri.NamespaceMode_POD}
}

// RunContainer adds a container to a pod, starts it, and returns its ID when it is ready. To run an
// ended container again, call it with another attempt.
func (c *Containerd) RunContainer(ctx context.Context, p *Pod, spec ContainerSpec) (string, error) {
	id, err := c.runContainer(ctx, p, spec)
	if err != nil {
		return "", fmt.Errorf("run container %s: %w", spec.Name, err)
	}
	p.Containers[spec.Name] = id
	return id, nil
}

func (c *Containerd) runContainer(ctx context.Context, p *Pod, spec ContainerSpec) (string, error) {
	image := &cri.ImageSpec{Image: spec.Image}
	status, err := c.Images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: image})
	if err != nil {
		return "", err
	}
	if status.Image == nil {
		if _, err := c.Images.PullImage(ctx, &cri.PullImageRequest{Image: image, SandboxConfig: p.config}); err != nil {
			return "", err
		}
	}
	labels := map[string]string{
		"io.kubernetes.container.name": spec.Name,
		"io.kubernetes.pod.name":       p.Name,
		"io.kubernetes.pod.namespace":  p.Namespace,
		"io.kubernetes.pod.uid":        p.UID,
	}
	maps.Copy(labels, spec.Labels)
	annotations := map[string]string{"io.kubernetes.container.restartCount": strconv.Itoa(int(spec.Attempt))}
	if p.spec.Grace != 0 {
		annotations["io.kubernetes.pod.terminationGracePeriod"] = strconv.Itoa(int(p.spec.Grace.Seconds()))
	}
	maps.Copy(annotations, spec.Annotations)
	log := filepath.Join(spec.Name, strconv.Itoa(int(spec.Attempt))+".log")
	if err := os.MkdirAll(filepath.Join(p.config.LogDirectory, spec.Name), 0o755); err != nil {
		return "", err
	}
	created, err := c.Runtime.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId:  p.ID,
		SandboxConfig: p.config,
		Config: &cri.ContainerConfig{
			Metadata:    &cri.ContainerMetadata{Name: spec.Name, Attempt: spec.Attempt},
			Image:       image,
			Command:     spec.Command,
			Labels:      labels,
			Annotations: annotations,
			LogPath:     log,
			Linux: &cri.LinuxContainerConfig{
				Resources:       &cri.LinuxContainerResources{CpuShares: 2, OomScoreAdj: 1000},
				SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: namespaces()},
			},
		},
	})
	if err != nil {
		return "", err
	}
	id := created.ContainerId
	if spec.Unstarted {
		return id, nil
	}
	link := filepath.Join(c.logs("containers"), fmt.Sprintf("%s_%s_%s-%s.log", p.Name, p.Namespace, spec.Name, id))
	if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(filepath.Join(p.config.LogDirectory, log), link)); err != nil {
		return "", err
	}
	if _, err := c.Runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: id}); err != nil {
		return "", err
	}
	if spec.Ready == "" {
		return id, nil
	}
	return id, c.Await(ctx, func(context.Context) error {
		text, err := os.ReadFile(filepath.Join(p.config.LogDirectory, log))
		if err == nil && !strings.Contains(string(text), spec.Ready) {
			err = fmt.Errorf("container %s has not printed %q, but %q", spec.Name, spec.Ready, text)
		}
		return err
	})
}

// StopPod stops a pod's sandbox, which kills its containers.
func (c *Containerd) StopPod(ctx context.Context, p *Pod) error {
	if _, err := c.Runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.ID}); err != nil {
		return fmt.Errorf("stop pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

// RemovePod stops a pod and removes it with its containers. If the sandbox ends by itself
// meanwhile, together with its shim, the request is repeated: containerd takes the shim's closed
// connection for a failure (containerd#12387).
func (c *Containerd) RemovePod(ctx context.Context, p *Pod) error {
	if err := c.Await(ctx, func(ctx context.Context) error { return c.StopPod(ctx, p) }); err != nil {
		return err
	}
	if _, err := c.Runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.ID}); err != nil {
		return fmt.Errorf("remove pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

// Container returns the status of a container from CRI.
func (c *Containerd) Container(ctx context.Context, id string) (*cri.ContainerStatus, error) {
	reply, err := c.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", id, err)
	}
	return reply.Status, nil
}

// AwaitExit waits until a container has ended, and returns its status from CRI.
func (c *Containerd) AwaitExit(ctx context.Context, id string) (*cri.ContainerStatus, error) {
	var status *cri.ContainerStatus
	err := c.Await(ctx, func(ctx context.Context) (err error) {
		status, err = c.Container(ctx, id)
		if err == nil && status.State != cri.ContainerState_CONTAINER_EXITED {
			err = fmt.Errorf("container %s is in state %v", id, status.State)
		}
		return err
	})
	return status, err
}

func newUID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
