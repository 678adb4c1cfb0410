package agent

import (
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/status"
)

// policies is the configuration in the words of the rooms that it is for.
type policies struct {
	node   status.Options
	gc     gc.Policy
	phases []plan.PhaseSpec
	rules  plan.Rules
}

// newPolicies translates a configuration. What can be judged without the host
// has been judged when it was read.
func newPolicies(cfg config.Config, hostName, version string) (p policies, err error) {
	if p.node, err = cfg.NodeOptions(hostName, version); err != nil {
		return p, err
	}
	if p.gc, err = cfg.GCPolicy(); err != nil {
		return p, err
	}
	if p.phases, err = cfg.Shutdown.Phases(); err != nil {
		return p, err
	}
	p.rules, err = cfg.Shutdown.Rules()
	return p, err
}
