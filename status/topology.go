package status

import "hostler.io/hostler/status/probe"

// Topology is the machine's layout as `hostler status -o json` shows it under
// "topology".
type Topology struct {
	CPUs        int               `json:"cpus"` // online logical CPUs
	MemoryBytes uint64            `json:"memoryBytes"`
	HugePages   []probe.HugePages `json:"hugepages,omitempty"`
	NUMANodes   []probe.NUMANode  `json:"numaNodes"` // by ID; empty where the kernel knows no NUMA
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
		HugePages:   facts.Machine.HugePages,
		NUMANodes:   nodes,
	}
}
