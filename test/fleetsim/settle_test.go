package fleetsim

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// patience is how much later than the graces, rates and tolerations the fleet may recover.
const patience = time.Minute

// settle lets the fleet recover after the faults, and checks that it does.
func (w *world) settle() {
	if w.failure != "" {
		return
	}
	w.drive(time.Now().Add(unknownTime + w.rate() + time.Second))
	for _, h := range w.hosts {
		if h.gone {
			w.drive(w.truth.resumed[h.zone].since.Add(unknownTime + w.rate() + time.Second))
		}
	}
	if slices.ContainsFunc(w.hosts, (*host).succeeded) {
		w.drive(time.Now().Add(leaselessTime))
	}
	for _, h := range w.hosts {
		if w.failure == "" {
			w.recovered(h)
		}
	}
	w.bury()
	w.finishReboots()
	for _, h := range w.hosts {
		if w.failure == "" {
			w.recovered(h)
		}
	}
	w.drive(w.truth.slots.members.Add(patience + time.Second))
	w.collected()
	w.shrunk()
}

// bury makes persons delete the Nodes of the hosts that do not boot again, and release their slots. These keep
// others from their slots.
func (w *world) bury() {
	for _, h := range w.hosts {
		if h.gone {
			w.truth.forced(h.name)
			w.store.Remove(store.Nodes, h.name)
		}
	}
}

// turnTime is how long the holders of slots may stay the same while a host or a client has a slot, or may get one: a
// client may reboot for 4 minutes.
const turnTime = 5*time.Minute + patience

// idle returns how much longer a host may have its slot: a reboot command may have returned without a shutdown, and no person
// has cancelled the reboot since.
func (w *world) idle() time.Duration {
	const most = 15 * time.Minute // as in package reboot
	for _, h := range w.hosts {
		if r := h.agent.reboot.Report().Request; time.Since(h.power.ignored) < most+turnTime && r != nil && r.Cancelled == "" {
			return most
		}
	}
	return 0
}

// retries returns the end of the time for reboots: at least a time after the last pause of a host whose attempts failed.
func (w *world) retries(end time.Time) time.Time {
	for _, h := range w.hosts {
		if r := h.agent.reboot.Report().Request; r != nil && r.Attempt.RetryAt.Add(turnTime).After(end) {
			end = r.Attempt.RetryAt.Add(turnTime)
		}
	}
	return end
}

// due returns a host or a client that has a slot, or may get one now; empty if there is none.
func (w *world) due() string {
	for _, h := range w.hosts {
		if r := h.agent.reboot.Report().Request; (h.waits() || h.unfulfilled() != nil) && (r == nil || !r.Attempt.RetryAt.After(time.Now())) {
			return h.name
		}
	}
	for _, c := range w.clients {
		if c.works() {
			return c.name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.truth.slots.holders)) {
		return name
	}
	return ""
}

