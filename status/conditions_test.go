package status_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

const gi = 1 << 30

// healthy returns the facts of a host without faults.
func healthy() status.Facts {
	node := probe.Filesystem{
		Path: "/var/lib/hostler", Mountpoint: "/var/lib", Device: "/dev/sda2", Type: "ext4",
		CapacityBytes: 100 * gi, AvailableBytes: 60 * gi, Inodes: 1000, InodesFree: 900,
	}
	image := node
	image.Path, image.Mountpoint, image.Device = "/images", "/images", "/dev/sdb1"
	return status.Facts{
		Machine:         probe.Machine{CPUs: 4, MemoryBytes: 8 * gi, Architecture: "arm64"},
		Memory:          probe.Memory{TotalBytes: 8 * gi, AvailableBytes: 6 * gi},
		PIDs:            probe.PIDs{Used: 500, Limit: 32768, Source: "kernel.pid_max"},
		Filesystems:     []status.Filesystem{{Role: status.RoleNode, Filesystem: node}, {Role: status.RoleImage, Filesystem: image}},
		Network:         network(address("10.0.0.5", 24, "eth0")),
		RuntimesQueried: true,
		Runtimes: []runtime.Health{{
			Info:  runtime.Info{Name: "containerd", Version: "2.1.4", Endpoint: "unix:///run/c.sock", Ready: true, NetworkReady: true},
			Since: noon.Add(-time.Hour),
		}},
		Shutdown: status.Shutdown{State: "Armed"},
	}
}

// defaultOptions returns the options of an empty configuration, with a name.
func defaultOptions() status.Options {
	return status.Options{MaxPods: 110, MaxImages: 50, Pressure: status.DefaultPolicy()}
}

func policyOptions() status.Options {
	o := defaultOptions()
	o.Name = "h1"
	return o
}

