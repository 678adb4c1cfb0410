package controlplanetest

import (
	"fmt"
	"time"

	"hostler.io/hostler/controlplane/conformance"
)

// Hinder makes a fault befall all calls until restore is called; it is the Hinder of a
// conformance.Backend.
func (f *Fake) Hinder(fault conformance.Fault) (restore func(), err error) {
	befalls, can := map[conformance.Fault]Fault{
		conformance.Slow:   {Delay: 250 * time.Millisecond},
		conformance.Silent: {Hang: true},
		conformance.Lost:   {LoseAnswer: true},
	}[fault]
	if !can {
		return nil, &conformance.AbsentError{Why: fmt.Sprintf("there is no server that could be %s", fault)}
	}
	f.Inject(Any, befalls)
	return f.Heal, nil
}
