package gc

// Folder is what a folder holds with all below it, on its own filesystem.
type Folder struct {
	Filesystem string `json:"filesystem"`
	Path       string `json:"path"`
	SizeBytes  uint64 `json:"sizeBytes"` // as du(1) counts it
	Inodes     uint64 `json:"inodes"`
}
