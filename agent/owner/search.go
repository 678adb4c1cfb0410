package owner

import (
	"context"
	"fmt"

	"hostler.io/hostler/systemd"
)

// Search finds a kubelet on this host. A kubelet does all of hostler's jobs.
type Search struct {
	Proc string // the folder of processes: /proc
	Past *Past
	// Locks returns all inhibitor locks of logind.
	Locks func(context.Context) ([]systemd.InhibitorLock, error)
}

// Others returns the jobs with other owners. It is a Scan.
func (s Search) Others(ctx context.Context, known map[Job]Owner) map[Job]Owner {
	kubelets := FindKubelets(s.Proc)
	evidence := kubelets.Evidence()
	seen := s.Past.Update(evidence, evidence != "")
	if evidence == "" {
		return seen
	}
	// A kubelet's graceful shutdown is off by default, so only its lock proves that it handles
	// shutdowns.
	locks, err := s.Locks(ctx)
	lock := kubelets.Lock(s.Proc, locks)
	switch {
	case err != nil && known[Shutdown].Name == Kubelet: // keep the owner: two shutdown handlers are worse than a late one
		seen[Shutdown] = known[Shutdown]
	case lock != nil:
		seen[Shutdown] = Owner{Name: Kubelet, Evidence: fmt.Sprintf("%s lock %q of pid %d", lock.Mode, lock.Why, lock.PID)}
	}
	return seen
}

// BlockNode prevents hostler from owning Node and Lease while why returns a reason, unless they have
// another owner anyway.
func BlockNode(why func() string, scan Scan) Scan {
	return func(ctx context.Context, known map[Job]Owner) map[Job]Owner {
		seen, reason := scan(ctx, known), why()
		for _, job := range []Job{Node, Lease} {
			if _, found := seen[job]; reason != "" && !found {
				seen[job] = Owner{Name: None, Evidence: reason}
			}
		}
		return seen
	}
}