func condition(t *testing.T, conditions []corev1.NodeCondition, kind corev1.NodeConditionType) corev1.NodeCondition {
	t.Helper()
	i := slices.IndexFunc(conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	if i < 0 {
		t.Fatalf("conditions %v have no %s", conditions, kind)
	}
	return conditions[i]
}

func TestAHostThatIsItselfLimitedIsASmallOne(t *testing.T) {
	facts, o := healthy(), policyOptions()
	facts.Machine.CPUs = 8
	facts.CPUs = probe.CPUs{Millis: 500, Source: "cpu.max of the root cgroup"}
	facts.Memory = probe.Memory{TotalBytes: 512 << 20, AvailableBytes: 60 << 20, Source: "memory.max of the root cgroup"}
	o.Reserved.CPU = resource.MustParse("100m")
	node, _ := status.Node(facts, o, status.Memory{}, noon)
	for name, want := range map[corev1.ResourceName][2]string{"cpu": {"500m", "400m"}, "memory": {"512Mi", "412Mi"}} {
		capacity, allocatable := node.Status.Capacity[name], node.Status.Allocatable[name]
		if capacity.String() != want[0] || allocatable.String() != want[1] {
			t.Errorf("%s: capacity %s, allocatable %s, want %v", name, capacity.String(), allocatable.String(), want)
		}
	}
	c := condition(t, node.Status.Conditions, corev1.NodeMemoryPressure)
	if want := "60Mi of 512Mi memory available (memory.max of the root cgroup), threshold 100Mi"; c.Status != corev1.ConditionTrue || c.Message != want {
		t.Errorf("MemoryPressure = %s, %q, want it True: %q", c.Status, c.Message, want)
	}
	o.Reserved.CPU = resource.MustParse("1")
	if err := status.CheckReserved(facts, o.Reserved, o.Pressure); err == nil {
		t.Error("CheckReserved() = nil, want a whole CPU refused of half a one")
	}
	facts.CPUs.Millis = 16000
	if got := status.Capacity(facts, 1)[corev1.ResourceCPU]; got.String() != "8" {
		t.Errorf("capacity is %s CPUs with a limit above what there is, want 8", got.String())
	}
}

// run returns the filesystem of the pods' runtime state.
func run(available, inodesFree uint64) status.Filesystem {
	return status.Filesystem{Role: status.RoleStart, Filesystem: probe.Filesystem{
		Path: "/run", Mountpoint: "/run", Device: "tmpfs", Type: "tmpfs",
		CapacityBytes: 4 * gi, AvailableBytes: available, Inodes: 1_000_000, InodesFree: inodesFree,
	}}
}

func TestConditions(t *testing.T) {
	const memory, disk, pid = corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure
	for _, c := range []struct {
		name    string
		spoil   func(f *status.Facts, o *status.Options)
		kind    corev1.NodeConditionType
		status  corev1.ConditionStatus
		reason  string
		message string
	}{
		{"enough memory", nil, memory, "False", "SufficientMemory", "6Gi of 8Gi memory available"},
		{
			"memory below an amount", func(f *status.Facts, _ *status.Options) { f.Memory.AvailableBytes = 100<<20 - 1 },
			memory, "True", "InsufficientMemory", "99.9Mi of 8Gi memory available, threshold 100Mi",
		},
		{
			"memory at the amount is no pressure", func(f *status.Facts, _ *status.Options) { f.Memory.AvailableBytes = 100 << 20 },
			memory, "False", "SufficientMemory", "100Mi of 8Gi memory available",
		},
		{
			"memory below a percentage",
			func(f *status.Facts, o *status.Options) {
				o.Pressure.MemoryAvailable = threshold(t, "10%")
				f.Memory.AvailableBytes = 8*gi/10 - gi/1000
			},
			memory, "True", "InsufficientMemory", "9% of 8Gi memory available, threshold 10%",
		},
		{
			"memory unreadable", func(f *status.Facts, _ *status.Options) { f.Memory = probe.Memory{Problem: "read /proc/meminfo: gone"} },
			memory, "Unknown", "NotMeasured", "read /proc/meminfo: gone",
		},
		{
			"memory not read yet", func(f *status.Facts, _ *status.Options) { f.Memory = probe.Memory{} },
			memory, "Unknown", "NotMeasured", "memory has not been measured yet",
		},
		{
			"enough disk space", nil, disk, "False", "SufficientDisk",
			"/var/lib (ext4 on /dev/sda2) has 60% free; /var/lib (ext4 on /dev/sda2) has 90% of its inodes free; " +
				"/images (ext4 on /dev/sdb1) has 60% free; /images (ext4 on /dev/sdb1) has 90% of its inodes free",
		},
		{
			"node filesystem full", func(f *status.Facts, _ *status.Options) { f.Filesystems[0].AvailableBytes = 8 * gi },
			disk, "True", "NodeFilesystemSpace", "/var/lib (ext4 on /dev/sda2) has 8% free, threshold 10%",
		},
		{
			"node filesystem below an amount",
			func(f *status.Facts, o *status.Options) { o.Pressure.NodefsAvailable = threshold(t, "70Gi") },
			disk, "True", "NodeFilesystemSpace", "/var/lib (ext4 on /dev/sda2) has 60Gi of 100Gi free, threshold 70Gi",
		},
		{
			"node filesystem out of inodes", func(f *status.Facts, _ *status.Options) { f.Filesystems[0].InodesFree = 49 },
			disk, "True", "NodeFilesystemInodes", "/var/lib (ext4 on /dev/sda2) has 4% of its inodes free, threshold 5%",
		},
		{
			"full where pods' state is", func(f *status.Facts, _ *status.Options) { f.Filesystems = append(f.Filesystems, run(15<<20, 800_000)) },
			disk, "True", "StartFilesystemSpace", "/run (tmpfs on tmpfs) has 15Mi of 4Gi free, threshold 16Mi",
		},
		{
			"no inodes there", func(f *status.Facts, _ *status.Options) { f.Filesystems = append(f.Filesystems, run(3*gi, 999)) },
			disk, "True", "StartFilesystemInodes", "/run (tmpfs on tmpfs) has 999 of its inodes free, threshold 1000",
		},
		{
			"room for some pods there", func(f *status.Facts, _ *status.Options) { f.Filesystems = append(f.Filesystems, run(16<<20, 1000)) },
			disk, "False", "SufficientDisk", "/var/lib (ext4 on /dev/sda2) has 60% free; /var/lib (ext4 on /dev/sda2) has 90% of its inodes free; " +
				"/images (ext4 on /dev/sdb1) has 60% free; /images (ext4 on /dev/sdb1) has 90% of its inodes free",
		},
		{
			"a small one there", func(f *status.Facts, _ *status.Options) {
				fs := run(2<<20, 500)
				fs.CapacityBytes, fs.Inodes = 20<<20, 1000
				f.Filesystems = append(f.Filesystems, fs)
			},
			disk, "False", "SufficientDisk", "",
		},
		{
			"full there, and nobody wants to know", func(f *status.Facts, o *status.Options) {
				f.Filesystems = append(f.Filesystems, run(0, 0))
				o.Pressure.NodefsAvailable, o.Pressure.NodefsInodesFree = threshold(t, "0%"), threshold(t, "0%")
			},
			disk, "False", "SufficientDisk", "",
		},
		{
			"one there that does not answer", func(f *status.Facts, _ *status.Options) {
				f.Filesystems = append(f.Filesystems, status.Filesystem{Role: status.RoleStart, Filesystem: probe.Filesystem{Path: "/tmp", Problem: "statfs /tmp: no answer"}})
			},
			disk, "Unknown", "NotMeasured", "statfs /tmp: no answer",
		},
		{
			"one there that is none", func(f *status.Facts, _ *status.Options) {
				f.Filesystems = append(f.Filesystems, status.Filesystem{Role: status.RoleStart, Filesystem: probe.Filesystem{Path: "/run/crio", Absent: true, Problem: "statfs /run/crio: not there"}})
			},
			disk, "False", "SufficientDisk", "",
		},
		{
			"pods' state on the node filesystem", func(f *status.Facts, _ *status.Options) {
				fs := f.Filesystems[0]
				fs.Role, fs.Path, fs.AvailableBytes = status.RoleStart, "/var/lib/containerd", 0
				f.Filesystems = append(f.Filesystems, fs)
			},
			disk, "False", "SufficientDisk", "",
		},
		{
			"image filesystem full", func(f *status.Facts, _ *status.Options) { f.Filesystems[1].AvailableBytes = 14 * gi },
			disk, "True", "ImageFilesystemSpace", "/images (ext4 on /dev/sdb1) has 14% free, threshold 15%",
		},
		{
			"image filesystem out of inodes", func(f *status.Facts, _ *status.Options) { f.Filesystems[1].InodesFree = 0 },
			disk, "True", "ImageFilesystemInodes", "/images (ext4 on /dev/sdb1) has 0% of its inodes free, threshold 5%",
		},
		{
			"a filesystem that counts no inodes", func(f *status.Facts, _ *status.Options) { f.Filesystems[0].Inodes, f.Filesystems[0].InodesFree = 0, 0 },
			disk, "False", "SufficientDisk", "",
		},
		{
			"one filesystem full, the other silent", func(f *status.Facts, _ *status.Options) {
				f.Filesystems[0].AvailableBytes = 0
				f.Filesystems[1] = status.Filesystem{Role: status.RoleImage, Filesystem: probe.Filesystem{Problem: "no answer"}}
			},
			disk, "True", "NodeFilesystemSpace", "/var/lib (ext4 on /dev/sda2) has 0% free, threshold 10%",
		},
		{
			"a silent filesystem", func(f *status.Facts, _ *status.Options) { f.Filesystems[1].Problem = "statfs /images: no answer" },
			disk, "Unknown", "NotMeasured", "statfs /images: no answer",
		},
		{
			"no filesystem at all", func(f *status.Facts, _ *status.Options) { f.Filesystems = nil },
			disk, "Unknown", "NotMeasured", "the node filesystem has not been measured yet",
		},
		{"enough PIDs", nil, pid, "False", "SufficientPIDs", "98% of 32768 PIDs available (kernel.pid_max)"},
		{
			"PIDs used up", func(f *status.Facts, _ *status.Options) { f.PIDs.Used = 40000 },
			pid, "True", "InsufficientPIDs", "0% of 32768 PIDs available (kernel.pid_max), threshold 5%",
		},
		{
			"PIDs used up but for the reserved ones", func(f *status.Facts, o *status.Options) { f.PIDs.Used, o.Reserved.PIDs = 29000, 3000 },
			pid, "True", "InsufficientPIDs", "2% of 32768 PIDs available beyond 3000 reserved (kernel.pid_max), threshold 5%",
		},
		{"PIDs not counted", func(f *status.Facts, _ *status.Options) { f.PIDs = probe.PIDs{} }, pid, "Unknown", "NotMeasured", "PIDs have not been counted yet"},
		{"a lock held", nil, status.ShutdownProtected, "True", "Armed", "a shutdown waits for the pods to stop"},
		{
			"no logind", func(f *status.Facts, _ *status.Options) {
				f.Shutdown = status.Shutdown{State: "Disarmed", Reason: "no logind on the system bus"}
			},
			status.ShutdownProtected, "False", "Disarmed", "a shutdown will not wait for the pods to stop: no logind on the system bus",
		},
		{"shutting down", func(f *status.Facts, _ *status.Options) { f.Shutdown.State = "Draining" }, status.ShutdownProtected, "True", "ShuttingDown", ""},
		{"released", func(f *status.Facts, _ *status.Options) { f.Shutdown.State = "Released" }, status.ShutdownProtected, "True", "Released", ""},
		{"kubelet's job", func(f *status.Facts, _ *status.Options) { f.Shutdown.State = "Delegated" }, status.ShutdownProtected, "True", "Delegated", ""},
		{"a guard that says nothing", func(f *status.Facts, _ *status.Options) { f.Shutdown.State = "" }, status.ShutdownProtected, "Unknown", "NotMeasured", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			facts, o := healthy(), policyOptions()
			if c.spoil != nil {
				c.spoil(&facts, &o)
			}
			conditions, _ := status.Conditions(facts, o, status.Memory{}, noon)
			got := condition(t, conditions, c.kind)
			if got.Status != c.status || got.Reason != c.reason || c.message != "" && got.Message != c.message {
				t.Errorf("Conditions() has %s %s %s %q, want %s %s %q", got.Type, got.Status, got.Reason, got.Message, c.status, c.reason, c.message)
			}
			if got.LastHeartbeatTime.Time != noon || got.LastTransitionTime.Time != noon {
				t.Errorf("Conditions() has times %v and %v, want %v", got.LastHeartbeatTime, got.LastTransitionTime, noon)
			}
			if last := conditions[len(conditions)-1].Type; last != corev1.NodeReady {
				t.Errorf("Conditions() ends with %s, want Ready", last)
			}
		})
	}
}

