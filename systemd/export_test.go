package systemd

// WriteHint is the fix if the drop-in below root cannot be written because of err.
func WriteHint(root string, err error) string { return (&longestDelay{root: root}).writeHint(err) }
