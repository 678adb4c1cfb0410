package controlplanetest

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/faulttest"
)

// Method names a method of controlplane.Client.
type Method string

// The methods that a Fault can befall.
const (
	Any          Method = ""
	Register     Method = "Register"
	Node         Method = "Node"
	UpdateStatus Method = "UpdateStatus"
	Lease        Method = "Lease"
	RenewLease   Method = "RenewLease"
	PublishEvent Method = "PublishEvent"
	Leave        Method = "Leave"

	WatchNode        Method = "WatchNode"
	UpdateConditions Method = "UpdateConditions"
	NodesOf          Method = "NodesOf"
	Fleet            Method = "Fleet"
	WatchPace        Method = "WatchPace"
)

// Fault is what goes wrong with a call. Its parts add up.
type Fault struct {
	Delay      time.Duration // passes before the call is served
	Hang       bool          // nothing comes back until the context ends
	Err        error         // comes back instead of being served
	LoseAnswer bool          // it is served, and ErrUnavailable comes back
	Stale      bool          // what comes back is the object before its last change
	Conflict   bool          // a RenewLease is refused although nothing has changed
	LeaseStays bool          // a Leave deletes the Node alone
	Times      int           // how many calls it befalls; 0 means all until Heal
}

// Inject makes a fault befall calls of that method from now on, in place of an
// earlier one; Any means those without one of their own. A watch under way ends
// with Err, or falls silent for good with Hang.
func (f *Fake) Inject(m Method, fault Fault) {
	f.faults.Inject(m, fault, fault.Times)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wakeWatchers()
}

// Heal ends all faults. Calls that hang go on hanging, as on a dead connection.
func (f *Fake) Heal() { f.faults.Heal() }

// Forget has it take the conditions that it was told so far for somebody else's, but for
// those in hostler's domain, as a client does that starts anew.
func (f *Fake) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.own)
}

// Calls counts the calls of that method so far, or of all for Any, whatever
// became of them.
func (f *Fake) Calls(m Method) int { return f.faults.Calls(m) }

// call counts a call, checks the name and suffers the fault. It returns what of
// the fault is left for the caller to do.
func (f *Fake) call(ctx context.Context, m Method, name string) (Fault, error) {
	fault, err := f.faults.Begin(m), context.Cause(ctx)
	if faults := validation.IsDNS1123Subdomain(name); err == nil && len(faults) > 0 {
		err = fmt.Errorf("%w: %s", controlplane.ErrInvalid, faults[0])
	}
	if err == nil {
		err = faulttest.Suffer(ctx, fault.Delay, fault.Hang, fault.Err)
	}
	if err != nil {
		return fault, fmt.Errorf("%s %q: %w", m, name, err)
	}
	return fault, nil
}

// answer is what the caller gets of a stored object.
func answer[T interface{ DeepCopy() T }](fault Fault, h *history[T]) (T, error) {
	var none T
	switch {
	case fault.LoseAnswer:
		return none, fmt.Errorf("answer lost: %w", controlplane.ErrUnavailable)
	case fault.Stale:
		return h.before.DeepCopy(), nil
	}
	return h.latest.DeepCopy(), nil
}
