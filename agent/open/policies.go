package open

import (
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

// Policies is the configuration, converted for the packages that decide by it.
type Policies struct {
	Node   status.Options
	GC     gc.Policy
	Phases []plan.PhaseSpec
	Rules  plan.Rules
	Reboot reboot.Policy
}

// NewPolicies converts a configuration. Load has already validated what does not depend on the
// host.
func NewPolicies(cfg config.Config, hostName, version string) (p Policies, err error) {
	if p.Node, err = cfg.NodeOptions(hostName, version); err != nil {
		return p, err
	}
	if p.GC, err = cfg.GCPolicy(); err != nil {
		return p, err
	}
	if p.Phases, err = cfg.Shutdown.Phases(); err != nil {
		return p, err
	}
	if p.Rules, err = cfg.Shutdown.Rules(); err != nil {
		return p, err
	}
	p.Reboot, err = cfg.Reboot.Policy()
	return p, err
}

// NodeName returns the name of this host's Node. The error is a *status.HostNameError if the host's
// name is not a valid Node name.
func NodeName(cfg config.Config) (string, error) {
	reader, err := probe.New("/")
	if err != nil {
		return "", err
	}
	return status.NodeName(cfg.Node.Name, reader.HostName())
}
