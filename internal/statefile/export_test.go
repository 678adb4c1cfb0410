package statefile

// Timings and limits that tests hold the package to.
const (
	SaveDelay  = saveDelay
	LazyDelay  = lazyDelay
	RetryDelay = retryDelay
	KeptAside  = keptAside
	MaxBytes   = maxBytes
)
