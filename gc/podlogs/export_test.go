package podlogs

// Apart reports whether an entry is not on its folder's own filesystem.
var Apart = apart
