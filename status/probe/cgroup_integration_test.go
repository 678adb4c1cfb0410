//go:build integration

package probe_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/status/probe"
)

// limitedRoot is set in the environment of the process inside a limited cgroup.
const limitedRoot = "TEST_LIMITED_ROOT"

// TestLimitsOfACgroupNamespace measures inside a cgroup namespace, like that of an LXC container,
// whose root has limits. It uses this machine's version of cgroups.
func TestLimitsOfACgroupNamespace(t *testing.T) {
	if root := os.Getenv(limitedRoot); root != "" {
		if err := json.NewEncoder(os.Stdout).Encode(reader(t, root).Usage(t.Context())); err != nil {
			t.Fatal(err)
		}
		os.Exit(0) // without output of the test framework
	}
	root := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Symlink("/proc", filepath.Join(root, "proc")))
	must(os.MkdirAll(filepath.Join(root, "sys/fs/cgroup"), 0o755))
	must(os.Symlink("/sys/devices", filepath.Join(root, "sys/devices")))

	type limit struct{ file, v1, value string }
	limits := map[string][]limit{
		"memory": {{"memory.max", "memory.limit_in_bytes", "536870912"}},
		"cpu":    {{"cpu.max", "cpu.cfs_quota_us", "50000"}},
		"pids":   {{"pids.max", "pids.max", "60"}},
	}
	var v1 unix.Statfs_t
	must(unix.Statfs("/sys/fs/cgroup", &v1))
	unified := v1.Type == unix.CGROUP2_SUPER_MAGIC
	name := fmt.Sprintf("hostler-probe-%d", os.Getpid())
	joins, mounts := "", "" // the namespace's root is the cgroup of its first process
	for controller, list := range limits {
		folder, mount := filepath.Join("/sys/fs/cgroup", controller, name), filepath.Join(root, "sys/fs/cgroup", controller)
		if unified {
			folder, mount = filepath.Join("/sys/fs/cgroup", name), ""
		} else {
			must(os.Mkdir(mount, 0o755))
		}
		must(os.MkdirAll(folder, 0o755))
		t.Cleanup(func() { _ = os.Remove(folder) }) // one attempt
		for _, l := range list {
			file := l.v1
			if unified {
				file = l.file
			}
			must(os.WriteFile(filepath.Join(folder, file), []byte(l.value), 0o644))
		}
		joins += "echo $$ > " + folder + "/cgroup.procs; "
		if !unified {
			mounts += "mount -t cgroup -o " + controller + " none " + mount + "; "
		}
	}
	if unified {
		mounts = "mount -t cgroup2 none " + filepath.Join(root, "sys/fs/cgroup") + "; "
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", joins+"exec unshare --cgroup --mount sh -ec '"+mounts+"exec \"$0\" -test.run=^"+t.Name()+"$' "+os.Args[0])
	cmd.Env = append(os.Environ(), limitedRoot+"="+root)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	must(err)
	var got probe.Usage
	must(json.Unmarshal(out, &got))
	if m := got.Memory; m.Problem != "" || m.TotalBytes != 512<<20 || m.AvailableBytes == 0 || m.AvailableBytes > m.TotalBytes || m.Source == "" {
		t.Errorf("Usage().Memory = %+v, want 512 MiB, and some of it available", m)
	}
	if got.CPUs.Millis != 500 {
		t.Errorf("Usage().CPUs = %+v, want half a CPU", got.CPUs)
	}
	if p := got.PIDs; p.Limit != 60 || p.Used == 0 || p.Used >= 60 {
		t.Errorf("Usage().PIDs = %+v, want 60, and some used", p)
	}
}
