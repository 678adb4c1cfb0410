package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"hostler.io/hostler/agent/api"
)

// The following functions print the Node's resources and addresses for `hostler status`.

// addresses returns each address type once, with its addresses.
func addresses(s api.Status) string {
	if s.Node == nil {
		return ""
	}
	var parts []string
	for i, a := range s.Node.Status.Addresses {
		if i > 0 && s.Node.Status.Addresses[i-1].Type == a.Type {
			parts[len(parts)-1] += " " + a.Address
			continue
		}
		parts = append(parts, fmt.Sprintf("%s %s", a.Type, a.Address))
	}
	return strings.Join(parts, ", ")
}

// printAddresses prints why each address was chosen.
func printAddresses(t *table, s api.Status) {
	if len(s.Addresses) == 0 {
		return
	}
	t.line("")
	t.row("ADDRESS", "TYPE", "INTERFACE", "WHY")
	for _, a := range s.Addresses {
		t.row(a.Address, string(a.Type), cmp.Or(a.Interface, "-"), a.Reason)
	}
}

func capacityOf(n *corev1.Node) corev1.ResourceList    { return n.Status.Capacity }
func allocatableOf(n *corev1.Node) corev1.ResourceList { return n.Status.Allocatable }

func resources(s api.Status, of func(*corev1.Node) corev1.ResourceList) string {
	if s.Node == nil {
		return ""
	}
	list := of(s.Node)
	bytes := func(q *resource.Quantity) string { return size(q.Value()) }
	cpus := strconv.FormatFloat(list.Cpu().AsApproximateFloat64(), 'f', -1, 64) // "63500m" is hard to read
	return fmt.Sprintf("%s CPUs, %s memory, %s disk, %s pods",
		cpus, bytes(list.Memory()), bytes(list.StorageEphemeral()), list.Pods())
}

// machine returns, in wide output, the cgroup version, swap, huge pages and NUMA nodes.
func machine(out *output, s api.Status) string {
	if !out.wide() || s.Node == nil {
		return ""
	}
	parts := []string{"no cgroups", "no swap"}
	if v := s.Topology.CgroupVersion; v > 0 {
		parts[0] = fmt.Sprintf("cgroup v%d", v)
	}
	if swap := s.Topology.SwapBytes; swap > 0 {
		parts[1] = size(swap) + " swap"
	}
	var set uint64
	for _, p := range s.Topology.HugePages {
		set += p.Pages * p.PageSizeBytes
	}
	if set > 0 {
		parts = append(parts, size(set)+" reserved as huge pages")
	}
	if n := len(s.Topology.NUMANodes); n > 0 {
		parts = append(parts, count(n, "NUMA node"))
	}
	return strings.Join(parts, ", ")
}
