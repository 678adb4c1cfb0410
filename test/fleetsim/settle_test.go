package fleetsim

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane/store"
)

// patience is how much later than the graces, rates and tolerations the fleet may recover.
const patience = time.Minute

// settle lets the fleet recover after the faults, and checks that it does.
func (w *world) settle() {
	if w.failure != "" {
		return
	}
	rate := time.Duration(w.plan.Hosts) * 10 * time.Second // one taint in 10 s
	w.drive(time.Now().Add(leaseDuration + rate + 30*time.Second + patience))
	w.finishReboots()
	for _, h := range w.hosts {
		if w.failure == "" {
			w.recovered(h)
		}
	}
}

// finishReboots lets the hosts that still want to reboot do so, one after the other.
func (w *world) finishReboots() {
	if slices.ContainsFunc(w.hosts, func(h *host) bool { return h.gone }) {
		return // a Node that is not ready keeps the others of the group from their slots
	}
	for range 3 + w.plan.Hosts {
		for _, c := range w.clients {
			if !c.works() {
				w.releases(c.id) // a request of an earlier process, or of before a restore
			}
		}
		if !slices.ContainsFunc(w.hosts, func(h *host) bool { return h.waits() || h.unfulfilled() != nil }) && !slices.ContainsFunc(w.clients, (*client).works) && len(w.truth.slots.holders) == 0 {
			return
		}
		w.drive(time.Now().Add(5 * time.Minute)) // a pause after a failed attempt
	}
	for _, h := range w.hosts {
		if h.waits() {
			w.fail("waiting hosts reboot in turn", "%s still wants to reboot: %s", h.name, h.agent.reboot.Report().Message)
		}
	}
	for _, h := range w.hosts {
		if wish := h.unfulfilled(); wish != nil {
			w.fail("a wish of a person is carried out, refused or dropped with a word", "%s has accepted a request of a person %v ago, and has not rebooted since", h.name, time.Since(wish.at).Round(time.Second))
		}
	}
	for _, c := range w.clients {
		if c.works() {
			w.fail("waiting clients get slots in turn", "%s still waits for a slot, or has one", c.name)
		}
	}
	for name := range w.truth.slots.holders {
		w.fail("no slot is lost for good", "%s still holds a slot", name)
	}
}

// waits reports whether the host has to reboot, and no person has cancelled that.
func (h *host) waits() bool { return h.wants() && len(h.agent.reboot.Report().Ignored) == 0 }

// recovered checks the state of a host after the faults.
func (w *world) recovered(h *host) {
	o, err := w.store.Peek(store.Nodes, h.name)
	if err != nil && !w.truth.of(h.name).alive {
		return // a person has deleted it
	}
	if err != nil {
		w.fail("a host is registered", "host %s has no Node: %v", h.name, err)
		return
	}
	node, alive := o.(*corev1.Node), w.truth.of(h.name).alive
	switch ready := readyOf(node); {
	case alive && ready != corev1.ConditionTrue:
		w.fail("a live host becomes Ready", "Node %s is Ready=%s", h.name, ready)
	case alive && tainted(node):
		w.fail("a live host loses its taint", "Node %s still has a NoExecute taint as unreachable", h.name)
	case !alive && ready != corev1.ConditionUnknown:
		w.fail("a dead host becomes Unknown", "Node %s is Ready=%s, dead for %v", h.name, ready, time.Since(w.truth.of(h.name).since))
	case !alive && !w.disrupted(h.zone) && !tainted(node):
		w.fail("a dead host is tainted", "Node %s has no NoExecute taint, dead for %v", h.name, time.Since(w.truth.of(h.name).since))
	case tainted(node):
		w.evicted(h)
	}
}

// disrupted reports whether so many hosts of a zone are dead that it may get no taints.
func (w *world) disrupted(zone string) bool {
	all, dead := 0, 0
	for _, h := range w.hosts {
		if h.zone == zone {
			all++
			if !w.truth.of(h.name).alive {
				dead++
			}
		}
	}
	return dead == all || dead > 2
}

// evicted checks that the pods of a dead host that has been tainted for long are evicted.
func (w *world) evicted(h *host) {
	for i := range podsOfHost {
		pod := w.plan.pod(h.name, i, "")
		tolerated := time.Duration(*pod.Spec.Tolerations[0].TolerationSeconds) * time.Second
		if time.Since(w.truth.of(h.name).tainted) < tolerated+patience {
			continue
		}
		o, err := w.store.Peek(w.plan.pods(), w.plan.pods().StoredName(pod))
		if err == nil && o.GetDeletionTimestamp() == nil {
			w.fail("due evictions are done", "pod %s of dead host %s is not evicted, tainted for %v", pod.Name, h.name, time.Since(w.truth.of(h.name).tainted))
		}
	}
}
