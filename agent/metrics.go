package agent

import (
	"time"

	"hostler.io/hostler/agent/controlplane"
	"hostler.io/hostler/agent/loop"
	"hostler.io/hostler/agent/metrics"
	"hostler.io/hostler/status"
)

// standing is how things stand, for the metrics.
func (a *Agent) standing() metrics.Standing {
	guard, lease := a.guard.Status(), a.keeper.Stats()
	s := metrics.Standing{
		Version:       a.options.Version,
		LeaseRenewed:  leaseSince(lease),
		Loops:         a.health(),
		Shutdown:      guard,
		Runtimes:      map[string]bool{},
		EventsDropped: a.recorder.Stats().Dropped,
		CgroupVersion: a.facts.Machine().CgroupVersion,
		Reboots:       a.reboots.Status(0).Counts,
	}
	s.Protected, _, _ = status.Protected(a.protectionFacts(guard))
	if last, ran := a.images.Last(); ran {
		s.Images = &last
	}
	a.mu.Lock()
	s.ReloadRefused = a.refused != nil
	a.mu.Unlock()
	for _, r := range a.runtimes.Named() {
		s.Runtimes[r.Name] = r.Ready
	}
	return s
}

// leaseSince is since when no renewal of the Lease was answered: without that of the tries a
// host that boots into an outage would be silent. Zero where it is another owner's, or given up.
func leaseSince(s controlplane.LeaseStats) time.Time {
	if s.Running.IsZero() || s.Running.After(s.LastRenewed) {
		return s.Running
	}
	return s.LastRenewed
}

// health is that of all loops, now.
func (a *Agent) health() []loop.Health {
	now := time.Now()
	list := make([]loop.Health, 0, len(a.loops))
	for _, l := range a.loops {
		list = append(list, l.Health(now))
	}
	return list
}
