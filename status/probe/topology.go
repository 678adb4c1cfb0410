package probe

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	cadvisor "github.com/google/cadvisor/lib/model"
	"github.com/google/cadvisor/lib/utils/sysfs"
	"github.com/google/cadvisor/lib/utils/sysinfo"
)

const (
	nodesFolder     = "/sys/devices/system/node"
	onlineCPUs      = "/sys/devices/system/cpu/online"
	hugePagesFolder = "/sys/kernel/mm/hugepages/" // cadvisor appends names to the path
	maxCPUID        = 1 << 16                     // far above CONFIG_NR_CPUS of any kernel
)

// topology sets CPUs, huge pages and NUMA nodes.
func (r *Reader) topology(m *Machine) error {
	var errs []error
	online, err := parseCPUList(r.text(onlineCPUs))
	if err != nil {
		errs = append(errs, fmt.Errorf("read %s: %w", onlineCPUs, err))
	}

	tree := &tree{SysFs: sysfs.NewRealSysFs(), reader: r, online: online}
	pages, err := sysinfo.GetHugePagesInfo(tree, hugePagesFolder)
	if err != nil {
		errs = append(errs, fmt.Errorf("read huge pages: %w", err))
	}
	m.HugePages = hugePages(pages)

	nodes, cpus, err := sysinfo.GetNodesInfo(tree)
	if err != nil {
		errs = append(errs, fmt.Errorf("read CPU topology: %w", err))
	}
	// Without NUMA, cadvisor also counts offline CPUs.
	m.CPUs = cmp.Or(len(online), cpus)

	// Without NUMA, cadvisor returns a node without memory for each socket.
	if !r.exists(nodesFolder) {
		return errors.Join(errs...)
	}
	for _, n := range nodes {
		node := NUMANode{ID: n.Id, CPUs: []int{}, MemoryBytes: n.Memory, HugePages: hugePages(n.HugePages)}
		for _, core := range n.Cores {
			node.CPUs = append(node.CPUs, core.Threads...)
		}
		slices.Sort(node.CPUs)
		m.NUMANodes = append(m.NUMANodes, node)
	}
	slices.SortFunc(m.NUMANodes, func(a, b NUMANode) int { return cmp.Compare(a.ID, b.ID) })
	return errors.Join(errs...)
}

func hugePages(infos []cadvisor.HugePagesInfo) []HugePages {
	var pages []HugePages
	for _, i := range infos {
		pages = append(pages, HugePages{PageSizeBytes: i.PageSize << 10, Pages: i.NumPages})
	}
	slices.SortFunc(pages, func(a, b HugePages) int { return cmp.Compare(a.PageSizeBytes, b.PageSizeBytes) })
	return pages
}

// parseCPUList parses the kernel's list format, such as "0-3,8". An empty text is an empty list.
func parseCPUList(text string) ([]int, error) {
	var cpus []int
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("CPU list %q: %q is not a number", text, first)
		}
		to, err := strconv.ParseUint(last, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("CPU list %q: %q is not a number", text, last)
		}
		if from > to || to >= maxCPUID {
			return nil, fmt.Errorf("CPU list %q: invalid range %q", text, part)
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), nil
}

func (r *Reader) exists(hostPath string) bool {
	return unix.Access(r.path(hostPath), unix.F_OK) == nil // os.Stat would allocate at each check
}
