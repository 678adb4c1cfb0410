package loop

// Signal wakes a loop when something has changed. It may have any number of senders. Several
// signals that were not received yet count as one.
type Signal chan struct{}

// NewSignal returns a Signal without a pending signal.
func NewSignal() Signal { return make(Signal, 1) }

// Send sends the signal. It does not block.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default: // a signal is already pending
	}
}
