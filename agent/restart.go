package agent

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/restart"
)

// restartOptions say by what containers are started again that a shutdown has stopped.
func (a *Agent) restartOptions() restart.Options {
	return restart.Options{
		Set:     a.runtimes.Set(),
		Journal: a.journal,
		Log:     a.log,
		Never:   a.cfg.Shutdown.RestartAfterBoot == config.RestartNever,
		Held:    a.restartsHeld,
		Tell:    a.tellRestart,
	}
}

// restartsHeld tells whether nothing may be started now: the host goes down, as far as is
// known, or a person drains it, or the agent ends.
func (a *Agent) restartsHeld() bool {
	g := a.guard.Status()
	return a.ending.Load() || a.journal.Current() != nil || g.ByHand != nil ||
		g.State == shutdown.Draining || g.State == shutdown.Released
}

// tellRestart makes an Event of it.
func (a *Agent) tellRestart(r journal.Restart) {
	node := controlplane.NodeReference(a.node)
	if r.Outcome == journal.RestartFailed {
		a.recorder.Record(node, corev1.EventTypeWarning, "ContainerStaysDown", fmt.Sprintf("container %s of %s, which a shutdown had stopped, does not start again: %s", r.Name, r.Runtime, r.Reason))
		return
	}
	a.recorder.Record(node, corev1.EventTypeNormal, "ContainerStartedAgain", fmt.Sprintf("container %s of %s, which a shutdown had stopped, was started again", r.Name, r.Runtime))
}
