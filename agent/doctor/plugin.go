package doctor

import (
	"cmp"
	"fmt"
	"strings"
)

// Plugin is the program that keeps this host's Node, as it answers now.
type Plugin struct {
	Standing
	Socket string // that it serves

	Unreached Mend  // why there is nobody at the socket who is trusted; zero where there is
	Silent    error // why who is there does not say who it is

	Name, Version, Endpoint string // as it says
	Lists, Watches, Expires bool   // as it says that it can
	// Reading is why the Node cannot be read, Listing and Watching why it does not do what
	// it says that it can.
	Reading, Listing, Watching error
}

// answers reports whether it has said who it is.
func (p *Plugin) answers() bool { return p.Name != "" }

// pluginServes looks whether it answers, and what it has of this host.
func pluginServes(f Facts) Check {
	p := f.Plugin
	switch {
	case p == nil:
		return Check{}
	case p.Unreached.Message != "":
		return fail(cmp.Or(p.Unreached.Command, "start the plugin's own service, or correct controlPlane.plugin.socket; hostler connects by itself"), "the plugin's socket %s: %s", p.Socket, p.Unreached.Message)
	case p.Silent != nil:
		return fail("do as it says, or see its log: a plugin answers Info at once, whatever is behind it (docs/howto/control-plane-plugin.md)", "%v", p.Silent)
	}
	who := fmt.Sprintf("plugin %s, speaking protocol 1 for %s,", strings.TrimSpace(p.Name+" "+p.Version), p.Endpoint)
	switch {
	case p.Reading != nil:
		return fail("see that what is behind the plugin runs, that this host reaches it, and that it accepts the plugin's credentials; see its log", "%s answers, and not for node %s: %v", who, p.Node, p.Reading)
	case p.Writing != nil:
		return fail(p.writingMend(f, "have what is behind the plugin let this host write what is its own"), "%s answers, but the agent's last write failed: %v", who, p.Writing)
	case !p.Found && p.Stands != "":
		return warn("nothing, if that is as it should be", "%s answers, and there is no node %s: %s", who, p.Node, p.Stands)
	case !p.Found && f.Agent.Answers:
		return warn("hostler status", "%s answers, and there is no node %s yet", who, p.Node)
	case !p.Found:
		return ok("%s answers, and there is no node %s, which the agent creates", who, p.Node)
	}
	return ok("%s answers, and knows node %s", who, p.Node)
}

// pluginAbilities looks whether it can do what it says, and names what it cannot.
func pluginAbilities(f Facts) Check {
	p := f.Plugin
	if p == nil || !p.answers() || p.Reading != nil {
		return Check{}
	}
	var found faults
	var cannot []string
	for _, a := range []struct {
		says    bool
		err     error
		does    string
		ability string
		without string
	}{
		{p.Lists, p.Listing, "lists objects", "ABILITY_LIST", "it lists nothing: `hostler nodes` shows no other host, and clones are not found"},
		{p.Watches, p.Watching, "tells of changes", "ABILITY_WATCH", "it tells of no changes: they are looked for every 10 seconds"},
		{p.Expires, nil, "", "", "it ends no objects: the lease of a host that died stays, and somebody has to take old events away"},
	} {
		switch {
		case !a.says:
			cannot = append(cannot, a.without)
		case a.err != nil:
			found.add(warn("mend it, or have it say without "+a.ability+" who it is (docs/howto/control-plane-plugin.md)", "it says that it %s, and does not: %v", a.does, a.err))
		}
	}
	if len(cannot) > 0 {
		return found.or(ok("%s", strings.Join(cannot, "; ")))
	}
	return found.or(ok("it lists objects, tells of changes, and ends what is not renewed"))
}

// pluginNode looks at what others see of the Node.
func pluginNode(f Facts) Check {
	p := f.Plugin
	if p == nil || p.Overdue == "" && !p.Found {
		return Check{}
	}
	return p.judge(f, "see the checks of the plugin")
}
