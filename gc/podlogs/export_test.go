package podlogs

// Apart reports whether an entry is on another mount than its folder.
var Apart = apart

// Bound sets the maximum number of folders or links, and of files in a folder.
func (h *Host) Bound(found, files int) { h.found, h.files = found, files }
