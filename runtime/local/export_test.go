package local

// For tests.
var (
	Listener = listener
	Holds    = holds
	DetectIn = detect
)
