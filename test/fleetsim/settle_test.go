package fleetsim

import (
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
	w.drive(time.Now().Add(leaseDuration + rate + 90*time.Second + patience))
	for _, h := range w.hosts {
		if w.failure == "" {
			w.recovered(h)
		}
	}
}

// recovered checks the state of a host after the faults.
func (w *world) recovered(h *host) {
	o, err := w.store.Peek(store.Nodes, h.name)
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
	}
}
