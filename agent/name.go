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

// ErrNamed is why the agent must restart: the host got a name, and the Node must have that name.
var ErrNamed = errors.New("host name set: restart of the agent needed")

const (
	// nameWait is how long after its start the agent expects a host without a name to get one, for
	// example from DHCP or cloud metadata.
	nameWait = 2 * time.Minute
	// nameInterval is how often the agent checks for a host name.
	nameInterval = time.Second
)

// naming compares the host name with the Node's name.
type naming struct {
	reader   *probe.Reader
	settings *settings.Settings
	since    time.Time // start of the agent
}

// name returns the facts, or nil if node.enabled is off.
func (n naming) name() *doctor.Name {
	cfg, node := n.settings.Config(), n.settings.Node()
	if cfg.Node.Enabled == config.Off {
		return nil
	}
	return &doctor.Name{
		Node:        node.Name,
		Configured:  cfg.Node.Name != "",
		HostName:    n.reader.HostName(),
		NameProblem: node.NameProblem,
		Shared:      cfg.ControlPlane.Type != embedded.Type,
		Starting:    node.NameProblem != "" && time.Since(n.since) < nameWait,
	}
}

// nodeBlocked returns why the Node must not be created yet; empty if it may be.
func (n naming) nodeBlocked() string {
	if name := n.name(); name != nil {
		return name.NodeBlocked()
	}
	return ""
}

// nameInvalid reports whether hostler must not publish anything under the Node's name.
func (n naming) nameInvalid() bool {
	name := n.name()
	return name != nil && name.NameProblem != "" && name.Shared
}

// awaitName returns when a host without a name gets one, or when ctx ends. Everything that the
// agent started has the old name, so the agent must restart. That stops no container. awaitName
// waits while pods are being stopped.
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
