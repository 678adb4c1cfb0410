package probe

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Usage is the measurement of one status check. It takes a few small files and one statfs call for
// each folder.
type Usage struct {
	Layout      Layout
	Memory      Memory
	CPUs        CPUs
	PIDs        PIDs
	Filesystems []Filesystem // one for each requested folder, in that order
}

// Layout detects changes of the Machine without reading all of it: equal Layouts have the same
// CPUs, memory, huge pages and swap. The zero value means that the host could not be read.
type Layout struct {
	cpus                    string // the kernel's list of online CPUs
	memory, hugePages, swap uint64 // bytes
}

// Memory is the host's memory according to the kernel, or what its root cgroup grants of it.
type Memory struct {
	TotalBytes uint64
	// AvailableBytes is MemAvailable of proc_meminfo(5): what programs can get without swapping,
	// including page cache that can be dropped. It also includes ZFS's cache, which the kernel does
	// not count.
	AvailableBytes uint64
	SwapTotalBytes uint64
	Source         string // the limit that sets TotalBytes; empty if that is the machine's memory
	Problem        string // why the measurement failed; empty if it did not
}

// PIDs is the number of processes and threads with the lowest remaining limit.
type PIDs struct {
	Used    uint64
	Limit   uint64
	Source  string // the limit's name: "kernel.pid_max", "kernel.threads-max" or "pids.max of the root cgroup"
	Problem string // why the measurement failed; empty if it did not
}

// Available returns how many more processes can be started.
func (p PIDs) Available() uint64 {
	if p.Used >= p.Limit {
		return 0
	}
	return p.Limit - p.Used
}

// Usage measures memory, PIDs and the filesystems of the given folders. A value that cannot be
// measured has a Problem, and does not affect the others. Usage returns when ctx ends, at the
// latest. A folder whose filesystem has not answered until then has a Problem, and is not queried
// again until it answers.
func (r *Reader) Usage(ctx context.Context, folders ...string) Usage {
	memory, layout := r.memory()
	return Usage{
		Layout:      layout,
		Memory:      memory,
		CPUs:        r.cpuLimit(layout.cpus),
		PIDs:        r.pids(),
		Filesystems: r.filesystems(ctx, folders),
	}
}

func (r *Reader) memory() (Memory, Layout) {
	info, err := r.proc.Meminfo()
	if err != nil {
		return Memory{Problem: fmt.Sprintf("read /proc/meminfo: %v", err)}, Layout{}
	}
	if info.MemTotalBytes == nil || info.MemAvailableBytes == nil {
		return Memory{Problem: "/proc/meminfo has no MemTotal or no MemAvailable"}, Layout{}
	}
	m := Memory{
		TotalBytes:     *info.MemTotalBytes,
		AvailableBytes: *info.MemAvailableBytes,
		SwapTotalBytes: value(info.SwapTotalBytes),
	}
	pages := value(info.HugetlbBytes)
	if info.HugetlbBytes == nil { // before Linux 4.16, which only counts the default size
		pages = value(info.HugePagesTotal) * value(info.HugepagesizeBytes)
	}
	layout := Layout{cpus: r.text(onlineCPUs), memory: m.TotalBytes, hugePages: pages, swap: m.SwapTotalBytes}
	m.AvailableBytes = min(m.AvailableBytes+r.arcSurplus(), m.TotalBytes)
	if err := r.limitMemory(&m); err != nil {
		return Memory{Problem: err.Error()}, layout
	}
	return m, layout
}

// arcSurplus returns how many bytes ZFS's cache frees when others need memory: its size beyond its
// minimum. See arc_summary(1).
func (r *Reader) arcSurplus() uint64 {
	var size, least uint64
	for line := range strings.Lines(r.text("/proc/spl/kstat/zfs/arcstats")) {
		fields := strings.Fields(line) // name, type, data
		if len(fields) != 3 {
			continue
		}
		n, err := strconv.ParseUint(fields[2], 10, 64)
		switch {
		case err != nil:
		case fields[0] == "size":
			size = n
		case fields[0] == "c_min":
			least = n
		}
	}
	return size - min(size, least)
}

// pids returns the lowest of the kernel's two limits and the root cgroup's limit. Only a host
// inside a container or a namespace has the latter.
func (r *Reader) pids() PIDs {
	used, err := parseTasks(r.text("/proc/loadavg"))
	if err != nil {
		return PIDs{Problem: fmt.Sprintf("read /proc/loadavg: %v", err)}
	}
	pidsMax := r.cgroupFile("pids", "pids.max", "pids.max")
	limits := []struct{ source, limit, used string }{
		{source: "kernel.pid_max", limit: "/proc/sys/kernel/pid_max"},
		{source: "kernel.threads-max", limit: "/proc/sys/kernel/threads-max"},
		{source: rootCgroup(pidsMax), limit: pidsMax, used: r.cgroupFile("pids", "pids.current", "pids.current")},
	}
	var tightest PIDs
	for _, l := range limits {
		limit, found, err := r.number(l.limit)
		if err != nil {
			return PIDs{Problem: err.Error()}
		}
		if !found {
			continue
		}
		candidate := PIDs{Used: used, Limit: limit, Source: l.source}
		if l.used != "" {
			if candidate.Used, _, err = r.number(l.used); err != nil {
				return PIDs{Problem: err.Error()}
			}
		}
		if tightest.Source == "" || candidate.Available() < tightest.Available() {
			tightest = candidate
		}
	}
	if tightest.Source == "" {
		return PIDs{Problem: "no PID limit found below /proc/sys/kernel or /sys/fs/cgroup"}
	}
	return tightest
}

// parseTasks returns the number of processes and threads from the fourth field of /proc/loadavg,
// such as "1/120". The sysinfo system call has the same number, but its maximum is 65,535.
func parseTasks(loadavg string) (uint64, error) {
	fields := strings.Fields(loadavg)
	if len(fields) < 4 {
		return 0, fmt.Errorf("%q has no fourth field", loadavg)
	}
	_, total, _ := strings.Cut(fields[3], "/")
	tasks, err := strconv.ParseUint(total, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q has no number of tasks", loadavg)
	}
	return tasks, nil
}
