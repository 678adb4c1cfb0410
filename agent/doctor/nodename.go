package doctor

import (
	"fmt"

	"hostler.io/hostler/status"
)

// Name has the names of the host and of its Node.
type Name struct {
	Node        string // name of the Node
	Configured  bool   // the name is from node.name
	HostName    string // the host's name now
	NameProblem string // why the host name was no valid Node name when the agent started; empty if it was
	Shared      bool   // the control plane also has the Nodes of other hosts
	// Unregistered reports that the control plane has no Node of that name, as far as the agent knows.
	Unregistered bool
	Starting     bool // the agent has just started, and waits for the host to get its name
}

// NodeBlocked says why the host's name prevents Node and Lease; empty if it does not.
func (n Name) NodeBlocked() string {
	switch {
	case n.NameProblem == "" || !n.Shared && !n.Starting:
		return ""
	case n.Starting:
		return n.NameProblem + "; Node and Lease are not written until it has one"
	}
	return n.NameProblem + "; without one there is no Node and no Lease"
}

// NodeName compares the names of host and Node.
func NodeName(f Facts) Check {
	n := f.Name
	if n == nil {
		return Check{}
	}
	give := "run `hostnamectl set-hostname NAME` (hostler follows it); or set node.name, and " + f.fixes().restartAgent()
	now, err := status.NodeName("", n.HostName)
	switch {
	case n.Configured:
		return ok("the Node is named %s (node.name)", n.Node)
	case n.NameProblem != "" && n.Starting:
		return warn(give, "%s", n.NodeBlocked())
	case n.NameProblem != "" && n.Shared:
		return fail(give, "%s", n.NodeBlocked())
	case n.NameProblem != "":
		return warn(give, "%s; its Node is named %s, on this host only", n.NameProblem, n.Node)
	case now == n.Node:
		return ok("the Node is named %s, like the host", n.Node)
	}
	keep := fmt.Sprintf("to keep the Node, set node.name: %s, and %s", n.Node, f.fixes().restartAgent())
	if err != nil {
		return warn(keep, "the host was named %s when the agent started, and has no valid name now: the next start would have no Node", n.Node)
	}
	leave := "hostler leave; " // ";": even if it fails, the restart must follow, which renames the Node
	if n.Unregistered {
		leave = ""
	}
	follow := fmt.Sprintf("to rename the Node: %s%s, which registers it as %s", leave, f.fixes().restart, now)
	return warn(follow+"; "+keep, "the host is now named %s, but its Node is still %s, the host name when the agent started", now, n.Node)
}
