package collect

import "sync"

// inForce holds the policy that a collector uses. Safe for concurrent use.
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

// SetPolicy changes the policy from the next run on. The policy is a valid one.
func (f *inForce[P]) SetPolicy(p P) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.policy = p
}
