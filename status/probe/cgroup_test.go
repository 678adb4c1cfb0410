package probe_test

import (
	"maps"
	"testing"

	"hostler.io/hostler/status/probe"
)

// A container with 512 MiB, half a CPU and 60 PIDs is a host of that size, whatever machine it runs
// on.
func TestAHostThatIsItselfLimited(t *testing.T) {
	const (
		mi      = 1 << 20
		memory1 = "sys/fs/cgroup/memory/"
		memory2 = "sys/fs/cgroup/memory."
		kernels = "9223372036854771712\n"
	)
	machine := map[string]string{
		"proc/meminfo":                  "MemTotal: 24641536 kB\nMemAvailable: 20971520 kB\nSwapTotal: 4194304 kB\n", // 23.5 and 20 GiB
		"proc/loadavg":                  "0 0 0 1/900 1\n",
		"proc/sys/kernel/pid_max":       "4194304\n",
		"sys/devices/system/cpu/online": "0-7\n",
	}
	v2 := map[string]string{
		"sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n",
		memory2 + "max":                    "536870912\n", memory2 + "current": "524288000\n", // 500 MiB
		memory2 + "stat":             "anon 104857600\ninactive_file 209715200\nactive_file 104857600\nslab_reclaimable 10485760\n", // 200, 100, 10
		"sys/fs/cgroup/cpu.max":      "50000 100000\n",
		"sys/fs/cgroup/pids.max":     "60\n",
		"sys/fs/cgroup/pids.current": "58\n",
	}
	v1 := map[string]string{
		memory1 + "memory.limit_in_bytes": "536870912\n", memory1 + "memory.usage_in_bytes": "524288000\n",
		memory1 + "memory.stat":               "inactive_file 1\nhierarchical_memory_limit 536870912\ntotal_inactive_file 209715200\ntotal_active_file 104857600\n",
		"sys/fs/cgroup/cpu/cpu.cfs_quota_us":  "50000\n",
		"sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
		"sys/fs/cgroup/pids/pids.max":         "60\n",
		"sys/fs/cgroup/pids/pids.current":     "58\n",
	}
	whole := probe.Memory{TotalBytes: 24064 * mi, AvailableBytes: 20480 * mi, SwapTotalBytes: 4096 * mi}
	half := func(source string, available uint64) probe.Memory {
		return probe.Memory{TotalBytes: 512 * mi, AvailableBytes: available * mi, SwapTotalBytes: 4096 * mi, Source: source + " of the root cgroup"}
	}
	for _, c := range []struct {
		name   string
		cgroup map[string]string
		more   map[string]string
		memory probe.Memory
		cpus   probe.CPUs
		pids   uint64 // available
	}{
		{"the machine itself, cgroup v2", map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpu\n", "sys/fs/cgroup/cpuset.cpus.effective": "0-7\n"}, nil, whole, probe.CPUs{}, 4194304 - 900},
		{"the machine itself, cgroup v1", map[string]string{
			memory1 + "memory.limit_in_bytes": kernels, memory1 + "memory.usage_in_bytes": kernels, "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
		}, nil, whole, probe.CPUs{}, 4194304 - 900},
		{"cgroup v2", v2, nil, half("memory.max", 322), probe.CPUs{Millis: 500, Source: "cpu.max of the root cgroup"}, 2},
		{"cgroup v2 without limits", v2, map[string]string{memory2 + "max": "max\n", "sys/fs/cgroup/cpu.max": "max 100000\n", "sys/fs/cgroup/pids.max": "max\n"}, whole, probe.CPUs{}, 4194304 - 900},
		{"two of eight CPUs", v2, map[string]string{"sys/fs/cgroup/cpu.max": "max 100000\n", "sys/fs/cgroup/cpuset.cpus.effective": "2,5\n"}, half("memory.max", 322), probe.CPUs{Millis: 2000, Source: "cpuset.cpus.effective of the root cgroup"}, 2},
		{"more CPUs of time than there are", v2, map[string]string{"sys/fs/cgroup/cpu.max": "1600000 100000\n"}, half("memory.max", 322), probe.CPUs{Millis: 16000, Source: "cpu.max of the root cgroup"}, 2},
		{"a machine that has less left", v2, map[string]string{"proc/meminfo": "MemTotal: 24641536 kB\nMemAvailable: 51200 kB\nSwapTotal: 4194304 kB\n"}, half("memory.max", 50), probe.CPUs{Millis: 500, Source: "cpu.max of the root cgroup"}, 2},
		{"all of it used", v2, map[string]string{memory2 + "current": "536870912\n", memory2 + "stat": "anon 536870912\n"}, half("memory.max", 0), probe.CPUs{Millis: 500, Source: "cpu.max of the root cgroup"}, 2},
		{"cgroup v1", v1, nil, half("memory.limit_in_bytes", 312), probe.CPUs{Millis: 500, Source: "cpu.cfs_quota_us of the root cgroup"}, 2},
		{"cgroup v1, limited above what is seen", v1, map[string]string{memory1 + "memory.limit_in_bytes": kernels}, half("memory.limit_in_bytes", 312), probe.CPUs{Millis: 500, Source: "cpu.cfs_quota_us of the root cgroup"}, 2},
		{
			"lxcfs has /proc/meminfo say so, too", v2,
			map[string]string{"proc/meminfo": "MemTotal: 524288 kB\nMemAvailable: 102400 kB\nSwapTotal: 0 kB\n"},
			probe.Memory{TotalBytes: 512 * mi, AvailableBytes: 100 * mi},
			probe.CPUs{Millis: 500, Source: "cpu.max of the root cgroup"},
			2,
		},
	} {
		files := maps.Clone(machine)
		maps.Copy(files, c.cgroup)
		maps.Copy(files, c.more)
		u := reader(t, tree(t, files)).Usage(t.Context())
		if u.Memory != c.memory || u.CPUs != c.cpus || u.PIDs.Available() != c.pids {
			t.Errorf("%s: Usage() = %+v, %+v, %+v, want %+v, %+v and %d PIDs available", c.name, u.Memory, u.CPUs, u.PIDs, c.memory, c.cpus, c.pids)
		}
	}
	files := maps.Clone(machine)
	maps.Copy(files, v2)
	files[memory2+"max"] = "much\n"
	if u := reader(t, tree(t, files)).Usage(t.Context()); u.Memory.Problem == "" {
		t.Errorf("Usage() = %+v with a limit that is no number, want a problem", u.Memory)
	}
}

func TestSwapAndHugePagesOfAHostThatIsItselfLimited(t *testing.T) {
	const pages = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
	files := map[string]string{
		"proc/meminfo": "MemTotal: 24641536 kB\nMemAvailable: 20971520 kB\nSwapTotal: 4194304 kB\n", pages: "512\n",
		"sys/devices/system/cpu/cpu0/topology/core_id": "0",
	}
	for _, c := range []struct {
		name   string
		cgroup map[string]string
		swap   uint64
		pages  uint64
	}{
		{"the machine itself", nil, 4 << 30, 512},
		{"cgroup v2", map[string]string{"sys/fs/cgroup/cgroup.controllers": "", "sys/fs/cgroup/memory.swap.max": "1073741824", "sys/fs/cgroup/hugetlb.2MB.max": "20971520"}, 1 << 30, 10},
		{"cgroup v1", map[string]string{
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912", "sys/fs/cgroup/memory/memory.memsw.limit_in_bytes": "1610612736",
			"sys/fs/cgroup/hugetlb/hugetlb.2MB.limit_in_bytes": "20971520",
		}, 1 << 30, 10},
	} {
		all := maps.Clone(files)
		maps.Copy(all, c.cgroup)
		m, err := reader(t, tree(t, all)).Machine()
		if err != nil || m.SwapBytes != c.swap || len(m.HugePages) != 1 || m.HugePages[0].Pages != c.pages {
			t.Errorf("%s: Machine() has %d bytes of swap, huge pages %+v, %v, want %d and %d pages", c.name, m.SwapBytes, m.HugePages, err, c.swap, c.pages)
		}
	}
}

// The kernel does not count ZFS's cache as available, although it can be freed.
func TestZFSGivesItsCacheBack(t *testing.T) {
	const stats = "13 1 0x01 123 33456 5 6\nname                            type data\nhits                            4    9\nc_min                           4    1048576\nc_max                           4    99\nsize                            4    5242880\n"
	for name, c := range map[string]struct {
		stats string
		want  uint64
	}{
		"no ZFS":                       {"", 1 << 20},
		"a cache above its least size": {stats, 5 << 20},
		"a cache below it":             {"size 4 5\nc_min 4 6\n", 1 << 20},
		"more than there can be":       {"size 4 999999999999\nc_min 4 6\n", 10 << 20},
	} {
		files := map[string]string{"proc/meminfo": "MemTotal: 10240 kB\nMemAvailable: 1024 kB\n", "proc/spl/kstat/zfs/arcstats": c.stats}
		if got := reader(t, tree(t, files)).Usage(t.Context()).Memory.AvailableBytes; got != c.want {
			t.Errorf("%s: %d bytes are available, want %d", name, got, c.want)
		}
	}
}