// TestPressureOverTime follows MemoryPressure on a host whose free memory changes, with a check
// every 10 s.
func TestPressureOverTime(t *testing.T) {
	const low, high = 50 << 20, 200 << 20
	o := policyOptions()
	o.Pressure.TransitionPeriod = time.Minute
	memory, now := status.Memory{}, noon
	var trace strings.Builder
	var last corev1.NodeCondition
	transitions := 0
	check := func(available uint64) {
		facts := healthy()
		facts.Memory.AvailableBytes = available
		var conditions []corev1.NodeCondition
		conditions, memory = status.Conditions(facts, o, memory, now)
		c := condition(t, conditions, corev1.NodeMemoryPressure)
		if last.Status != "" && last.Status != c.Status {
			transitions++
			if c.LastTransitionTime.Time != now {
				t.Errorf("at %s the transition time is %s, want now", now, c.LastTransitionTime)
			}
		} else if last.Status != "" && c.LastTransitionTime != last.LastTransitionTime {
			t.Errorf("at %s the transition time moved without a transition", now)
		}
		last = c
		trace.WriteString(map[corev1.ConditionStatus]string{"True": "T", "False": ".", "Unknown": "?"}[c.Status])
		now = now.Add(10 * time.Second)
	}
	check(high)
	for range 6 { // around the threshold
		check(low)
		check(high)
		check(high)
	}
	if want := "." + strings.Repeat("T", 18); trace.String() != want {
		t.Errorf("around the threshold: %s, want %s", trace.String(), want)
	}
	if !strings.Contains(last.Message, "no pressure since") || !strings.Contains(last.Message, "now 200Mi of 8Gi") || last.Reason != "InsufficientMemory" {
		t.Errorf("held condition = %s %q, want its reason and when it ends", last.Reason, last.Message)
	}
	trace.Reset()
	for range 5 {
		check(high)
	}
	if want := "TTT.."; trace.String() != want { // 60 s after the last low value
		t.Errorf("without pressure: %s, want %s", trace.String(), want)
	}
	if transitions != 2 {
		t.Errorf("%d transitions, want 2", transitions)
	}
}

