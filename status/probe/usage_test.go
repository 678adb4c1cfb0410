package probe_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/status/probe"
)

func TestMemory(t *testing.T) {
	got := reader(t, filepath.Join(hosts, "small-vm")).Usage(t.Context()).Memory
	want := probe.Memory{TotalBytes: 1000180 << 10, AvailableBytes: 91404 << 10, SwapTotalBytes: 524284 << 10}
	if got != want {
		t.Errorf("Usage().Memory = %+v, want %+v", got, want)
	}
	for name, file := range map[string]string{"no such line": "MemTotal: 5 kB\n", "nonsense": "MemTotal: x kB\n"} {
		t.Run(name, func(t *testing.T) {
			m := reader(t, tree(t, map[string]string{"proc/meminfo": file})).Usage(t.Context()).Memory
			if !strings.Contains(m.Problem, "/proc/meminfo") || m.TotalBytes != 0 {
				t.Errorf("Usage().Memory = %+v, want a problem with /proc/meminfo", m)
			}
		})
	}
}

func TestLayoutReportsAddedAndRemovedParts(t *testing.T) {
	const online, meminfo = "sys/devices/system/cpu/online", "proc/meminfo"
	const old = "MemTotal: 1000 kB\nMemAvailable: 500 kB\nSwapTotal: 10 kB\nHugePages_Total: 2\nHugepagesize: 2048 kB\n"
	before := map[string]string{online: "0-3\n", meminfo: old + "Hugetlb: 4096 kB\n"}
	layout := func(files map[string]string) probe.Layout { return reader(t, tree(t, files)).Usage(t.Context()).Layout }
	for _, c := range []struct {
		name    string
		file    string
		content string
		want    bool // whether the Layout differs
	}{
		{"the same again", online, "0-3\n", false},
		{"less memory available", meminfo, strings.Replace(old, " 500 kB", " 400 kB", 1) + "Hugetlb: 4096 kB\n", false},
		{"a CPU off", online, "0-2\n", true},
		{"as many CPUs, but others", online, "0-2,4\n", true},
		{"memory plugged in", meminfo, strings.Replace(old, "1000 kB", "2000 kB", 1) + "Hugetlb: 4096 kB\n", true},
		{"swap off", meminfo, strings.Replace(old, "10 kB", "0 kB", 1) + "Hugetlb: 4096 kB\n", true},
		{"huge pages of another size", meminfo, old + "Hugetlb: 1052672 kB\n", true},
		{"a kernel that counts those of one size alone", meminfo, old, false},
		{"more of those", meminfo, strings.Replace(old, "Total: 2", "Total: 3", 1), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			after := maps.Clone(before)
			after[c.file] = c.content
			if got := layout(after) != layout(before); got != c.want {
				t.Errorf("Usage().Layout is another: %t, want %t", got, c.want)
			}
		})
	}
	if got := layout(map[string]string{online: "0-3\n", meminfo: "MemTotal: x\n"}); got != (probe.Layout{}) {
		t.Errorf("Usage().Layout = %+v without a count of memory, want none", got)
	}
}

