package debian

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// earlyModules returns the modules that the kernel needs for its disk and the test. Built-in ones
// are skipped.
func earlyModules() []string {
	return []string{"virtio_pci", "virtio_blk", "virtio_console", "ext4"}
}

// initScript is the init of the initramfs. It mounts the disk and starts systemd. At the first
// boot, it also unpacks the machine's own files from the second disk.
const initScript = `#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
for m in $($b cat /modules); do $b insmod /m/$m; done
n=0
while [ ! -b /dev/vda ] && [ $n -lt 600 ]; do $b usleep 100000; n=$((n + 1)); done
$b mount -t ext4 /dev/vda /new || exec $b sh
if [ -b /dev/vdb ] && [ ! -e /new/.own-files ]; then
	$b tar -x -f /dev/vdb -C /new && $b touch /new/.own-files && $b sync
fi
$b mount --move /dev /new/dev
$b umount /proc
$b umount /sys
exec $b switch_root /new /sbin/init "$@"
`

// makeInitrd builds the initramfs of a root.
func makeInitrd(ctx context.Context, tree string) ([]byte, error) {
	busybox, err := os.ReadFile(filepath.Join(tree, "usr/bin/busybox"))
	if err != nil {
		return nil, err
	}
	modules, err := moduleFiles(tree)
	if err != nil {
		return nil, err
	}
	a := &archive{}
	for _, dir := range []string{"bin", "dev", "proc", "sys", "new", "m"} {
		a.add(dir, 0o040755, nil)
	}
	a.add("init", 0o100755, []byte(initScript))
	a.add("bin/busybox", 0o100755, busybox)
	var names []string
	for _, file := range modules {
		data, err := readModule(ctx, tree, file)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(filepath.Base(file), ".xz")
		names = append(names, name)
		a.add("m/"+name, 0o100644, data)
	}
	a.add("modules", 0o100644, []byte(strings.Join(names, "\n")+"\n"))
	a.add("TRAILER!!!", 0, nil)
	var packed bytes.Buffer
	zip, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	_, err = zip.Write(a.Bytes())
	if err := errors.Join(err, zip.Close()); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// moduleFiles returns the early modules with their dependencies, in the order of loading, as paths
// in the root.
func moduleFiles(tree string) ([]string, error) {
	dirs, err := filepath.Glob(filepath.Join(tree, "usr/lib/modules/*"))
	if err != nil || len(dirs) != 1 {
		return nil, fmt.Errorf("found kernels %v: want one: %w", dirs, err)
	}
	base, err := filepath.Rel(tree, dirs[0])
	if err != nil {
		return nil, err
	}
	// The kernel's package has only a part of depmod's list.
	if err := exec.Command("chroot", tree, "depmod", filepath.Base(dirs[0])).Run(); err != nil {
		return nil, fmt.Errorf("depmod: %w", err)
	}
	dep, err := os.ReadFile(filepath.Join(dirs[0], "modules.dep"))
	if err != nil {
		return nil, err
	}
	needs := map[string][]string{} // by name; each list ends with the module itself
	for line := range strings.Lines(string(dep)) {
		file, list, _ := strings.Cut(strings.TrimSpace(line), ":")
		chain := strings.Fields(list)
		slices.Reverse(chain)
		name, _, _ := strings.Cut(filepath.Base(file), ".")
		needs[name] = append(chain, file)
	}
	var files []string
	for _, name := range earlyModules() {
		for _, file := range needs[name] {
			if path := filepath.Join(base, file); !slices.Contains(files, path) {
				files = append(files, path)
			}
		}
	}
	return files, nil
}

// readModule reads a module. Debian compresses it from 13 on, which busybox cannot unpack.
func readModule(ctx context.Context, tree, file string) ([]byte, error) {
	if !strings.HasSuffix(file, ".xz") {
		return os.ReadFile(filepath.Join(tree, file))
	}
	data, err := exec.CommandContext(ctx, "chroot", tree, "xz", "-dc", "/"+file).Output()
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", file, err)
	}
	return data, nil
}

// archive is a cpio archive in the format "newc", which kernels unpack.
type archive struct {
	bytes.Buffer
	inode int
}

func (a *archive) add(name string, mode int, data []byte) {
	a.inode++
	// ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor,
	// rdevmajor, rdevminor, namesize, check
	fmt.Fprintf(a, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", a.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.WriteString(name + "\x00")
	a.pad()
	a.Write(data)
	a.pad()
}

func (a *archive) pad() {
	for a.Len()%4 != 0 {
		a.WriteByte(0)
	}
}
