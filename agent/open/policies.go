package open

import (
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

// Policies is the configuration in the words of the packages that decide by it.
type Policies struct {
	Node   status.Options
	GC     gc.Policy
	Phases []plan.PhaseSpec
	Rules  plan.Rules
	Reboot reboot.Policy
}

// NewPolicies translates a configuration. What can be judged without the host has been
// judged when it was read.
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

// NodeName is the name that this host's Node is to have. The error is a
// *status.HostNameError if the host's name is none for a Node.
func NodeName(cfg config.Config) (string, error) {
	reader, err := probe.New("/")
	if err != nil {
		return "", err
	}
	return status.NodeName(cfg.Node.Name, reader.HostName())
}
