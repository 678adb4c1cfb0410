package certificate

import (
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Current is the certificate in use, which clients present and may doubt, and a Keeper replaces.
// It is safe for concurrent use.
type Current struct {
	doubts chan struct{} // holds one token when the server may not accept the certificate

	mu          sync.Mutex       // guards all below
	certificate *tls.Certificate // nil before the first
	renewAt     time.Time        // of the certificate
	state       error            // of the last attempt; nil if nothing is to be done
}

// NewCurrent is for clients of a node of which no certificate is known yet.
func NewCurrent() *Current { return &Current{doubts: make(chan struct{}, 1)} }

// Certificate returns the certificate in use, or why there is none. It does not
// wait.
func (c *Current) Certificate() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.certificate != nil:
		return c.certificate, nil
	case c.state != nil:
		return nil, fmt.Errorf("this node has no certificate yet: %w", c.state)
	default:
		return nil, errors.New("this node has no certificate yet")
	}
}

// Status returns when the certificate in use ends, zero if there is none, and
// what keeps the next one from coming, nil if none is due.
func (c *Current) Status() (ends time.Time, waiting error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.certificate != nil {
		ends = c.certificate.Leaf.NotAfter
	}
	return ends, c.state
}

// Doubt reports that the server seems not to accept the certificate in use, though it
// is good by its dates. The Keeper asks the server, and if that is so gets another one
// as a node does that has none. It does not wait.
func (c *Current) Doubt() {
	select {
	case c.doubts <- struct{}{}:
	default: // it is known
	}
}

// due is how long the next attempt may wait.
func (c *Current) due() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.certificate == nil {
		return 0
	}
	return time.Until(c.renewAt)
}
