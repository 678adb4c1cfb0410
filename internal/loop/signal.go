package loop

// Signal wakes a loop because something has changed. There may be any number of senders. Several
// signals that were not received yet count as one.
type Signal chan struct{}

// NewSignal returns a signal that was not sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send sends the signal. It does not block.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default: // one is there already
	}
}
