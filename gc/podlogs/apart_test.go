package podlogs_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/gc/podlogs"
)

func TestApart(t *testing.T) {
	const file, folder, link = unix.S_IFREG, unix.S_IFDIR, unix.S_IFLNK
	on := func(kind uint16, mask uint32, mount uint64, device uint32) unix.Statx_t {
		return unix.Statx_t{Mask: unix.STATX_BASIC_STATS | mask, Mode: kind, Mnt_id: mount, Dev_minor: device}
	}
	const named = unix.STATX_MNT_ID
	tests := []struct {
		name          string
		folder, entry unix.Statx_t
		want          bool
	}{
		{"a file of the same mount and device", on(folder, named, 7, 1), on(file, named, 7, 1), false},
		{"a file on an overlay has the device of its layer", on(folder, named, 7, 1), on(file, named, 7, 2), false},
		{"so does a link", on(folder, named, 7, 1), on(link, named, 7, 2), false},
		{"a file that is bound from the same device", on(folder, named, 7, 1), on(file, named, 8, 1), true},
		{"a folder that is bound from the same device", on(folder, named, 7, 1), on(folder, named, 8, 1), true},
		{"a subvolume", on(folder, named, 7, 1), on(folder, named, 7, 2), true},
		{"a file of the same device where the kernel names no mounts", on(folder, 0, 0, 1), on(file, 0, 0, 1), false},
		{"a file of another device where the kernel names no mounts", on(folder, 0, 0, 1), on(file, 0, 0, 2), true},
		{"a file of another device where the kernel names one mount alone", on(folder, named, 7, 1), on(file, 0, 0, 2), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := podlogs.Apart(tt.folder, tt.entry); got != tt.want {
				t.Errorf("Apart() = %v, want %v", got, tt.want)
			}
		})
	}
}
