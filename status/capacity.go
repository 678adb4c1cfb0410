package status

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"hostler.io/hostler/internal/field"
	"hostler.io/hostler/status/probe"
)

// Capacity returns the host's resources, or what its root cgroup grants of them: cpu, memory, pods,
// ephemeral-storage (the size of the node filesystem) and hugepages-<size>. It omits resources that
// were not measured.
func Capacity(facts Facts, maxPods int) corev1.ResourceList {
	capacity := corev1.ResourceList{
		corev1.ResourcePods: *resource.NewQuantity(int64(maxPods), resource.DecimalSI),
	}
	if millis := uint64(facts.Machine.CPUs) * 1000; millis > 0 {
		if granted := facts.CPUs.Millis; granted > 0 {
			millis = min(millis, granted)
		}
		capacity[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(millis), resource.DecimalSI)
	}
	if total := memoryTotal(facts); total > 0 {
		capacity[corev1.ResourceMemory] = bytes(total)
	}
	if fs, found := nodeFilesystem(facts); found {
		capacity[corev1.ResourceEphemeralStorage] = bytes(fs.CapacityBytes)
	}
	for _, pages := range facts.Machine.HugePages {
		capacity[hugePagesName(pages)] = bytes(pages.PageSizeBytes * pages.Pages)
	}
	return capacity
}

// Allocatable returns the capacity for pods: the capacity minus reservations, the eviction
// thresholds of memory and node filesystem, and the memory of huge pages. It is never below zero;
// CheckReserved returns an error if it would be.
func Allocatable(capacity corev1.ResourceList, reserved Reserved, policy Policy) corev1.ResourceList {
	allocatable := corev1.ResourceList{}
	for name, total := range capacity {
		left := total.DeepCopy()
		for _, d := range deductions(name, capacity, reserved, policy) {
			left.Sub(d.amount)
		}
		if left.Sign() < 0 {
			left = *resource.NewQuantity(0, total.Format)
		}
		allocatable[name] = left
	}
	return allocatable
}

// CheckReserved returns an error if reservations exceed the host's resources. It ignores unknown
// resources and limits. Each error is a *field.Error.
func CheckReserved(facts Facts, reserved Reserved, policy Policy) error {
	capacity := Capacity(facts, 0)
	var errs []error
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		total, found := capacity[name]
		if !found {
			continue
		}
		left := total.DeepCopy()
		parts, hint := "", "reserve less"
		for _, d := range deductions(name, capacity, reserved, policy) {
			if d.amount.IsZero() {
				continue
			}
			left.Sub(d.amount)
			parts += fmt.Sprintf("%s %s, ", d.amount.String(), d.why)
			if d.threshold {
				hint = "reserve less, or lower the threshold"
			}
		}
		if left.Sign() < 0 {
			errs = append(errs, field.Errorf("node.reserved."+string(name), "%sof %s in total; %s", parts, total.String(), hint))
		}
	}
	if limit := facts.PIDs.Limit; limit > 0 && reserved.PIDs > limit {
		errs = append(errs, field.Errorf("node.reserved.pid", "%d reserved, but %[3]s allows only %[2]d; reserve fewer, or raise the limit",
			reserved.PIDs, limit, facts.PIDs.Source))
	}
	return errors.Join(errs...)
}

type deduction struct {
	amount    resource.Quantity
	why       string
	threshold bool // an eviction threshold
}

// deductions returns the differences between capacity and allocatable of one resource.
func deductions(name corev1.ResourceName, capacity corev1.ResourceList, reserved Reserved, policy Policy) []deduction {
	total := capacity[name]
	share := func(t Threshold) resource.Quantity { return bytes(t.Of(uint64(total.Value()))) }
	switch name {
	case corev1.ResourceCPU:
		return []deduction{{amount: reserved.CPU, why: "reserved"}}
	case corev1.ResourceMemory:
		return []deduction{
			{amount: reserved.Memory, why: "reserved"},
			{share(policy.MemoryAvailable), "kept free (pressure.memoryAvailable)", true},
			{amount: hugePagesTotal(capacity), why: "held by huge pages"},
		}
	case corev1.ResourceEphemeralStorage:
		return []deduction{
			{amount: reserved.EphemeralStorage, why: "reserved"},
			{share(policy.NodefsAvailable), "kept free (pressure.nodefsAvailable)", true},
		}
	}
	return nil
}

// memoryTotal prefers the latest measurement, because memory can be added to a running host.
func memoryTotal(facts Facts) uint64 {
	if facts.Memory.TotalBytes > 0 {
		return facts.Memory.TotalBytes
	}
	return facts.Machine.MemoryBytes
}

func nodeFilesystem(facts Facts) (Filesystem, bool) {
	for _, fs := range facts.Filesystems {
		if fs.Role == RoleNode && fs.Problem == "" && fs.CapacityBytes > 0 {
			return fs, true
		}
	}
	return Filesystem{}, false
}

func hugePagesName(pages probe.HugePages) corev1.ResourceName {
	size := bytes(pages.PageSizeBytes)
	return corev1.ResourceName(corev1.ResourceHugePagesPrefix + size.String())
}

func hugePagesTotal(capacity corev1.ResourceList) resource.Quantity {
	sum := bytes(0)
	for name, quantity := range capacity {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			sum.Add(quantity)
		}
	}
	return sum
}

func bytes(n uint64) resource.Quantity { return *resource.NewQuantity(int64(n), resource.BinarySI) }
