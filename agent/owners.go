package agent

import (
	"context"
	"log/slog"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/internal/statefile"
	"hostler.io/hostler/systemd"
)

// ownersInterval is how often the agent searches for other owners of its jobs.
const ownersInterval = 30 * time.Second

// newOwners returns the owners of jobs, and the record of kubelets.
func newOwners(n naming, client controlplane.Client, h host, notes *statefile.Values, log *slog.Logger) (*owner.Owners, *owner.Past) {
	_, shared := client.(controlplane.ConditionWriter)
	s := n.settings
	switches := switches(s.Config())
	past := owner.OpenPast(owner.PastOptions{
		Notes: notes, Boot: h.boot, Node: s.Node().Name, Shared: shared, NodeOn: switches[owner.Node] == owner.On, Log: log,
	})
	search := owner.Search{
		Proc: "/proc",
		Past: past,
		Locks: func(ctx context.Context) ([]systemd.InhibitorLock, error) {
			ctx, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			return h.logind.ListInhibitors(ctx)
		},
	}
	return owner.New(switches, owner.BlockNode(n.nodeBlocked, search.Others), log), past
}

// switches returns the configured jobs. If hostler writes no Node, it writes no Lease unless the
// configuration enables it: a Lease would confirm a Node status that nobody updates.
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

// otherGuard names the kubelet that handles the shutdown, with the evidence; empty if none does.
func (a *Agent) otherGuard() string {
	if _, other, _ := a.owners.Mine(owner.Shutdown); other.Name == owner.Kubelet {
		return other.Name + ": " + other.Evidence
	}
	return ""
}

// delegated reports whether another program handles the shutdown.
func (a *Agent) delegated(ctx context.Context) (string, bool) {
	a.owners.Refresh(ctx)
	mine, other, _ := a.owners.Mine(owner.Shutdown)
	return other.Name + ": " + other.Evidence, !mine
}

// searchOwners searches regularly for other owners of hostler's jobs.
func (a *Agent) searchOwners(ctx context.Context, l *loop.Loop) error {
	tick := time.NewTicker(ownersInterval)
	defer tick.Stop()
	for {
		if a.owners.Refresh(ctx) {
			for j, other := range a.owners.All() {
				a.log.Debug("owner", "job", j, "owner", other.Name, "evidence", other.Evidence)
			}
			a.changed.Send()
		}
		if !a.owners.Has(owner.Shutdown) {
			a.shutdown.guard.Recheck() // a kubelet takes its inhibitor lock long after it has started
		}
		l.Heartbeat(nil)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
