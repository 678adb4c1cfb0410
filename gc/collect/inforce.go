package collect

import "sync"

// inForce has the effective policy of a collector. It is safe for concurrent use.
type inForce[P any] struct {
	mu     sync.Mutex // guards policy
	policy P
}

// Policy returns the effective policy.
func (f *inForce[P]) Policy() P {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.policy
}

// SetPolicy sets the policy for the next runs. The policy must be valid.
func (f *inForce[P]) SetPolicy(p P) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.policy = p
}