func TestPIDs(t *testing.T) {
	host := map[string]string{
		"proc/loadavg": "0.1 0.2 0.3 2/700 4711\n", "proc/sys/kernel/pid_max": "32768\n", "proc/sys/kernel/threads-max": "99999\n",
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  probe.PIDs
	}{
		{"the kernel's PIDs are the fewest", nil, probe.PIDs{Used: 700, Limit: 32768, Source: "kernel.pid_max"}},
		{"the kernel's threads are the fewest", map[string]string{"proc/sys/kernel/threads-max": "5000"}, probe.PIDs{Used: 700, Limit: 5000, Source: "kernel.threads-max"}},
		{
			"a container on cgroup v2",
			map[string]string{"sys/fs/cgroup/cgroup.controllers": "pids\n", "sys/fs/cgroup/pids.max": "300\n", "sys/fs/cgroup/pids.current": "20\n"},
			probe.PIDs{Used: 20, Limit: 300, Source: "pids.max of the root cgroup"},
		},
		{
			"a cgroup of that name on cgroup v2",
			map[string]string{"sys/fs/cgroup/cgroup.controllers": "pids\n", "sys/fs/cgroup/pids/pids.max": "3\n", "sys/fs/cgroup/pids/pids.current": "2\n"},
			probe.PIDs{Used: 700, Limit: 32768, Source: "kernel.pid_max"},
		},
		{
			"a container on cgroup v1",
			map[string]string{"sys/fs/cgroup/pids/pids.max": "400\n", "sys/fs/cgroup/pids/pids.current": "500\n"},
			probe.PIDs{Used: 500, Limit: 400, Source: "pids.max of the root cgroup"},
		},
		{
			"no limit in the cgroup",
			map[string]string{"sys/fs/cgroup/cgroup.controllers": "pids\n", "sys/fs/cgroup/pids.max": "max\n", "sys/fs/cgroup/pids.current": "20\n"},
			probe.PIDs{Used: 700, Limit: 32768, Source: "kernel.pid_max"},
		},
		{"nonsense in loadavg", map[string]string{"proc/loadavg": "0.1 0.2"}, probe.PIDs{Problem: `read /proc/loadavg: "0.1 0.2" has no fourth field`}},
		{"nonsense in a limit", map[string]string{"proc/sys/kernel/pid_max": "many"}, probe.PIDs{Problem: `read /proc/sys/kernel/pid_max: "many" is not a number`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{}
			for k, v := range host {
				files[k] = v
			}
			for k, v := range c.files {
				files[k] = v
			}
			if got := reader(t, tree(t, files)).Usage(t.Context()).PIDs; got != c.want {
				t.Errorf("Usage().PIDs = %+v, want %+v", got, c.want)
			}
		})
	}
}

func FuzzParseTasks(f *testing.F) {
	f.Add("1.93 0.76 0.37 1/92 15208")
	f.Add("a b c /")
	f.Fuzz(func(t *testing.T, text string) {
		if tasks, err := probe.ParseTasks(text); err != nil && tasks != 0 {
			t.Errorf("parseTasks(%q) = %d beside error %v", text, tasks, err)
		}
	})
}

func TestFilesystemOfAFolder(t *testing.T) {
	folder := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(folder, link); err != nil {
		t.Fatal(err)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		t.Fatal(err)
	}
	r := reader(t, "/")
	for range 2 { // the second time with cached data
		got := r.Usage(t.Context(), folder, link).Filesystems
		for i, path := range []string{folder, link} {
			fs := got[i]
			if fs.Path != path || fs.Problem != "" {
				t.Fatalf("Usage(%s) = %+v, want it measured", path, fs)
			}
			if want := s.Blocks * uint64(s.Frsize); fs.CapacityBytes != want || fs.AvailableBytes > want || fs.Inodes != s.Files {
				t.Errorf("Usage(%s) = %+v, want %d bytes and %d inodes", path, fs, want, s.Files)
			}
			mountpoint, device, kind := probe.MountOfPath(r, folder)
			if fs.Mountpoint != mountpoint || fs.Device != device || fs.Type != kind || mountpoint == "" {
				t.Errorf("Usage(%s) = %+v, want %s on %s of type %s", path, fs, mountpoint, device, kind)
			}
		}
	}
}

func TestFilesystemThatIsNotThere(t *testing.T) {
	got := reader(t, "/").Usage(t.Context(), "/no/such/folder", "/proc").Filesystems
	if !strings.Contains(got[0].Problem, "statfs /no/such/folder: no such file") {
		t.Errorf("Usage() = %+v, want a problem with a missing folder", got[0])
	}
	if !strings.Contains(got[1].Problem, "no capacity") {
		t.Errorf("Usage(/proc) = %+v, want it to have no capacity", got[1])
	}
}

func TestFilesystemThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		r := reader(t, "/")
		release := probe.HangFilesystem(r, folder)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		started := time.Now()
		got := r.Usage(ctx, folder, "/").Filesystems
		if took := time.Since(started); took != 2*time.Second {
			t.Errorf("Usage() took %s, want it to end with its context", took)
		}
		if !strings.Contains(got[0].Problem, "no answer") {
			t.Errorf("Usage() = %+v, want it to say that there is no answer", got[0])
		}
		if got[1].Problem != "" {
			t.Errorf("Usage() = %+v, want the other filesystem measured", got[1])
		}
		release()
		if got := r.Usage(t.Context(), folder).Filesystems[0]; got.Problem != "" {
			t.Errorf("Usage() once it answers = %+v, want it measured", got)
		}
	})
}

func TestMountByPath(t *testing.T) {
	server := reader(t, filepath.Join(hosts, "numa-server"))
	over := reader(t, tree(t, map[string]string{"proc/self/mountinfo": "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:2 / /mnt rw - ext4 /dev/b rw\n3 1 0:9 / /mnt rw - tmpfs none rw\n"}))
	for _, c := range []struct {
		name   string
		reader *probe.Reader
		path   string
		want   [3]string
	}{
		{"the deepest mount holds it", server, "/var/lib/containers/storage", [3]string{"/var/lib/containers", "/dev/mapper/vg0-containers", "xfs"}},
		{"a name that only begins alike does not", server, "/var/lib/containers2", [3]string{"/var/lib", "/dev/sda3", "xfs"}},
		{"the root holds the rest", server, "/srv", [3]string{"/", "/dev/sda2", "ext4"}},
		{"the later of two mounts lies on top", over, "/mnt", [3]string{"/mnt", "none", "tmpfs"}},
		{"no table of mounts", reader(t, tree(t, map[string]string{"proc/x": ""})), "/mnt", [3]string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			mountpoint, device, kind := probe.MountOfPath(c.reader, c.path)
			if got := [3]string{mountpoint, device, kind}; !reflect.DeepEqual(got, c.want) {
				t.Errorf("mount of %s = %v, want %v", c.path, got, c.want)
			}
		})
	}
}

func BenchmarkUsage(b *testing.B) {
	r := reader(b, "/")
	b.ReportAllocs()
	for b.Loop() {
		r.Usage(b.Context(), "/", "/tmp")
	}
}

// A unit's StateDirectory= and ProtectSystem= create mounts that only its process sees.
func TestAFilesystemIsNamedAsTheHostMountsIt(t *testing.T) {
	folder := t.TempDir()
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, folder, 0, unix.STATX_MNT_ID, &s); err != nil || s.Mask&unix.STATX_MNT_ID == 0 {
		t.Fatalf("statx(%s) = %v, want a mount ID", folder, err)
	}
	own := fmt.Sprintf("%d 1 8:1 %[2]s %[2]s rw - ext4 /dev/a rw\n", s.Mnt_id, folder)
	for _, c := range []struct{ name, host, want string }{
		{"a folder of its root", "1 0 8:1 / / rw - ext4 /dev/a rw\n", "/ /dev/a"},
		{"a mount of its own on the host, too", "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:1 /x " + folder + " rw - ext4 /dev/a rw\n", folder + " /dev/a"},
		{"another filesystem there", "1 0 8:7 / / rw - ext4 /dev/other rw\n", folder + " /dev/a"},
		{"a host that is hidden", "", folder + " /dev/a"},
	} {
		files := map[string]string{"proc/self/mountinfo": own}
		if c.host != "" {
			files["proc/1/mountinfo"] = c.host
		}
		fs := reader(t, tree(t, files)).Usage(t.Context(), folder).Filesystems[0]
		if got := fs.Mountpoint + " " + fs.Device; got != c.want {
			t.Errorf("%s: Usage() has %s, want %s", c.name, got, c.want)
		}
	}
}
