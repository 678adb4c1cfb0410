package statefile

// Timings and limits that tests check.
const (
	SaveDelay  = saveDelay
	LazyDelay  = lazyDelay
	RetryDelay = retryDelay
	KeptAside  = keptAside
	MaxBytes   = maxBytes
)

// WriteFile writes the values now, also if another write is pending.
func (v *Values) WriteFile() error {
	v.file.folder.disk.Lock()
	defer v.file.folder.disk.Unlock()
	return v.file.write()
}
