package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"hostler.io/hostler/internal/mounts"
	"hostler.io/hostler/runtime"
)

// Filesystems returns the mounts that contain a runtime's image folders, or will contain them once
// they exist, without duplicates. procRoot is a proc filesystem: self/mountinfo has the mounts.
// 1/mountinfo, if readable, has their names on the host, because the unit has its own mount
// namespace.
func Filesystems(procRoot, runtimeName string, folders []string) ([]runtime.Filesystem, error) {
	mounts, err := readMounts(filepath.Join(procRoot, "self", "mountinfo"))
	if err != nil {
		return nil, err
	}
	host, err := readMounts(filepath.Join(procRoot, "1", "mountinfo"))
	if err != nil {
		host = nil // without permission to read it, use our own names
	}
	var list []runtime.Filesystem
	for _, folder := range folders {
		if !filepath.IsAbs(folder) {
			return nil, fmt.Errorf("%w: folder %q is not an absolute path", runtime.ErrInvalidAnswer, folder)
		}
		path, err := realPath(folder)
		if err != nil {
			return nil, err
		}
		mount := mountOf(mounts, path)
		if mount == nil {
			return nil, fmt.Errorf("no mount contains %s; is hostler in another mount namespace than the runtime?", path)
		}
		if h := mountOf(host, path); h != nil && h.Major == mount.Major && h.Minor == mount.Minor {
			mount = h
		}
		fs := runtime.Filesystem{
			Runtime: runtimeName, Path: path, Mountpoint: mount.Mountpoint, Device: mount.Source,
			ID: fmt.Sprintf("%d:%d", mount.Major, mount.Minor),
		}
		if !slices.Contains(list, fs) {
			list = append(list, fs)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: no mount listed", runtime.ErrInvalidAnswer)
	}
	return list, nil
}

func readMounts(path string) ([]*mounts.Info, error) {
	list, err := mounts.Read(path, nil)
	if err != nil {
		return nil, fmt.Errorf("read mounts from %s: %w", path, err)
	}
	return list, nil
}

// mountOf follows a path from the root mount as the kernel does: at each step into the mount that
// it meets first. The longest matching mount point could be hidden by a later mount.
func mountOf(all []*mounts.Info, path string) *mounts.Info {
	var at *mounts.Info
	for _, m := range all {
		// The parent of the root is not in the list, or is the root itself.
		isRoot := m.Parent == m.ID || !slices.ContainsFunc(all, func(p *mounts.Info) bool { return p.ID == m.Parent })
		if isRoot && isBelow(path, m.Mountpoint) && (at == nil || len(m.Mountpoint) < len(at.Mountpoint)) {
			at = m
		}
	}
	for at != nil {
		var next *mounts.Info
		for _, m := range all {
			if m.Parent == at.ID && m != at && isBelow(path, m.Mountpoint) &&
				(next == nil || len(m.Mountpoint) < len(next.Mountpoint)) {
				next = m
			}
		}
		if next == nil {
			break
		}
		at = next
	}
	return at
}

func isBelow(path, folder string) bool {
	return path == folder || folder == "/" || strings.HasPrefix(path, folder+"/")
}

// maxLinks bounds the dangling links that realPath follows, like the kernel's limit for links
// (path_resolution(7)).
const maxLinks = 40

// realPath resolves symbolic links, even if the path does not exist: it resolves the existing part
// and appends the rest.
func realPath(path string) (string, error) {
	rest := ""
	for range maxLinks * 10 { // more than any path has components and links
		resolved, err := filepath.EvalSymlinks(path)
		if err == nil {
			return filepath.Join(resolved, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("resolve folder %s: %w", path, err)
		}
		// The target of a dangling link is where the folder will be.
		if target, err := os.Readlink(path); err == nil {
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(path), target)
			}
			path = target
			continue
		}
		path, rest = filepath.Dir(path), filepath.Join(filepath.Base(path), rest)
	}
	return "", fmt.Errorf("resolve folder %s: too many levels of symbolic links", path)
}
