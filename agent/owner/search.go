package owner

import (
	"context"
	"fmt"

	"hostler.io/hostler/systemd"
)

// Search looks for a kubelet on this host, which does all of hostler's jobs.
type Search struct {
	Proc string // the folder of processes: /proc
	Past *Past
	// Locks returns all locks that logind knows of.
	Locks func(context.Context) ([]systemd.InhibitorLock, error)
}

// Others returns whose jobs are others', and is a Look.
func (s Search) Others(ctx context.Context, known map[Job]Owner) map[Job]Owner {
	kubelets := FindKubelets(s.Proc)
	evidence := kubelets.Evidence()
	seen := s.Past.Update(evidence, evidence != "")
	if evidence == "" {
		return seen
	}
	// A kubelet's graceful shutdown is off by default: only its lock is evidence.
	locks, err := s.Locks(ctx)
	lock := kubelets.Lock(s.Proc, locks)
	switch {
	case err != nil && known[Shutdown].Name == Kubelet: // stands: two guards are worse than a late one
		seen[Shutdown] = known[Shutdown]
	case lock != nil:
		seen[Shutdown] = Owner{Name: Kubelet, Evidence: fmt.Sprintf("%s lock %q of pid %d", lock.Mode, lock.Why, lock.PID)}
	}
	return seen
}

// Withhold keeps Node and Lease from hostler for a reason, unless they are another's anyway;
// why returns none, once hostler may have them.
func Withhold(why func() string, scan Scan) Scan {
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
