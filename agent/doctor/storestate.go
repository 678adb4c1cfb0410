package doctor

import (
	"errors"

	"hostler.io/hostler/controlplane"
)

// StoreState is what a store of objects has of this host's Node, and how the agent fares
// with it.
type StoreState struct {
	Node string // its name
	// Writing is why the agent's last write failed; nil without an agent, too.
	Writing      error
	NotWritten   string // why nothing is written although nothing failed; empty if it is
	Found        bool   // the Node is there
	Mine         bool   // the Node is hostler's to write
	LeaseExpired string // why the fleet takes this host for dead; empty if it does not
	Drift        []Fix
}

// writingFix is what to do about a control plane that answers and refuses to be written
// to; forbidden where it does for want of rights.
func (s *StoreState) writingFix(f Facts, forbidden string) string {
	_, taken := errors.AsType[*controlplane.IdentityError](s.Writing)
	switch {
	case taken:
		return "give one of the two hosts another node.name, or set node.takeover: true to take over the Node"
	case errors.Is(s.Writing, controlplane.ErrForbidden):
		return forbidden
	}
	return "hostler status; " + f.fixes().journal
}

// judge looks at what others see of the Node; overdue is the fix of a Lease that an
// agent does not get renewed.
func (s *StoreState) judge(f Facts, expired string) Check {
	var found faults
	if s.LeaseExpired != "" {
		if !f.Agent.Answers {
			expired = start(f)
		}
		found.add(fail(expired, "the lease has expired: %s", s.LeaseExpired))
	}
	for _, d := range s.Drift {
		found.add(warn(d.Command, "%s", d.Message))
	}
	switch {
	case s.NotWritten != "":
		return found.or(ok("this host does not write the Node: %s", s.NotWritten))
	case !s.Mine:
		return found.or(ok("the Node is not managed by hostler: its lease and status are not checked"))
	}
	return found.or(ok("the lease is renewed, and the Node is as configured"))
}
