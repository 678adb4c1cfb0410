package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// WithTree returns a lab whose container runtimes come from another Debian, unpacked in a folder.
// Nothing is written to that folder. The runtimes start one another by their own paths and load
// their own libraries, so they need their own root. It has the lab's processes, devices and
// cgroups, and the lab's files in /run and /var/lib at the same paths. Their mounts below these are
// only visible in their root. remove removes the root when nothing runs in it any more.
func (l *Lab) WithTree(tree string) (other *Lab, remove func() error, err error) {
	dir, err := os.MkdirTemp(Dir, "tree-")
	if err != nil {
		return nil, nil, err
	}
	changed := *l
	changed.root = filepath.Join(dir, "root")
	remove = func() error {
		// While a folder is still mounted, this would remove files of the lab.
		if err := errors.Join(unmountBelow(changed.root), os.Remove(changed.root)); err != nil {
			return fmt.Errorf("remove root of %s: %w", tree, err)
		}
		return os.RemoveAll(dir)
	}
	err = errors.Join(os.Mkdir(changed.root, 0o755), changed.setUpTree(tree, dir))
	if err == nil {
		err = changed.takePrograms(tree, filepath.Join(dir, "bin"))
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("make a root of %s: %w", tree, err), remove())
	}
	return &changed, remove, nil
}

// setUpTree creates the root. It is a mount point, because runc calls pivot_root(2).
func (l *Lab) setUpTree(tree, dir string) error {
	upper, work := filepath.Join(dir, "upper"), filepath.Join(dir, "work")
	if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
		return err
	}
	if err := mount("overlay", l.root, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", tree, upper, work)); err != nil {
		return err
	}
	for _, whole := range []string{"/dev", "/proc", "/sys"} {
		if err := l.bind(whole, unix.MS_REC); err != nil {
			return err
		}
	}
	// Without the mounts below, because this root is one of them.
	return errors.Join(l.bind("/run", 0), l.bind("/var/lib", 0))
}

// show makes a folder of the lab visible in the runtimes' root that was mounted or created after
// that root.
func (l *Lab) show(path string) error {
	if l.root == "" {
		return nil
	}
	return l.bind(path, 0)
}

func (l *Lab) bind(path string, flags uintptr) error {
	target := filepath.Join(l.root, path)
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(path, target, "", unix.MS_BIND|flags, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", path, target, err)
	}
	return nil
}

// unmountBelow unmounts everything at and below a folder, also in the runtimes' root.
func (l *Lab) unmountBelow(dir string) error {
	err := unmountBelow(dir)
	if l.root != "" {
		err = errors.Join(unmountBelow(filepath.Join(l.root, dir)), err)
	}
	return err
}

// inTree runs a program in the runtimes' root. The root itself is hidden inside.
const inTree = `#!/bin/sh
[ -d %[1]s/usr ] && exec chroot %[1]s %[2]s "$@"
exec %[2]s "$@"
`

// takePrograms replaces the programs of the kits by those of the tree. Scripts in a folder run
// them, inside and outside the root.
func (l *Lab) takePrograms(tree, bin string) error {
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	t := &l.Tools
	programs := map[string]*Tool{
		"containerd": &t.Containerd, "containerd-shim-runc-v2": &t.Shim, "ctr": &t.Ctr, "runc": &t.Runc, "crun": &t.Crun,
		"podman": &t.Podman, "conmon": &t.Conmon, "catatonit": &t.Pause,
	}
	for name, tool := range programs {
		paths := []string{"/usr/bin/" + name, "/usr/sbin/" + name}
		i := slices.IndexFunc(paths, func(path string) bool { _, err := os.Lstat(filepath.Join(tree, path)); return err == nil })
		if i < 0 {
			return fmt.Errorf("there is no %s", name)
		}
		*tool = Tool{Path: filepath.Join(bin, name)}
		if err := os.WriteFile(tool.Path, fmt.Appendf(nil, inTree, l.root, paths[i]), 0o755); err != nil {
			return err
		}
		if tool == &t.Pause { // Podman copies it into images
			tool.Path = paths[i]
		}
	}
	t.Seccomp = "/usr/share/containers/seccomp.json"
	return nil
}
