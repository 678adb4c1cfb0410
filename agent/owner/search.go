package owner

import "context"

// Search looks for a kubelet on this host, which does all of hostler's jobs.
type Search struct {
	Proc string // the folder of processes: /proc
	Past *Past
	// Lock returns what shows that a program delays the shutdown of this host; empty if it does not.
	Lock func(ctx context.Context, program string) (evidence string, err error)
}

// Others returns whose jobs are others', and is a Look.
func (s Search) Others(ctx context.Context, known map[Job]Owner) map[Job]Owner {
	evidence, found := FindKubelet(s.Proc)
	seen := s.Past.Look(evidence, found)
	if !found {
		return seen
	}
	// A kubelet's graceful shutdown is off by default: only its lock is evidence.
	evidence, err := s.Lock(ctx, Kubelet)
	switch {
	case err != nil && known[Shutdown].Name == Kubelet: // stands: two guards are worse than a late one
		seen[Shutdown] = known[Shutdown]
	case evidence != "":
		seen[Shutdown] = Owner{Name: Kubelet, Evidence: evidence}
	}
	return seen
}

// Withhold keeps Node and Lease from hostler for a reason, unless they are another's anyway;
// why returns none, once hostler may have them.
func Withhold(why func() string, look Look) Look {
	return func(ctx context.Context, known map[Job]Owner) map[Job]Owner {
		seen, reason := look(ctx, known), why()
		for _, job := range []Job{Node, Lease} {
			if _, found := seen[job]; reason != "" && !found {
				seen[job] = Owner{Name: None, Evidence: reason}
			}
		}
		return seen
	}
}
