package lab

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// What freezes and thaws a filesystem, of linux/fs.h: _IOWR('X', 119, int) and the next.
const (
	fiFreeze = 0xC0045877
	fiThaw   = 0xC0045878
)

// Freeze makes all writes to the filesystem that is mounted at a folder of the lab wait, as on a
// stalled disk; reads work. Waiting processes cannot even be killed, so Thaw must be called, and
// before the filesystem is unmounted: afterwards it is impossible. A lab whose program ends thaws
// what is frozen. See FIFREEZE in linux/fs.h, and fsfreeze(8).
func Freeze(mountpoint string) error {
	if err := onFilesystem(mountpoint, fiFreeze); err != nil {
		return fmt.Errorf("freeze %s: %w", mountpoint, err)
	}
	return nil
}

// Thaw ends a Freeze; it succeeds where there was none.
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

// thawAll thaws what is mounted in the lab: processes that wait for it would outlive the
// lab otherwise.
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
