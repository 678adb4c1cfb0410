package cri

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
)

// Labels that kubelet sets on every container. They identify the pod of a container without a
// sandbox.
const (
	labelPodName      = "io.kubernetes.pod.name"
	labelPodNamespace = "io.kubernetes.pod.namespace"
	labelPodUID       = "io.kubernetes.pod.uid"
)

// Pods lists sandboxes with their containers, by creation time. It takes two calls, and one for
// each container that has died since the last list. A new container whose image ID is not in the
// list takes one more. A container without its sandbox is in a pod that is not ready and has the ID
// of the removed sandbox.
func (r *Runtime) Pods(ctx context.Context) ([]runtime.Pod, error) {
	// Containers first: if a listed container has a sandbox, the later list has it. So only true
	// orphans look like orphans.
	containers, err := r.listContainers(ctx)
	if err != nil {
		return nil, err
	}
	sandboxes, err := r.listSandboxes(ctx)
	if err != nil {
		return nil, err
	}
	known := r.facts.complete(ctx, r, containers)

	byID := make(map[string]*runtime.Pod, len(sandboxes))
	for _, s := range sandboxes {
		byID[s.GetId()] = r.pod(s)
	}
	for _, c := range containers {
		converted := r.container(c, known[c.GetId()])
		pod := byID[converted.PodID]
		if pod == nil {
			pod = r.orphanPod(converted)
			byID[pod.ID] = pod
		}
		pod.Containers = append(pod.Containers, converted)
	}

	pods := make([]runtime.Pod, 0, len(byID))
	for _, p := range byID {
		slices.SortFunc(p.Containers, func(a, b runtime.Container) int {
			return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
		})
		pods = append(pods, *p)
	}
	slices.SortFunc(pods, func(a, b runtime.Pod) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return sanitize.Clean(pods), nil
}

func (r *Runtime) listContainers(ctx context.Context) ([]*criapi.Container, error) {
	var resp *criapi.ListContainersResponse
	err := r.call(ctx, "ListContainers", "list containers", r.timeouts.Query, func(ctx context.Context) (err error) {
		resp, err = r.cri.ListContainers(ctx, &criapi.ListContainersRequest{})
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := checkIDs("container", resp.GetContainers()); err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	return resp.GetContainers(), nil
}

func (r *Runtime) listSandboxes(ctx context.Context) ([]*criapi.PodSandbox, error) {
	var resp *criapi.ListPodSandboxResponse
	err := r.call(ctx, "ListPodSandbox", "list pods", r.timeouts.Query, func(ctx context.Context) (err error) {
		resp, err = r.cri.ListPodSandbox(ctx, &criapi.ListPodSandboxRequest{})
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := checkIDs("pod", resp.GetItems()); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return resp.GetItems(), nil
}

// checkIDs rejects a list in which an object has no ID, or the ID of another object. Otherwise a
// decision could apply to the wrong object.
func checkIDs[T interface{ GetId() string }](kind string, list []T) error {
	seen := make(map[string]bool, len(list))
	for _, o := range list {
		switch id := o.GetId(); {
		case id == "":
			return fmt.Errorf("%w: a %s has no ID", runtime.ErrInvalidAnswer, kind)
		case seen[id]:
			return fmt.Errorf("%w: %s %q is listed twice", runtime.ErrInvalidAnswer, kind, id)
		default:
			seen[id] = true
		}
	}
	return nil
}

func (r *Runtime) pod(s *criapi.PodSandbox) *runtime.Pod {
	m := s.GetMetadata()
	return &runtime.Pod{
		Runtime:     r.name,
		ID:          s.GetId(),
		UID:         cmp.Or(m.GetUid(), s.GetLabels()[labelPodUID], s.GetId()),
		Name:        m.GetName(),
		Namespace:   m.GetNamespace(),
		Ready:       s.GetState() == criapi.PodSandboxState_SANDBOX_READY,
		Sandbox:     true,
		CreatedAt:   nanoTime(s.GetCreatedAt()),
		Labels:      s.GetLabels(),
		Annotations: s.GetAnnotations(),
	}
}

// orphanPod returns a pod in place of the missing sandbox of c.
func (r *Runtime) orphanPod(c runtime.Container) *runtime.Pod {
	return &runtime.Pod{
		Runtime:   r.name,
		ID:        c.PodID,
		UID:       cmp.Or(c.Labels[labelPodUID], c.PodID),
		Name:      cmp.Or(c.Labels[labelPodName], c.Name),
		Namespace: c.Labels[labelPodNamespace],
		CreatedAt: c.CreatedAt,
		Gone:      true,
	}
}

func (r *Runtime) container(c *criapi.Container, f fact) runtime.Container {
	converted := runtime.Container{
		Runtime:     r.name,
		ID:          c.GetId(),
		PodID:       cmp.Or(c.GetPodSandboxId(), c.GetId()),
		Name:        c.GetMetadata().GetName(),
		Image:       cmp.Or(c.GetImage().GetUserSpecifiedImage(), c.GetImage().GetImage()),
		ImageID:     cmp.Or(f.imageID, c.GetImageRef(), c.GetImage().GetImage()),
		State:       containerState(c.GetState()),
		CreatedAt:   nanoTime(c.GetCreatedAt()),
		Labels:      c.GetLabels(),
		Annotations: c.GetAnnotations(),
	}
	if converted.State == runtime.Exited {
		converted.FinishedAt, converted.ExitCode = f.finishedAt, f.exitCode
	}
	return converted
}

func containerState(s criapi.ContainerState) runtime.ContainerState {
	switch s {
	case criapi.ContainerState_CONTAINER_CREATED:
		return runtime.Created
	case criapi.ContainerState_CONTAINER_RUNNING:
		return runtime.Running
	case criapi.ContainerState_CONTAINER_EXITED:
		return runtime.Exited
	}
	return runtime.Unknown
}

// nanoTime converts CRI's nanoseconds since 1970. 0 means that there is no time.
func nanoTime(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

var _ runtime.NetworkReporter = (*Runtime)(nil)

// PodNetwork returns the network of a sandbox, which does not change.
func (r *Runtime) PodNetwork(ctx context.Context, p runtime.Pod) (runtime.PodNetwork, error) {
	var resp *criapi.PodSandboxStatusResponse
	err := r.call(ctx, "PodSandboxStatus", "inspect pod "+p.ID, r.timeouts.Query, func(ctx context.Context) (err error) {
		resp, err = r.cri.PodSandboxStatus(ctx, &criapi.PodSandboxStatusRequest{PodSandboxId: p.ID})
		return err
	})
	if err != nil {
		return runtime.PodNetwork{}, err
	}
	s := resp.GetStatus()
	if s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == criapi.NamespaceMode_NODE {
		return runtime.PodNetwork{Host: true}, nil
	}
	var network runtime.PodNetwork
	add := func(text string) {
		if ip, err := netip.ParseAddr(text); err == nil {
			network.IPs = append(network.IPs, ip.String())
		}
	}
	add(s.GetNetwork().GetIp())
	for _, more := range s.GetNetwork().GetAdditionalIps() {
		if len(network.IPs) < mostIPs {
			add(more.GetIp())
		}
	}
	return network, nil
}

// mostIPs bounds the addresses of a pod. Kubernetes has one for each IP family.
const mostIPs = 8
