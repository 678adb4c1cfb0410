package status

import "hostler.io/hostler/status/probe"

// Topology is the machine's layout as `hostler status -o json` shows it under
// "topology".
type Topology struct {
	CPUs        int               `json:"cpus"` // online logical CPUs
	MemoryBytes uint64            `json:"memoryBytes"`
	SwapBytes   uint64            `json:"swapBytes"` // 0 where swap is off
	HugePages   []probe.HugePages `json:"hugepages,omitempty"`
	NUMANodes   []probe.NUMANode  `json:"numaNodes"` // by ID; empty where the kernel knows no NUMA
	// CgroupVersion is the version of /sys/fs/cgroup: 2, or 1 for the old and the hybrid hierarchy, 0
	// if there is none.
	CgroupVersion int `json:"cgroupVersion"`
}

// NewTopology takes the layout out of the facts.
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
