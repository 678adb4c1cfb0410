//go:build integration

package mounts_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/internal/mounts"
)

// group is an environment variable with the cgroup of the process that reads.
const group = "HOSTLER_TEST_CGROUP"

// memory is the limit of the cgroup, and less than the line of the mount with the long path.
const memory = 64 << 20

// TestALineAboveTheMemoryLimitEndsNobody has a mount in 70,000 nested folders. The process that reads the mounts must survive
// that, and know those from before.
func TestALineAboveTheMemoryLimitEndsNobody(t *testing.T) {
	if folder := os.Getenv(group); folder != "" {
		reads(t, folder)
		return
	}
	folder, limit := filepath.Join("/sys/fs/cgroup/memory", fmt.Sprint("hostler-mounts-", os.Getpid())), "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Dir(folder)); err != nil {
		folder, limit = strings.Replace(folder, "/memory/", "/", 1), "memory.max"
	}
	check(t, os.Mkdir(folder, 0o755))
	defer func() { check(t, os.Remove(folder)) }()
	check(t, os.WriteFile(filepath.Join(folder, limit), []byte(strconv.Itoa(memory)), 0o644))

	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), group+"="+folder)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS} // the runtime of Go makes all mounts private
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("the process that reads: %v\n%s", err, out)
	}
}

// reads makes the mounts, and reads them from a cgroup.
func reads(t *testing.T, folder string) {
	tmp := t.TempDir()
	check(t, unix.Mount("tmpfs", tmp, "tmpfs", 0, ""))
	defer func() { check(t, unix.Unmount(tmp, unix.MNT_DETACH)) }()
	name := strings.Repeat(" ", 255) // the kernel writes a space as \040
	t.Chdir(tmp)
	for range 70_000 {
		check(t, os.Mkdir(name, 0o755))
		check(t, unix.Chdir(name)) // not os.Chdir, which asks for the path
	}
	check(t, unix.Mount("tmpfs", ".", "tmpfs", 0, ""))

	check(t, os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644))
	list, err := mounts.Read("/proc/self/mountinfo", nil)
	check(t, err)
	if !slices.ContainsFunc(list, func(m *mounts.Info) bool { return m.Mountpoint == tmp }) {
		t.Errorf("%d mounts, want %s among them", len(list), tmp)
	}
	check(t, os.WriteFile(filepath.Join(filepath.Dir(folder), "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
