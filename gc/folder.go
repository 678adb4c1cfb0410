package gc

import (
	"fmt"
	"time"
)

// Folder is the size of a directory on its own filesystem, without listed subdirectories.
type Folder struct {
	Filesystem string `json:"filesystem"`
	Path       string `json:"path"`
	SizeBytes  uint64 `json:"sizeBytes"` // as in du(1)
	Inodes     uint64 `json:"inodes"`
	// Of is the owner of the folder, such as "log of pod shop/web"; empty if unknown.
	Of string `json:"of,omitempty"`
	// AtLeast reports that not all could be read in time, so the figures are too low.
	AtLeast    bool      `json:"atLeast,omitempty"`
	MeasuredAt time.Time `json:"measuredAt,omitzero"`
}

// Size formats bytes, in powers of 1024.
func Size(bytes uint64) string {
	f, unit := float64(bytes), 0
	units := [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	for f >= 1023.95 && unit < len(units)-1 {
		f /= 1024
		unit++
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", f, units[unit])
}
