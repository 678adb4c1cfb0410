package inspect

import (
	"context"
	"fmt"
	"log/slog"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/controlplane/plugin"
)

// pluginAlone checks the plug-in if the agent does not answer.
func pluginAlone(ctx context.Context, cfg config.Config, mine bool, log *slog.Logger) (*doctor.Plugin, error) {
	if cfg.ControlPlane.Type != plugin.Type {
		return nil, nil
	}
	name, err := open.NodeName(cfg)
	if err != nil {
		return nil, err
	}
	store, err := plugin.New(plugin.Options{Socket: cfg.ControlPlane.Plugin.Socket, Version: "doctor", Log: log})
	if err != nil {
		return nil, err
	}
	p := Plugin(ctx, store, name)
	if p.Managed = mine; !mine || cfg.Lease.Enabled == config.Off {
		p.LeaseExpired = ""
	}
	return p, store.Close()
}

// Plugin queries the plug-in as the host of that Node.
func Plugin(ctx context.Context, store *plugin.Store, node string) *doctor.Plugin {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	s := store.Diagnose(ctx, node)
	p := &doctor.Plugin{
		StoreState: doctor.StoreState{Node: node, Found: s.Node}, Socket: store.Socket(),
		NoAnswer: s.NoAnswer, ReadErr: s.Reading, ListErr: s.Listing, WatchErr: s.Watching,
		Name: s.Name, Version: s.Version, Endpoint: s.Endpoint,
		CanList: s.Lists, CanWatch: s.Watches, CanExpire: s.Ends,
	}
	if s.Unreached != nil {
		p.Unreached = doctor.Fix{Message: s.Unreached.Error(), Command: s.Fix}
	}
	if s.Node && s.Leaseless {
		p.LeaseExpired = fmt.Sprintf("there is a node %s and no lease of it", node)
	}
	return p
}
