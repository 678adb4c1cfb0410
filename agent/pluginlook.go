package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/controlplane/plugin"
	"hostler.io/hostler/controlplane/plugin/process"
)

// pluginStart bounds how long a person waits for a plugin that is run to be looked at.
const pluginStart = 15 * time.Second

// pluginFacts look at the plugin that keeps this host's Node; nil if none does.
func (a *Agent) pluginFacts(ctx context.Context) *doctor.Plugin {
	if a.plugged == nil {
		return nil
	}
	cfg := a.config()
	p := unlooked(cfg.ControlPlane.Plugin, a.node)
	if p.Command != "" {
		ends := a.plugged.program.Ends()
		p.Ends, p.LastEnd, p.Ended = ends.Times, ends.Last, ends.At
	}
	lookAtPlugin(ctx, p, a.plugged.store)
	p.Mine, p.Writing = a.writes()
	p.Stands, p.Drift, p.Overdue = a.stands(cfg)
	return p
}

// pluginAlone does so on a host whose agent does not answer. A program that hostler is to
// run is run for as long as the look takes, in a folder of its own.
func pluginAlone(ctx context.Context, cfg config.Config, mine bool, log *slog.Logger) (*doctor.Plugin, error) {
	if cfg.ControlPlane.Type != plugin.Type {
		return nil, nil
	}
	name, err := nameOfNode(cfg)
	if err != nil {
		return nil, err
	}
	p := unlooked(cfg.ControlPlane.Plugin, name)
	p.Mine = mine
	if p.Unfit.Message != "" {
		return p, nil
	}
	starting, cancel := context.WithTimeoutCause(ctx, pluginStart, fmt.Errorf("it does not serve HOSTLER_PLUGIN_SOCKET, %v after its start", pluginStart))
	defer cancel()
	opened, err := runPlugin(starting, cfg.ControlPlane.Plugin, "doctor", log)
	if err != nil {
		p.Ends, p.LastEnd, p.Ended = 1, err, time.Now()
		return p, nil
	}
	lookAtPlugin(ctx, p, opened.store)
	if !mine || cfg.Lease.Enabled == config.Off {
		p.Overdue = ""
	}
	if err := opened.Close(); err != nil && p.Command != "" { // it has ended under the look
		p.Ends, p.LastEnd, p.Ended = 1, err, time.Now()
	}
	return p, nil
}

// unlooked is what the configuration and its file tell of a plugin.
func unlooked(c config.Plugin, node string) *doctor.Plugin {
	p := &doctor.Plugin{Standing: doctor.Standing{Node: node}, Socket: c.Socket}
	if len(c.Command) == 0 {
		return p
	}
	p.Command = c.Command[0]
	if unfit, ok := errors.AsType[*process.UnfitError](process.Check(p.Command)); ok {
		p.Unfit = doctor.Mend{Message: unfit.Why, Command: unfit.Mend}
	}
	return p
}

// lookAtPlugin asks it, as this host.
func lookAtPlugin(ctx context.Context, p *doctor.Plugin, store *plugin.Store) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	s := store.Look(ctx, p.Node)
	p.Socket = store.Socket()
	if s.Unreached != nil {
		p.Unreached = doctor.Mend{Message: s.Unreached.Error(), Command: s.Mend}
	}
	p.Silent, p.Reading, p.Listing, p.Watching = s.Silent, s.Reading, s.Listing, s.Watching
	p.Name, p.Version, p.Endpoint = s.Name, s.Version, s.Endpoint
	p.Lists, p.Watches, p.Expires = s.Lists, s.Watches, s.Ends
	if p.Found = s.Node; s.Node && s.Leaseless {
		p.Overdue = fmt.Sprintf("there is a node %s and no lease of it", p.Node)
	}
}
