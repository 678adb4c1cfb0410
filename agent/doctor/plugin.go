package doctor

import (
	"cmp"
	"fmt"
	"strings"
)

// Plugin is the control-plane plugin that stores this host's Node, as it answers now.
type Plugin struct {
	StoreState
	Socket string // path

	Unreached Fix   // why no trusted process serves the socket; zero if one does
	NoAnswer  error // why the request Info fails

	Name, Version, Endpoint      string // from the answer to Info
	CanList, CanWatch, CanExpire bool   // the abilities in the answer to Info
	// ReadErr is why the Node cannot be read. ListErr and WatchErr are why a promised ability fails.
	ReadErr, ListErr, WatchErr error
}

// answers reports whether the plugin has answered Info.
func (p *Plugin) answers() bool { return p.Name != "" }

// pluginServes checks whether the plugin answers, and whether it has the Node.
func pluginServes(f Facts) Check {
	p := f.Plugin
	switch {
	case p == nil:
		return Check{}
	case p.Unreached.Message != "":
		return fail(cmp.Or(p.Unreached.Command, "start the service of the plugin, or correct controlPlane.plugin.socket; hostler connects automatically"), "the plugin's socket %s: %s", p.Socket, p.Unreached.Message).noAccess()
	case p.NoAnswer != nil:
		return fail("follow the message, or see the log of the plugin: it must answer Info at once (/usr/share/doc/hostler/docs/howto/control-plane-plugin.md)", "%v", p.NoAnswer)
	}
	who := fmt.Sprintf("plugin %s, speaking protocol 1 for %s,", strings.TrimSpace(p.Name+" "+p.Version), p.Endpoint)
	switch {
	case p.ReadErr != nil:
		return fail("check the store behind the plugin: that it runs, is reachable, and accepts the credentials; see the log of the plugin", "%s answers, but cannot read node %s: %v", who, p.Node, p.ReadErr)
	case p.WriteErr != nil:
		return fail(p.writingFix(f, "allow this host to write its own objects in the store behind the plugin"), "%s answers, but the agent's last write failed: %v", who, p.WriteErr)
	case !p.Found && p.NotWritten != "":
		return warn("do nothing if this is intended", "%s answers, but node %s does not exist: %s", who, p.Node, p.NotWritten)
	case !p.Found && f.Agent.Answers:
		return warn("see `hostler status`", "%s answers, but node %s does not exist yet", who, p.Node)
	case !p.Found:
		return ok("%s answers; the agent will create node %s", who, p.Node)
	}
	return ok("%s answers, and node %s exists", who, p.Node)
}

// pluginAbilities checks the abilities that the plugin promises, and names those that it lacks.
func pluginAbilities(f Facts) Check {
	p := f.Plugin
	if p == nil || !p.answers() || p.ReadErr != nil {
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
		{p.CanList, p.ListErr, "lists objects", "ABILITY_LIST", "it cannot list: `hostler nodes` shows no other host, and duplicate hosts are not found"},
		{p.CanWatch, p.WatchErr, "watches changes", "ABILITY_WATCH", "it cannot watch: hostler reads changes every 10 seconds"},
		{p.CanExpire, nil, "", "", "it cannot expire objects: leases of dead hosts remain, and old events must be deleted manually"},
	} {
		switch {
		case !a.says:
			cannot = append(cannot, a.without)
		case a.err != nil:
			found.add(warn("fix the plugin, or remove "+a.ability+" from its abilities (/usr/share/doc/hostler/docs/howto/control-plane-plugin.md)", "it says that it %s, but that fails: %v", a.does, a.err))
		}
	}
	if len(cannot) > 0 {
		return found.or(ok("%s", strings.Join(cannot, "; ")))
	}
	return found.or(ok("it lists objects, watches changes, and expires objects that are not renewed"))
}

// pluginNode checks the Node and its Lease as other clients see them.
func pluginNode(f Facts) Check {
	p := f.Plugin
	if p == nil || p.LeaseExpired == "" && !p.Found {
		return Check{}
	}
	return p.judge(f, "see the checks of the plugin")
}
