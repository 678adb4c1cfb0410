package status

import "hostler.io/hostler/status/probe"

// Topology is the machine's layout under "topology" in `hostler status -o json`.
type Topology struct {
	CPUs        int               `json:"cpus"` // online logical CPUs
	MemoryBytes uint64            `json:"memoryBytes"`
	SwapBytes   uint64            `json:"swapBytes"` // 0 if swap is off
	HugePages   []probe.HugePages `json:"hugepages,omitempty"`
	NUMANodes   []probe.NUMANode  `json:"numaNodes"` // by ID; empty if the kernel has no NUMA
	// CgroupVersion is the version of /sys/fs/cgroup: 2, or 1 for the legacy and the hybrid
	// hierarchy, 0 if there is none.
	CgroupVersion int `json:"cgroupVersion"`
}

// NewTopology returns the layout in the facts.
func NewTopology(facts Facts) Topology {
	nodes := facts.Machine.NUMANodes
	if nodes == nil {
		nodes = []probe.NUMANode{}
	}
	return Topology{
		CPUs:        facts.Machine.CPUs,
		MemoryBytes: memoryTotal(facts),
		SwapBytes:   facts.Machine.SwapBytes,
		HugePages:   facts.Machine.HugePages,
		NUMANodes:   nodes,

		CgroupVersion: facts.Machine.CgroupVersion,
	}
}