func TestPressureIsHeldWhileNothingIsMeasured(t *testing.T) {
	o, facts := policyOptions(), healthy()
	facts.Memory.AvailableBytes = 1
	_, memory := status.Conditions(facts, o, status.Memory{}, noon)
	facts.Memory = probe.Memory{Problem: "gone"}
	conditions, memory := status.Conditions(facts, o, memory, noon.Add(time.Minute))
	if c := condition(t, conditions, corev1.NodeMemoryPressure); c.Status != "True" {
		t.Errorf("Conditions() within the period = %s, want True", c.Status)
	}
	conditions, _ = status.Conditions(facts, o, memory, noon.Add(5*time.Minute))
	if c := condition(t, conditions, corev1.NodeMemoryPressure); c.Status != "Unknown" {
		t.Errorf("Conditions() after the period = %s, want Unknown", c.Status)
	}
}

func TestPressureOutlivesTheAgent(t *testing.T) {
	o, facts := policyOptions(), healthy()
	since := noon.Add(-time.Hour)
	before := []corev1.NodeCondition{{
		Type: corev1.NodeDiskPressure, Status: "True", Reason: "ImageFilesystemSpace",
		LastHeartbeatTime: metav1.NewTime(noon), LastTransitionTime: metav1.NewTime(since),
	}}
	for _, c := range []struct {
		name  string
		after time.Duration
		want  corev1.ConditionStatus
	}{
		{"a short restart", time.Minute, "True"},
		{"a long one", 5 * time.Minute, "False"},
		{"a clock set back", -time.Hour, "True"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conditions, memory := status.Conditions(facts, o, status.Remember(before), noon.Add(c.after))
			got := condition(t, conditions, corev1.NodeDiskPressure)
			if got.Status != c.want {
				t.Fatalf("Conditions() = %s, want %s", got.Status, c.want)
			}
			if c.want == "True" && (got.Reason != "ImageFilesystemSpace" || !got.LastTransitionTime.Time.Equal(since)) {
				t.Errorf("Conditions() = %+v, want reason and transition time kept", got)
			}
			// Whatever the clock was before, the condition stays for one period from then on.
			conditions, _ = status.Conditions(facts, o, memory, noon.Add(c.after+5*time.Minute))
			if got := condition(t, conditions, corev1.NodeDiskPressure); got.Status != "False" {
				t.Errorf("Conditions() a period later = %s, want False", got.Status)
			}
		})
	}
}

func TestConditionsLeaveTheirMemoryAlone(t *testing.T) {
	o, facts := policyOptions(), healthy()
	facts.Memory.AvailableBytes = 1
	_, first := status.Conditions(facts, o, status.Memory{}, noon)
	status.Conditions(facts, o, first, noon.Add(time.Hour))
	facts.Memory.AvailableBytes = gi
	conditions, _ := status.Conditions(facts, o, first, noon.Add(5*time.Minute))
	if c := condition(t, conditions, corev1.NodeMemoryPressure); c.Status != "False" {
		t.Errorf("Conditions() = %s after another call with the same memory, want False", c.Status)
	}
}

func TestOwnConditions(t *testing.T) {
	conditions, _ := status.Conditions(healthy(), policyOptions(), status.Memory{}, noon)
	own := status.OwnConditions(conditions)
	if len(own) != 1 || own[0].Type != status.ShutdownProtected {
		t.Errorf("OwnConditions() = %v, want hostler.io/ShutdownProtected alone", own)
	}
}
