package main

import (
	"context"
	"fmt"
	"os"
	goruntime "runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/test/lab"
)

// settled waits until the agent has detected all facts.
func (h *host) settled(ctx context.Context) (api.Status, error) {
	return h.awaitStatus(ctx, 15*time.Second, "the Node registered and Ready, its Lease held, the shutdown guard armed", func(s api.Status) (bool, string) {
		if s.Node == nil || s.Lease == nil {
			return false, "a Node or a Lease that does not exist yet"
		}
		ready := condition(s.Node, corev1.NodeReady)
		return s.Node.UID != "" && ready.Status == corev1.ConditionTrue && s.Shutdown.State == shutdown.Armed && s.ImageGC.LastRun != nil && s.ContainerGC.LastRun != nil,
			fmt.Sprintf("Ready=%s (%s), shutdown %s (%s)", ready.Status, ready.Message, s.Shutdown.State, s.Shutdown.Reason)
	})
}

// condition returns the Node's condition of a type, empty if it has none.
func condition(node *corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// showNode starts the agent and shows the Node and its Lease.
func (h *host) showNode(ctx context.Context) error {
	h.out.command("hostler agent --config "+configFile+" &", "")
	if err := h.startAgent(ctx); err != nil {
		return err
	}
	s, err := h.settled(ctx)
	if err != nil {
		return err
	}
	if err := h.show(ctx, "status"); err != nil {
		return err
	}
	h.before = s.Node
	h.out.checks()
	h.out.check(s.Node.Name == h.lab.Hostname && s.Node.UID != "", "the Node is registered as "+h.lab.Hostname, "it is %q with UID %q", s.Node.Name, s.Node.UID)
	if err := h.checkNode(s.Node); err != nil {
		return err
	}
	return h.showLease(ctx, s)
}

// checkNode compares the Node with what the kernel and the lab know.
func (h *host) checkNode(node *corev1.Node) error {
	capacity, allocatable := node.Status.Capacity, node.Status.Allocatable
	memory, err := memTotal()
	if err != nil {
		return err
	}
	out := h.out
	out.check(capacity.Memory().Value() == memory, "its memory is what /proc/meminfo says", "it is %d, and /proc/meminfo says %d", capacity.Memory().Value(), memory)
	// hostler's process may see fewer CPUs than the host has.
	out.check(capacity.Cpu().Value() >= int64(goruntime.NumCPU()), "its CPUs are there", "it has %s", capacity.Cpu())
	fits := true
	for name, quantity := range allocatable {
		whole := capacity[name]
		fits = fits && quantity.Cmp(whole) <= 0 && (quantity.Sign() > 0 || whole.IsZero())
	}
	out.check(fits && len(allocatable) == len(capacity), "allocatable is more than nothing and no more than capacity", "allocatable is %v of %v", allocatable, capacity)
	internal, name := address(node, corev1.NodeInternalIP), address(node, corev1.NodeHostName)
	out.check(internal == lab.Address && name == h.lab.Hostname, "its addresses are "+lab.Address+" and "+h.lab.Hostname, "they are %v", node.Status.Addresses)
	for _, want := range []struct {
		kind   corev1.NodeConditionType
		status corev1.ConditionStatus
	}{
		{corev1.NodeReady, corev1.ConditionTrue},
		{corev1.NodeMemoryPressure, corev1.ConditionFalse},
		{corev1.NodeDiskPressure, corev1.ConditionFalse},
		{corev1.NodePIDPressure, corev1.ConditionFalse},
		{corev1.NodeNetworkUnavailable, corev1.ConditionFalse},
	} {
		c := condition(node, want.kind)
		out.check(c.Status == want.status && c.Reason != "" && c.Message != "", fmt.Sprintf("condition %s is %s: %s", want.kind, want.status, c.Reason), "it is %q with reason %q", c.Status, c.Reason)
	}
	info := node.Status.NodeInfo
	out.check(info.BootID != "" && strings.HasPrefix(info.ContainerRuntimeVersion, "containerd://") && info.KernelVersion != "",
		fmt.Sprintf("its info names kernel %s and runtime %s", info.KernelVersion, info.ContainerRuntimeVersion), "it is %+v", info)
	return nil
}

func address(node *corev1.Node, kind corev1.NodeAddressType) string {
	for _, a := range node.Status.Addresses {
		if a.Type == kind {
			return a.Address
		}
	}
	return ""
}

// memTotal returns the kernel's own value, in bytes.
func memTotal() (int64, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	var kib int64
	if _, err := fmt.Sscanf(string(data), "MemTotal: %d kB", &kib); err != nil {
		return 0, fmt.Errorf("read /proc/meminfo: %w", err)
	}
	return kib * 1024, nil
}

// showLease reads the Lease until it has been renewed twice.
func (h *host) showLease(ctx context.Context, s api.Status) error {
	h.out.printf("The first look saw a Lease that was renewed %s after the agent was started and is good for %ds. Three looks at its renewTime:",
		s.Lease.Spec.RenewTime.Sub(h.started).Round(time.Millisecond), *s.Lease.Spec.LeaseDurationSeconds)
	times := []time.Time{s.Lease.Spec.RenewTime.Time}
	for len(times) < 3 {
		last := times[len(times)-1]
		s, err := h.awaitStatus(ctx, 10*time.Second, "the Lease renewed again", func(s api.Status) (bool, string) {
			return s.Lease.Spec.RenewTime.After(last), "renewTime " + s.Lease.Spec.RenewTime.Format(time.RFC3339Nano)
		})
		if err != nil {
			return err
		}
		times = append(times, s.Lease.Spec.RenewTime.Time)
	}
	lines := make([]string, len(times))
	for i, t := range times {
		lines[i] = "  " + t.UTC().Format("15:04:05.000")
	}
	h.out.lines(lines...)
	h.out.checks()
	first, second := times[1].Sub(times[0]), times[2].Sub(times[1])
	h.out.check(first < 5*time.Second && second < 5*time.Second, "the Lease is renewed well before it ends", "renewals are %s and %s apart", first, second)
	return nil
}
