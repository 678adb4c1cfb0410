package collect

import "sync"

// effectivePolicy has the effective policy of a collector. It is safe for concurrent use.
type effectivePolicy[P any] struct {
	mu     sync.Mutex // guards policy
	policy P
}

// Policy returns the effective policy.
func (f *effectivePolicy[P]) Policy() P {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.policy
}

// SetPolicy sets the policy for the next runs. The policy must be valid.
func (f *effectivePolicy[P]) SetPolicy(p P) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.policy = p
}
