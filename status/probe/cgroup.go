package probe

import (
	"strconv"
	"strings"
)

// A host that is itself a container, such as of LXC or systemd-nspawn, has its limits in the cgroup
// that it sees as the root of the hierarchy. The kernel's own root cgroup has no limits, or limits
// beyond the machine's resources.

// CPUs are the part of the online CPUs that the host's root cgroup grants.
type CPUs struct {
	Millis uint64 // thousandths of a CPU; 0 if unlimited
	Source string // name of the limit
}

// cgroupFile returns a controller's file in the root cgroup, by its name in either version of
// cgroups, or "" if there is none or the root is the kernel's own.
func (r *Reader) cgroupFile(controller, v1, v2 string) string {
	if r.cgroupVersion() == 2 {
		return "/sys/fs/cgroup/" + v2 // the kernel's own root has no such file
	}
	folder := "/sys/fs/cgroup/" + controller + "/"
	if v1 == "" || r.exists(folder+"cgroup.sane_behavior") { // see cgroup1_base_files of the kernel
		return ""
	}
	return folder + v1
}

// rootCgroup returns the name of a limit of the root cgroup.
func rootCgroup(file string) string {
	return file[strings.LastIndexByte(file, '/')+1:] + " of the root cgroup"
}

// limitMemory applies the root cgroup's memory limit.
func (r *Reader) limitMemory(m *Memory) error {
	file := r.cgroupFile("memory", "memory.limit_in_bytes", "memory.max")
	limit, found, err := r.number(file)
	if err != nil || !found {
		return err
	}
	stat := keyed(r.text(r.cgroupFile("memory", "memory.stat", "memory.stat")))
	if above, found := stat["hierarchical_memory_limit"]; found { // cgroup v1 also has the limits of parent cgroups
		limit = min(limit, above)
	}
	if limit >= m.TotalBytes {
		return nil
	}
	used, _, err := r.number(r.cgroupFile("memory", "memory.usage_in_bytes", "memory.current"))
	if err != nil {
		return err
	}
	caches := []string{"inactive_file", "active_file", "slab_reclaimable"} // reclaimable, as in MemAvailable
	if r.cgroupVersion() != 2 {
		caches = []string{"total_inactive_file", "total_active_file"} // of the whole tree, not only of the root
	}
	for _, key := range caches {
		used -= min(used, stat[key])
	}
	m.TotalBytes, m.Source = limit, rootCgroup(file)
	m.AvailableBytes = min(m.AvailableBytes, limit-min(limit, used))
	return nil
}

// limitSwap returns how much of the swap the root cgroup grants.
func (r *Reader) limitSwap(swap uint64) uint64 {
	if r.cgroupVersion() == 2 {
		if limit, found, err := r.number(r.cgroupFile("memory", "", "memory.swap.max")); err == nil && found {
			return min(swap, limit)
		}
		return swap
	}
	both, found, err := r.number(r.cgroupFile("memory", "memory.memsw.limit_in_bytes", ""))
	memory, limited, memoryErr := r.number(r.cgroupFile("memory", "memory.limit_in_bytes", ""))
	if err == nil && memoryErr == nil && found && limited {
		return min(swap, both-min(both, memory))
	}
	return swap
}

// cpuLimit returns the lower of the root cgroup's quota and the number of those CPUs that its
// cpuset has.
func (r *Reader) cpuLimit(onlineCPUs string) CPUs {
	var tightest CPUs
	candidate := func(file string, millis uint64) {
		if millis > 0 && (tightest.Millis == 0 || millis < tightest.Millis) {
			tightest = CPUs{Millis: millis, Source: rootCgroup(file)}
		}
	}
	file := r.cgroupFile("cpu", "cpu.cfs_quota_us", "cpu.max")
	quota, period, found := strings.Cut(r.text(file), " ")
	if quota != "" && !found {
		period = r.text(r.cgroupFile("cpu", "cpu.cfs_period_us", ""))
	}
	micros, err := strconv.ParseUint(quota, 10, 64) // "max", and -1 in cgroup v1, mean no limit
	of, periodErr := strconv.ParseUint(period, 10, 64)
	if err == nil && periodErr == nil && of > 0 {
		candidate(file, max(micros*1000/of, 1))
	}
	online, err := parseCPUList(onlineCPUs)
	file = r.cgroupFile("cpuset", "cpuset.effective_cpus", "cpuset.cpus.effective")
	granted, grantedErr := parseCPUList(r.text(file))
	if err == nil && grantedErr == nil && len(granted) > 0 && len(granted) < len(online) {
		candidate(file, uint64(len(granted))*1000)
	}
	return tightest
}

// limitHugePages limits the huge pages to what the root cgroup grants.
func (r *Reader) limitHugePages(pages []HugePages) {
	for i, p := range pages {
		size := strconv.FormatUint(p.PageSizeBytes>>10, 10) + "KB" // as in mem_fmt() of the kernel's hugetlb_cgroup.c
		switch {
		case p.PageSizeBytes >= 1<<30:
			size = strconv.FormatUint(p.PageSizeBytes>>30, 10) + "GB"
		case p.PageSizeBytes >= 1<<20:
			size = strconv.FormatUint(p.PageSizeBytes>>20, 10) + "MB"
		}
		limit, found, err := r.number(r.cgroupFile("hugetlb", "hugetlb."+size+".limit_in_bytes", "hugetlb."+size+".max"))
		if err == nil && found {
			pages[i].Pages = min(p.Pages, limit/p.PageSizeBytes)
		}
	}
}

// keyed parses a file with a name and a number on each line.
func keyed(text string) map[string]uint64 {
	numbers := map[string]uint64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			numbers[name] = n
		}
	}
	return numbers
}
