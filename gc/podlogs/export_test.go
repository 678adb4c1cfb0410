package podlogs

// Apart tells whether an entry is not on its folder's own filesystem.
var Apart = apart
