package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// The name of a lab's cgroup consists of cgroupPrefix, the PID of the process outside, and
// cgroupSuffix. It is the name of a systemd slice, so that hostler treats a cgroup in it that is
// named like a service as a service.
const (
	cgroupPrefix = "hostler-lab-"
	cgroupSuffix = ".slice"
)

// cgroupRoots returns where the cgroup hierarchies are mounted: one on v2, one for each controller
// on v1, and all of them on a hybrid machine.
func cgroupRoots() ([]string, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, fmt.Errorf("list cgroup mounts: %w", err)
	}
	var roots []string
	for _, m := range mounts {
		if !slices.Contains(roots, m.Mountpoint) {
			roots = append(roots, m.Mountpoint)
		}
	}
	return roots, nil
}

// UnifyCgroups keeps only version 2 of the cgroup hierarchies in the lab, as most hosts have it. It
// reports whether there were others. The lab's cgroups must be empty.
func UnifyCgroups() (changed bool, err error) {
	const root = "/sys/fs/cgroup"
	var stat unix.Statfs_t
	if err := unix.Statfs(root, &stat); err != nil || stat.Type == unix.CGROUP2_SUPER_MAGIC {
		return false, err
	}
	if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
		return false, fmt.Errorf("unmount %s: %w", root, err)
	}
	return true, mount("cgroup2", root, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// IntoService moves a process into the cgroup of a service, as systemd does. The cgroup is removed
// with the lab.
func (l *Lab) IntoService(pid int, service string) error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	for _, root := range roots {
		var stat unix.Statfs_t
		if err := unix.Statfs(root, &stat); err != nil {
			return err
		}
		if stat.Type != unix.CGROUP2_SUPER_MAGIC && filepath.Base(root) != "systemd" {
			continue // a controller of version 1 in which systemd has no services
		}
		folder := filepath.Join(root, l.Cgroup, service)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return fmt.Errorf("move process %d into %s: %w", pid, service, err)
		}
	}
	return nil
}

// removeCgroup removes the cgroup and all below it from every hierarchy. Dead processes leave their
// cgroup a little after they are reaped, so it retries for patience.
func removeCgroup(cgroup string, patience time.Duration) error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(patience)
	for _, root := range roots {
		for {
			err := removeTree(filepath.Join(root, cgroup))
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("remove cgroup: %w", err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

// removeTree removes the folders of a cgroup, the deepest first. Its files cannot be removed and
// disappear with the folders.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sweepCgroups removes the cgroups of labs whose outer process was killed before it could clean up.
// A cgroup that is in use cannot be removed, and stays.
func sweepCgroups() {
	roots, err := cgroupRoots()
	if err != nil {
		return
	}
	for _, root := range roots {
		dirs, _ := filepath.Glob(filepath.Join(root, cgroupPrefix+"*"))
		for _, dir := range dirs {
			pid, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), cgroupPrefix), cgroupSuffix))
			if err != nil {
				continue
			}
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); errors.Is(err, fs.ErrNotExist) {
				_ = removeTree(dir)
			}
		}
	}
}

// controllers records which controllers the root of each cgroup v2 hierarchy enables for its
// children. runc enables more of them for its containers.
type controllers map[string][]string

func snapshotControllers() (controllers, error) {
	roots, err := cgroupRoots()
	if err != nil {
		return nil, err
	}
	c := controllers{}
	for _, root := range roots {
		file := filepath.Join(root, "cgroup.subtree_control")
		if data, err := os.ReadFile(file); err == nil {
			c[file] = strings.Fields(string(data))
		}
	}
	return c, nil
}

// restore disables controllers that were disabled before. A controller that other cgroups use now
// stays enabled.
func (c controllers) restore() {
	for file, before := range c {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, name := range strings.Fields(string(data)) {
			if !slices.Contains(before, name) {
				_ = os.WriteFile(file, []byte("-"+name), 0o644)
			}
		}
	}
}
