package agent

import (
	"context"
	"errors"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/settings"
	"hostler.io/hostler/controlplane/embedded"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

// ErrNamed is why the agent ends to be restarted: the host got a name, which its Node must have.
var ErrNamed = errors.New("host name set: restart of the agent needed")

const (
	// nameWait is for how long after its start the agent expects a host without a name to get
	// one, as from DHCP or a cloud's metadata.
	nameWait = 2 * time.Minute
	// nameInterval is how often it checks for one.
	nameInterval = time.Second
)

// naming is how the names of the host and its Node go together.
type naming struct {
	reader   *probe.Reader
	settings *settings.Settings
	since    time.Time // of the start
}

// name returns the facts; nil where nobody wants a Node.
func (n naming) name() *doctor.Name {
	cfg, node := n.settings.Config(), n.settings.Node()
	if cfg.Node.Enabled == config.Off {
		return nil
	}
	return &doctor.Name{
		Node:       node.Name,
		Configured: cfg.Node.Name != "",
		HostName:   n.reader.HostName(),
		Unnamed:    node.Unnamed,
		Shared:     cfg.ControlPlane.Type != embedded.Type,
		Waits:      node.Unnamed != "" && time.Since(n.since) < nameWait,
	}
}

// withheld says why no Node may be created yet; empty if it may.
func (n naming) withheld() string {
	if name := n.name(); name != nil {
		return name.Withheld()
	}
	return ""
}

// unnamed reports whether nothing may be published under the Node's name.
func (n naming) unnamed() bool {
	name := n.name()
	return name != nil && name.Unnamed != "" && name.Shared
}

// awaitName returns when a host without a name has got one, or ctx ends. Everything that the agent
// started has the old name, so the agent is restarted, which stops no container. It waits while pods
// are being stopped.
func (a *Agent) awaitName(ctx context.Context) (name string, err error) {
	tick := time.NewTicker(nameInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		guard := a.shutdown.guard.Status()
		busy := guard.State == shutdown.Draining || guard.State == shutdown.Released || guard.ManualDrain != nil
		if name, err := status.NodeName("", a.host.reader.HostName()); err == nil && !busy {
			return name, nil
		}
	}
}
