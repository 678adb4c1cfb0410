package doctor

import (
	"errors"

	"hostler.io/hostler/controlplane"
)

// StoreState is the state of this host's Node in a store of objects, and of the agent's writes to it.
type StoreState struct {
	Node string // name of the Node
	// WriteErr is the error of the agent's last write; nil also without an agent.
	WriteErr     error
	NotWritten   string // why the agent does not write, although nothing failed; empty if it writes
	Found        bool   // the Node exists
	Managed      bool   // hostler manages the Node
	LeaseExpired string // why the Lease counts as expired; empty if it does not
	Drift        []Fix
}

// writingFix is the hint for a control plane that answers but rejects writes. forbidden is the hint for
// missing rights.
func (s *StoreState) writingFix(f Facts, forbidden string) string {
	_, taken := errors.AsType[*controlplane.IdentityError](s.WriteErr)
	switch {
	case taken:
		return "give one of the two hosts another node.name, or set node.takeover: true to take over the Node"
	case errors.Is(s.WriteErr, controlplane.ErrForbidden):
		return forbidden
	}
	return "hostler status; " + f.fixes().journal
}

// judge checks the Node and its Lease as other clients see them. expired is the hint for an agent that
// does not renew its Lease.
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
	case !s.Managed:
		return found.or(ok("the Node is not managed by hostler: its lease and status are not checked"))
	}
	return found.or(ok("the lease is renewed, and the Node is as configured"))
}
