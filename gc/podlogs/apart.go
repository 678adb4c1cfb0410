package podlogs

import (
	"golang.org/x/sys/unix"

	"hostler.io/hostler/internal/tree"
)

// apart reports whether an entry of a folder is on another mount than the folder. The kernel
// returns the mount of each since Linux 5.8. On older kernels only folders are compared, by device:
// a file on an overlay may have the device of its layer (Documentation/filesystems/overlayfs.rst).
// The devices of folders are always compared, because a btrfs subvolume has its own device, but no
// mount.
func apart(folder, entry unix.Statx_t) bool {
	named := folder.Mask&entry.Mask&unix.STATX_MNT_ID != 0
	if named && folder.Mnt_id != entry.Mnt_id {
		return true
	}
	if named && entry.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false
	}
	return tree.Device(folder) != tree.Device(entry)
}
