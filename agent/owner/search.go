package owner

import "context"

// Search looks for a kubelet on this host, which does all of hostler's jobs.
type Search struct {
	Proc   string // the folder of processes: /proc
	Node   *KubeletsNode
	Shared bool // a kubelet may have the Node on this control plane
	NodeOn bool // the Node is switched on, also where a kubelet had it
	// Lock returns what shows that a program delays the shutdown of this host; empty if it does not.
	Lock func(ctx context.Context, program string) (evidence string, err error)
}

// Others returns whose jobs are others', and is a Look.
func (s Search) Others(ctx context.Context, known map[Job]Owner) map[Job]Owner {
	evidence, found := FindKubelet(s.Proc)
	if s.Shared {
		s.Node.Note(found, s.NodeOn)
	}
	if !found {
		return s.reserved()
	}
	seen := map[Job]Owner{}
	for _, job := range Jobs() {
		seen[job] = Owner{Name: Kubelet, Evidence: evidence}
	}
	// Its graceful shutdown is off by default: only its lock is evidence.
	delete(seen, Shutdown)
	evidence, err := s.Lock(ctx, Kubelet)
	switch {
	case err != nil && known[Shutdown].Name == Kubelet: // stands: two guards are worse than a late one
		seen[Shutdown] = known[Shutdown]
	case evidence != "":
		seen[Shutdown] = Owner{Name: Kubelet, Evidence: evidence}
	}
	return seen
}

// reserved are the jobs that stay a kubelet's while none runs.
func (s Search) reserved() map[Job]Owner {
	if !s.Node.Held() {
		return map[Job]Owner{}
	}
	absent := Owner{Name: Kubelet, Evidence: "the Node in the cluster is a kubelet's, which does not run; node.enabled: true makes it hostler's"}
	return map[Job]Owner{Node: absent, Lease: absent}
}
