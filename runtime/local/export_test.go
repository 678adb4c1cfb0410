package local

// For tests.
var (
	Listener = listener
	Holds    = holds
	DetectIn = (&Detector{}).detect
)
