package agent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/agent/settings"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/internal/statefile"
	"hostler.io/hostler/systemd"
)

// ownersInterval is how often the agent looks for other owners of its jobs.
const ownersInterval = 30 * time.Second

// jobs is who does which job on this host.
type jobs struct {
	*owner.Owners

	settings *settings.Settings
	shared   bool // a kubelet may have the Node on this control plane
	logind   *systemd.Logind
	kubelets *owner.KubeletsNode
}

func newJobs(s *settings.Settings, client controlplane.Client, logind *systemd.Logind, notes *statefile.Values, log *slog.Logger) *jobs {
	_, shared := client.(controlplane.ConditionWriter)
	j := &jobs{settings: s, shared: shared, logind: logind, kubelets: owner.OpenKubeletsNode(notes, s.Node().Name, log)}
	j.Owners = owner.New(switches(s.Config()), j.others, log)
	return j
}

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

// has reports whether a job is hostler's.
func (j *jobs) has(job owner.Job) bool {
	mine, _, _ := j.Mine(job)
	return mine
}

// hasFunc is has for one job.
func (j *jobs) hasFunc(job owner.Job) func() bool { return func() bool { return j.has(job) } }

// others looks for who else does hostler's jobs on this host: a kubelet does them all.
func (j *jobs) others(ctx context.Context) map[owner.Job]owner.Owner {
	evidence, found := owner.FindKubelet("/proc")
	seen := map[owner.Job]owner.Owner{}
	if j.shared {
		j.kubelets.Note(found, switches(j.settings.Config())[owner.Node] == owner.On)
	}
	if !found {
		return j.reserved()
	}
	kubelet := owner.Owner{Name: owner.Kubelet, Evidence: evidence}
	for _, job := range owner.Jobs() {
		seen[job] = kubelet
	}
	// Its graceful shutdown is off by default: only its lock is evidence.
	delete(seen, owner.Shutdown)
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	locks, err := j.logind.ListInhibitors(ctx)
	if err != nil { // what was known stands: two guards are worse than a late one
		if mine, other, _ := j.Mine(owner.Shutdown); !mine && other.Name == owner.Kubelet {
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
func (j *jobs) reserved() map[owner.Job]owner.Owner {
	if !j.kubelets.Held() {
		return map[owner.Job]owner.Owner{}
	}
	absent := owner.Owner{Name: owner.Kubelet, Evidence: "the Node in the cluster is a kubelet's, which does not run; node.enabled: true makes it hostler's"}
	return map[owner.Job]owner.Owner{owner.Node: absent, owner.Lease: absent}
}

// beside reports whether the Node is a kubelet's on this host.
func (j *jobs) beside() bool {
	_, other, _ := j.Mine(owner.Node)
	return other.Name == owner.Kubelet
}

// delegated tells the guard whether somebody else guards the shutdown.
func (j *jobs) delegated(ctx context.Context) (string, bool) {
	j.Refresh(ctx)
	mine, other, _ := j.Mine(owner.Shutdown)
	return other.Name + ": " + other.Evidence, !mine
}

// lookForOwners looks every now and then who else does hostler's jobs.
func (a *Agent) lookForOwners(ctx context.Context, l *loop.Loop) error {
	tick := time.NewTicker(ownersInterval)
	defer tick.Stop()
	for {
		if a.jobs.Refresh(ctx) {
			for j, other := range a.jobs.All() {
				a.log.Debug("owner", "job", j, "owner", other.Name, "evidence", other.Evidence)
			}
			a.changed.Send()
		}
		if !a.jobs.has(owner.Shutdown) {
			a.shutdown.guard.Recheck() // a kubelet takes its lock long after it was started
		}
		l.Beat(nil)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
