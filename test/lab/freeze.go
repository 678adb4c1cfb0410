package lab

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// The ioctls that freeze and thaw a filesystem, from linux/fs.h: _IOWR('X', 119, int) and 120.
const (
	fiFreeze = 0xC0045877
	fiThaw   = 0xC0045878
)

// Freeze blocks all writes to the filesystem at a mount point of the lab, like a disk that hangs;
// reads work. Blocked processes cannot even be killed. So Thaw must be called, and before the
// filesystem is unmounted: afterwards it is impossible. The lab thaws its filesystems when its
// program ends. See FIFREEZE in linux/fs.h, and fsfreeze(8).
func Freeze(mountpoint string) error {
	if err := onFilesystem(mountpoint, fiFreeze); err != nil {
		return fmt.Errorf("freeze %s: %w", mountpoint, err)
	}
	return nil
}

// Thaw ends a Freeze. It succeeds if there is none.
func Thaw(mountpoint string) error {
	if err := onFilesystem(mountpoint, fiThaw); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("thaw %s: %w", mountpoint, err)
	}
	return nil
}

func onFilesystem(mountpoint string, request uint) error {
	folder, err := os.Open(mountpoint)
	if err != nil {
		return err
	}
	defer folder.Close()
	return unix.IoctlSetInt(int(folder.Fd()), request, 0)
}

// thawAll thaws the filesystems of the lab. Processes that a frozen filesystem blocks would outlive
// the lab.
func thawAll() error {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.FSType != "ext4" || !strings.HasPrefix(m.Mountpoint, Dir+"/"), false
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range mounts {
		errs = append(errs, Thaw(m.Mountpoint))
	}
	return errors.Join(errs...)
}
