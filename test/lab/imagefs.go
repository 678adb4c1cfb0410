package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// mountImageFS mounts the file system of the options at a target.
func (l *Lab) mountImageFS(ctx context.Context, target string, o ContainerdOptions) error {
	if o.ImageFSTmpfs {
		return mountTmpfs(target, o.ImageFSBytes, o.ImageFSInodes)
	}
	var mkfs Tool
	var args []string
	data := ""
	switch o.ImageFSKind {
	case "", "ext4":
		if o.ImageFSInodes == 0 {
			return mountExt4(ctx, l.Tools.Mkfs, target, o.ImageFSBytes)
		}
		return mountExt4(ctx, l.Tools.Mkfs, target, o.ImageFSBytes, "-N", strconv.FormatInt(o.ImageFSInodes, 10))
	case "xfs":
		mkfs, args, data = l.Tools.MkfsXFS, []string{"-q", "-K"}, "nouuid"
	case "btrfs":
		mkfs, args = l.Tools.MkfsBtrfs, []string{"-q", "-K", "-m", "single"}
	default:
		return fmt.Errorf("unknown file system %q", o.ImageFSKind)
	}
	if mkfs.Path == "" {
		return fmt.Errorf("no mkfs.%s: fetch the kit %q", o.ImageFSKind, KitFilesystems)
	}
	return mountFresh(ctx, mkfs, args, o.ImageFSKind, data, target, o.ImageFSBytes)
}

// mountTmpfs mounts a tmpfs of a size at a target. inodes limits the number of inodes, unless it is
// 0.
func mountTmpfs(target string, sizeBytes, inodes int64) error {
	data := fmt.Sprintf("mode=700,size=%d", sizeBytes)
	if inodes > 0 {
		data += fmt.Sprintf(",nr_inodes=%d", inodes)
	}
	return mount("tmpfs", target, "tmpfs", 0, data)
}

// MountExt4 mounts a new ext4 of a size, in bytes, at a folder of the lab. Its file is sparse, and
// is removed with the mount or with the lab.
func (l *Lab) MountExt4(ctx context.Context, target string, sizeBytes int64) error {
	return mountExt4(ctx, l.Tools.Mkfs, target, sizeBytes)
}

// MountImage mounts the ext4 in a file, read-only, at a folder of the lab.
func MountImage(image, target string) error {
	file, err := os.Open(image)
	if err != nil {
		return err
	}
	defer file.Close()
	loop, err := attachLoop(file, unix.LO_FLAGS_READ_ONLY)
	if err != nil {
		return err
	}
	defer loop.Close()
	return mount(loop.Name(), target, "ext4", unix.MS_RDONLY, "noload")
}

// Unmount unmounts everything at and below a folder, the last mounted first.
func Unmount(dir string) error { return unmountBelow(dir) }

// mountExt4 creates an ext4 file system in a file and mounts it at a target.
func mountExt4(ctx context.Context, mkfs Tool, target string, sizeBytes int64, more ...string) error {
	return mountFresh(ctx, mkfs, append([]string{"-q", "-F", "-m", "0", "-E", "nodiscard"}, more...), "ext4", "", target, sizeBytes)
}

// mountFresh creates a file system in a file and mounts it at a target. It removes the file's name,
// and the loop device is freed with the last mount. So nothing is left, however the lab ends.
func mountFresh(ctx context.Context, mkfs Tool, args []string, kind, data, target string, sizeBytes int64) error {
	// /tmp may be in memory.
	file, err := os.CreateTemp("/var/tmp", "hostler-lab-*."+kind)
	if err != nil {
		return err
	}
	defer file.Close()
	defer os.Remove(file.Name())
	if err := file.Truncate(sizeBytes); err != nil {
		return err
	}
	args = slices.Concat(mkfs.Environ(), []string{mkfs.Path}, args, []string{file.Name()})
	if _, err := run(ctx, "/", "env", args...); err != nil {
		return fmt.Errorf("make %s: %w", kind, err)
	}
	loop, err := attachLoop(file, 0)
	if err != nil {
		return err
	}
	// The mount keeps the device from here on.
	defer loop.Close()
	return mount(loop.Name(), target, kind, 0, data)
}

func attachLoop(backing *os.File, flags uint32) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("attach loop device: %w: use a tmpfs as image file system", err)
	}
	defer control.Close()
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find free loop device: %w", err)
		}
		loop, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("attach loop device: %w", err)
		}
		config := unix.LoopConfig{Fd: uint32(backing.Fd())}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR | flags
		copy(config.Info.File_name[:], "hostler-lab")
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		if err == nil {
			return loop, nil
		}
		_ = loop.Close()
		// Another process got the same free device first.
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("attach %s: %w", loop.Name(), err)
		}
	}
}

// carriesOverlay reports whether overlayfs works on a folder's filesystem.
func carriesOverlay(dir string) bool {
	probe, err := os.MkdirTemp(dir, "overlay-probe-")
	if err != nil {
		return false
	}
	defer os.RemoveAll(probe)
	path := func(name string) string { return filepath.Join(probe, name) }
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(path(name), 0o755); err != nil {
			return false
		}
	}
	err = unix.Mount("overlay", path("merged"), "overlay", 0,
		fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", path("lower"), path("upper"), path("work")))
	if err != nil {
		return false
	}
	return unix.Unmount(path("merged"), unix.MNT_DETACH) == nil
}

// unmountBelow unmounts everything at and below a folder, the last mounted first.
func unmountBelow(dir string) error {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.Mountpoint != dir && !strings.HasPrefix(m.Mountpoint, dir+"/"), false
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range slices.Backward(mounts) {
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m.Mountpoint, err))
		}
	}
	return errors.Join(errs...)
}
