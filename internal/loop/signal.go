package loop

// Signal tells a loop that something has changed. Any number of senders need not know who
// receives, and several signals that were not received yet are one.
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
