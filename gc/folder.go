package gc

import "fmt"

// Folder is what a folder holds with all below it, on its own filesystem.
type Folder struct {
	Filesystem string `json:"filesystem"`
	Path       string `json:"path"`
	SizeBytes  uint64 `json:"sizeBytes"` // as du(1) counts it
	Inodes     uint64 `json:"inodes"`
}

// Size writes bytes for a person, in powers of 1024.
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
