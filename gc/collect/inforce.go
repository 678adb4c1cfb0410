package collect

import "sync"

// inForce holds the policy that a collector goes by, and checks the next one.
// Safe for concurrent use.
type inForce[P interface{ Validate() error }] struct {
	mu     sync.Mutex // guards policy
	policy P
}

// Policy returns the policy in force.
func (f *inForce[P]) Policy() P {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.policy
}

// SetPolicy changes the policy from the next run on. A faulty one changes nothing.
func (f *inForce[P]) SetPolicy(p P) error {
	if err := p.Validate(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.policy = p
	return nil
}
