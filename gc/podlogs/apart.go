package podlogs

import (
	"golang.org/x/sys/unix"

	"hostler.io/hostler/internal/tree"
)

// apart reports whether an entry of a folder is not on the folder's own filesystem.
// The kernel names the mount that each is in, from 5.8 on. The device says less: a
// file on an overlay may report that of the layer which it lies in, while folders tell
// the overlay's (Documentation/filesystems/overlayfs.rst). For folders it counts
// besides, as that of a btrfs subvolume differs; for files only where the kernel
// names no mounts.
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
