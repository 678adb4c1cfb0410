package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"hostler.io/hostler/runtime"
)

// Filesystems resolves the folders that a runtime of that name keeps images in to the
// mounts that really hold them, or will hold them while they do not exist, each once.
// procRoot is the proc filesystem whose self/mountinfo names the mounts, and 1/mountinfo, if
// it can be read, as the host knows them: a unit's own mounts nobody else sees.
func Filesystems(procRoot, runtimeName string, folders []string) ([]runtime.Filesystem, error) {
	mounts, err := readMounts(filepath.Join(procRoot, "self", "mountinfo"))
	if err != nil {
		return nil, err
	}
	host, err := readMounts(filepath.Join(procRoot, "1", "mountinfo"))
	if err != nil {
		host = nil // without the right to, their own names have to do
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

func readMounts(path string) ([]*mountinfo.Info, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	defer f.Close()
	mounts, err := mountinfo.GetMountsFromReader(f, nil)
	if err != nil {
		return nil, fmt.Errorf("read mounts from %s: %w", path, err)
	}
	return mounts, nil
}

// mountOf walks down from the root mount as the kernel does when it resolves a
// path: at each step into the mount that is met first. A longest-prefix match
// would find mounts that a later one hides.
func mountOf(mounts []*mountinfo.Info, path string) *mountinfo.Info {
	var at *mountinfo.Info
	for _, m := range mounts {
		// The parent of the root is not in the list, or is the root itself.
		isRoot := m.Parent == m.ID || !slices.ContainsFunc(mounts, func(p *mountinfo.Info) bool { return p.ID == m.Parent })
		if isRoot && isBelow(path, m.Mountpoint) && (at == nil || len(m.Mountpoint) < len(at.Mountpoint)) {
			at = m
		}
	}
	for at != nil {
		var next *mountinfo.Info
		for _, m := range mounts {
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

// maxLinks is how many dangling links realPath follows, as many as the kernel
// follows of any (path_resolution(7)).
const maxLinks = 40

// realPath resolves symbolic links, of missing folders too: what exists of the
// path is resolved, and the rest appended.
func realPath(path string) (string, error) {
	rest := ""
	for range maxLinks * 10 { // more rounds than a path has components and links
		resolved, err := filepath.EvalSymlinks(path)
		if err == nil {
			return filepath.Join(resolved, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("resolve folder %s: %w", path, err)
		}
		// A link that leads nowhere yet still says where the folder will be.
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