// finishReboots lets the hosts that still want to reboot do so, one after the other.
func (w *world) finishReboots() {
	since, end := time.Now(), time.Now().Add(time.Duration(3+w.plan.Hosts)*5*time.Minute+w.idle()) // a pause after a failed attempt
	end = w.retries(end)
	for w.failure == "" && time.Now().Before(end) {
		for _, c := range w.clients {
			_, amid := w.truth.slots.amid[c.machine()]
			if !c.works() || !amid && w.truth.wasRestored && len(w.truth.slots.holders) > w.plan.Policy.Slots {
				w.releases(c.id) // a request of an earlier process, or a slot of before a restore
			}
		}
		if !slices.ContainsFunc(w.hosts, func(h *host) bool { return h.waits() || h.unfulfilled() != nil }) && !slices.ContainsFunc(w.clients, (*client).works) && len(w.truth.slots.holders) == 0 {
			return
		}
		switch due := w.due(); {
		case due == "" || w.truth.slots.changed.After(since):
			since = time.Now()
		case time.Since(since) > turnTime+w.idle():
			message := ""
			if h := w.host(due); h != nil {
				message = ": " + h.agent.reboot.Report().Message
			}
			w.fail("who may get a slot gets it in time", "%s has or may get a slot, and nobody has got one or lost one for %v%s", due, time.Since(since).Round(time.Second), message)
		}
		w.drive(time.Now().Add(30 * time.Second))
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
func (h *host) waits() bool { return !h.gone && h.wants() && len(h.agent.reboot.Report().Ignored) == 0 }

// The times in which the state of a host must be right. Each begins when the host dies or starts, or when the last
// fault ends.
const (
	readyTime   = 10*time.Second + patience                 // a report each 10 s
	unknownTime = 50*time.Second + 5*time.Second + patience // the grace period begins again when watches do

	leaselessTime = 15 * time.Minute // for a host to get back its Node from a machine without a Lease
)

// succeeded reports whether another machine has taken the Node of the living host, and has no Lease.
func (h *host) succeeded() bool {
	o, err := h.w.store.Peek(store.Nodes, h.name)
	_, none := h.w.store.Peek(store.Leases, h.name)
	return err == nil && none != nil && h.w.truth.of(h.name).alive && controlplane.IdentityOf(o.(*corev1.Node)).Differs(h.identity())
}

// recovered checks the state of a host after the faults.
func (w *world) recovered(h *host) {
	f := w.truth.of(h.name)
	since := f.since
	if end := w.start.Add(w.plan.Length); since.Before(end) {
		since = end
	}
	zone := w.truth.resumed[h.zone]
	node, passed, over := (*corev1.Node)(nil), time.Since(since), func(limit time.Duration) bool { return time.Since(since) > limit }
	if o, err := w.store.Peek(store.Nodes, h.name); err == nil {
		node = o.(*corev1.Node)
	}
	switch {
	case node == nil && f.alive && over(readyTime):
		w.fail("a host is registered", "host %s has no Node, alive for %v", h.name, passed)
	case node == nil: // a person has deleted it
	case f.alive && readyOf(node) != corev1.ConditionTrue && over(readyTime):
		w.fail("a live host becomes Ready", "Node %s is Ready=%s, alive for %v", h.name, readyOf(node), passed)
	case f.alive && tainted(node) && over(readyTime):
		w.fail("a live host loses its taint", "Node %s still has a NoExecute taint as unreachable, alive for %v", h.name, passed)
	case !f.alive && readyOf(node) != corev1.ConditionUnknown && over(unknownTime):
		w.fail("a dead host becomes Unknown", "Node %s is Ready=%s, dead for %v", h.name, readyOf(node), passed)
	case !f.alive && !zone.paused && !tainted(node) && over(unknownTime+w.rate()) && time.Since(zone.since) > unknownTime+w.rate():
		w.fail("a dead host is tainted", "Node %s has no NoExecute taint, dead for %v", h.name, passed)
	case !f.alive && tainted(node):
		w.evicted(h)
	default:
		w.emptied(h, node)
	}
}

// emptied checks that a server evicts the pods of a Node whose host reboots, as far as their budgets allow that.
func (w *world) emptied(h *host, node *corev1.Node) {
	r, err := controlplane.RebootOf(node.Annotations)
	slot, wrong := controlplane.RebootSlotOf(node.Annotations)
	if err != nil || wrong != nil || r == nil || slot == nil || !r.EmptiedByServer || r.Step != controlplane.RebootDraining || slot.Failed {
		return
	}
	if time.Since(w.storage.permitted) < patience || time.Since(r.Since.Time) < patience {
		return
	}
	for i := range podsOfHost {
		pod := w.plan.pod(h.name, i, "")
		if o, err := w.store.Peek(w.plan.pods(), w.plan.pods().StoredName(pod)); err == nil && o.GetDeletionTimestamp() == nil {
			w.fail("due evictions are done", "pod %s of host %s, which reboots, is not evicted, its budget permits that for %v", pod.Name, h.name, time.Since(w.storage.permitted))
		}
	}
}

// rate is the time for the taints of all hosts: one in 10 s.
func (w *world) rate() time.Duration { return time.Duration(w.plan.Hosts) * 10 * time.Second }

// resumed says whether the Nodes of a zone get NoExecute taints, and since when.
type resumed struct {
	paused bool
	since  time.Time
}

// resumes records which zones get NoExecute taints. By the default policy, a zone gets none while no zone has a ready Node, or
// while 55 % of its Nodes, at least 3 and not all, are not ready. In a fleet of more than 50 Nodes, they are only slower then.
func (t *truth) resumes() {
	all, unready, up := map[string]int{}, map[string]int{}, false
	for _, h := range t.w.hosts {
		switch {
		case t.nodes[h.name] == "":
			continue
		case t.of(h.name).ready:
			up = true
		default:
			unready[h.zone]++
		}
		all[h.zone]++
	}
	for zone, n := range all {
		some := unready[zone]
		if paused := !up || some >= 3 && some < n && 100*some >= 55*n; t.resumed[zone].paused != paused {
			t.resumed[zone] = resumed{paused, time.Now()}
		}
	}
}

// zoneDies makes all hosts of a zone die for good.
func zoneDies(p plan, r *rand.Rand) (all []fault) {
	for i := r.IntN(2); i < p.Hosts; i += 2 {
		from := between(r, 0, 20*time.Second)
		all = append(all, fault{hostDies, hostName(i), forGood, from, from + time.Millisecond})
	}
	return all
}

// collected checks that nothing is left whose owners are gone.
func (w *world) collected() {
	for _, kind := range []store.Kind{w.plan.pods(), tickets} {
		for _, name := range w.store.Names(kind) {
			o, lives := metadataOf(w.store.Raw(kind.Folder()+name)), false
			since := []time.Time{o.CreationTimestamp.Time, w.truth.slots.members, w.truth.slots.restored, w.start.Add(w.plan.Length)}
			for _, owner := range o.OwnerReferences {
				lives, since = lives || w.truth.owns(owner), append(since, w.truth.ended[owner.UID])
			}
			if last := slices.MaxFunc(since, time.Time.Compare); !lives && time.Since(last) > patience {
				w.fail("an object without an owner is deleted", "%s has no owner any more for %v", kind.Key(name), time.Since(last).Round(time.Second))
			}
		}
	}
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
