package etcd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"hostler.io/hostler/test/lab"
)

// diskBytes is the size of the filesystem of a member. Unwritten blocks take no space: etcd
// preallocates its log in files of 64 MB.
const diskBytes = 512 << 20

// mountDisk mounts a filesystem for a member.
func (c *Cluster) mountDisk(ctx context.Context, m *Member) error {
	l, err := lab.Current()
	if err != nil {
		return err
	}
	if l.Tools.Mkfs.Path == "" {
		return fmt.Errorf("no mkfs.ext4: fetch the kit %q", lab.KitExt4)
	}
	disk := c.file(m.Name + ".disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		return err
	}
	if err := l.MountExt4(ctx, disk, diskBytes); err != nil {
		return err
	}
	m.disk, m.dir = disk, filepath.Join(disk, "data")
	return nil
}

// Freeze blocks all writes of the member until Thaw or Close, like a disk that hangs. It needs
// Options.Disks.
func (m *Member) Freeze() error { return lab.Freeze(m.disk) }

// Thaw ends a Freeze. It succeeds if there is none.
func (m *Member) Thaw() error {
	if m.disk == "" {
		return nil
	}
	return lab.Thaw(m.disk)
}
