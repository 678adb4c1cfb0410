package agent

import (
	"context"
	"fmt"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane"
)

// ownersInterval is how often the agent looks for other owners of its jobs.
const ownersInterval = 30 * time.Second

// switches says which jobs a configuration wants done here. Without a Node there is no
// Lease, unless that is wanted: it would have a fleet believe for good what was last
// written of the Node.
func switches(cfg config.Config) map[owner.Job]owner.Switch {
	lease := owner.Switch(cfg.Lease.Enabled)
	if cfg.Node.Enabled == config.Off && lease == owner.Auto {
		lease = owner.Off
	}
	return map[owner.Job]owner.Switch{
		owner.Node:        owner.Switch(cfg.Node.Enabled),
		owner.Lease:       lease,
		owner.Shutdown:    owner.Switch(cfg.Shutdown.Enabled),
		owner.ImageGC:     owner.Switch(cfg.ImageGC.Enabled),
		owner.ContainerGC: owner.Switch(cfg.ContainerGC.Enabled),
	}
}

// otherOwners looks for who else does hostler's jobs on this host: a kubelet
// does them all.
func (a *Agent) otherOwners(ctx context.Context) map[owner.Job]owner.Owner {
	evidence, found := owner.FindKubelet("/proc")
	seen := map[owner.Job]owner.Owner{}
	if _, shared := a.client.(controlplane.ConditionWriter); shared {
		a.noteKubelet(found)
	}
	if !found {
		return a.reserved()
	}
	kubelet := owner.Owner{Name: owner.Kubelet, Evidence: evidence}
	for _, j := range owner.Jobs() {
		seen[j] = kubelet
	}
	// Its graceful shutdown is off by default: only its lock is evidence.
	delete(seen, owner.Shutdown)
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	locks, err := a.logind.ListInhibitors(ctx)
	if err != nil { // what was known stands: two guards are worse than a late one
		if mine, other, _ := a.owners.Mine(owner.Shutdown); !mine && other.Name == owner.Kubelet {
			seen[owner.Shutdown] = other
		}
		return seen
	}
	for _, l := range locks {
		if l.Who == owner.Kubelet {
			seen[owner.Shutdown] = owner.Owner{Name: owner.Kubelet, Evidence: fmt.Sprintf("%s lock %q of pid %d", l.Mode, l.Why, l.PID)}
		}
	}
	return seen
}

// reserved are the jobs that stay a kubelet's while none runs.
func (a *Agent) reserved() map[owner.Job]owner.Owner {
	if !a.kubeletsNode.Load() {
		return map[owner.Job]owner.Owner{}
	}
	absent := owner.Owner{Name: owner.Kubelet, Evidence: "the Node in the cluster is a kubelet's, which does not run; node.enabled: true makes it hostler's"}
	return map[owner.Job]owner.Owner{owner.Node: absent, owner.Lease: absent}
}

// besideKubelet tells whether the Node is a kubelet's on this host.
func (a *Agent) besideKubelet() bool {
	_, other, _ := a.owners.Mine(owner.Node)
	return other.Name == owner.Kubelet
}

// delegated tells the guard whether somebody else guards the shutdown.
func (a *Agent) delegated(ctx context.Context) (string, bool) {
	a.owners.Refresh(ctx)
	mine, other, _ := a.owners.Mine(owner.Shutdown)
	return other.Name + ": " + other.Evidence, !mine
}

// lookForOwners looks every now and then who else does hostler's jobs.
func (a *Agent) lookForOwners(ctx context.Context) error {
	tick := time.NewTicker(ownersInterval)
	defer tick.Stop()
	for {
		if a.owners.Refresh(ctx) {
			for j, other := range a.owners.All() {
				a.log.Debug("owner", "job", j, "owner", other.Name, "evidence", other.Evidence)
			}
			a.reporter.Changed()
		}
		if mine, _, _ := a.owners.Mine(owner.Shutdown); !mine {
			a.guard.Recheck() // a kubelet takes its lock long after it was started
		}
		a.loops.Named("owners").Beat(nil)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
