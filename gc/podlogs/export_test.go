package podlogs

// Apart reports whether an entry is not on its folder's own filesystem.
var Apart = apart

// Bound sets how many folders, or links, are found at once, and how many files one may hold.
func (h *Host) Bound(found, files int) { h.found, h.files = found, files }
