package certificate

import (
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Current is the certificate in use. Clients present it, and can report that the server rejects it;
// a Keeper replaces it. It is safe for concurrent use.
type Current struct {
	doubted chan struct{} // holds one token if the server may reject the certificate

	mu          sync.Mutex       // guards the fields below
	certificate *tls.Certificate // nil before the first
	renewAt     time.Time        // renewal time of the certificate
	state       error            // error of the last attempt; nil if no certificate is due
}

// NewCurrent returns a Current without a certificate.
func NewCurrent() *Current { return &Current{doubted: make(chan struct{}, 1)} }

// Certificate returns the certificate in use, or an error that says why there is none. It does not
// block.
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

// Status returns when the certificate in use ends, zero if there is none, and why the next one is
// missing, nil if none is due.
func (c *Current) Status() (ends time.Time, waiting error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.certificate != nil {
		ends = c.certificate.Leaf.NotAfter
	}
	return ends, c.state
}

// Doubt reports that the server seems to reject the certificate in use, although it has not
// expired. The Keeper then checks that with the server. If it is rejected, the Keeper requests a
// certificate as a node without one does. Doubt does not block.
func (c *Current) Doubt() {
	select {
	case c.doubted <- struct{}{}:
	default: // it has been reported already
	}
}

// due returns the time until the next attempt.
func (c *Current) due() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.certificate == nil {
		return 0
	}
	return time.Until(c.renewAt)
}
