package local

// For tests.
var (
	AskListening = askListening
	Listeners    = listeners
	Holds        = holds
	DetectIn     = (&Detector{}).detect
)

// Answered is closed once the pending request has been answered.
func (l *Detector) Answered(path string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open[path].answered
}
