package agent

import (
	"time"

	"hostler.io/hostler/agent/metrics"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/status"
)

// standing is how things stand, for the metrics.
func (a *Agent) standing() metrics.Standing {
	guard, lease := a.guard.Status(), a.keeper.Stats()
	s := metrics.Standing{
		Version:       a.options.Version,
		LeaseRenewed:  lease.Since(),
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

// health is that of all loops, now.
func (a *Agent) health() []loop.Health {
	now := time.Now()
	list := make([]loop.Health, 0, len(a.loops))
	for _, l := range a.loops {
		list = append(list, l.Health(now))
	}
	return list
}
