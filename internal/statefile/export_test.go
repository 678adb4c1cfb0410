package statefile

// Timings and limits that tests check.
const (
	SaveDelay  = saveDelay
	LazyDelay  = lazyDelay
	RetryDelay = retryDelay
	KeptAside  = keptAside
	MaxBytes   = maxBytes
)
