package fleetsim

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store/memory"
)

// moment is the What of a fault that waits until something happens to its host, or to any host if the fault is one of a
// server. At a random time, such a fault would almost never matter.
type moment = string

const (
	whenever            = "when " // begins each moment
	whenCalling  moment = whenever + "its reboot controller waits for the store"
	whenRenewing moment = whenever + "it renews its Lease"
	whenGiven    moment = whenever + "a slot is given"
	whenDown     moment = whenever + "it is down for its reboot"
	whenStays    moment = whenever + "its reboot command ends, and it does not go down"
)

// whenAt is the moment in which a host is at a step of its reboot, which is on its Node.
func whenAt(s controlplane.RebootStep) moment { return whenever + "at step " + string(s) }

// waitsForMoment reports whether the fault begins at a moment.
func (f fault) waitsForMoment() bool { return strings.HasPrefix(f.What, whenever) }

// meets begins a fault that waits for a moment of a host: now, or soon. It reports whether there is one.
func (w *world) meets(m moment, host string, now bool) bool {
	passed := time.Since(w.start)
	i := slices.IndexFunc(w.aimed, func(f fault) bool {
		return f.What == m && (f.On == host || w.server(f.On) != nil) && f.From <= passed && passed < f.To
	})
	if i < 0 {
		return false
	}
	f := w.aimed[i]
	w.aimed = slices.Delete(w.aimed, i, i+1)
	if f.What, f.From = "", passed; !now {
		r := w.plan.draw("moment", m, host, passed)
		f.From += between(r, 0, []time.Duration{150 * time.Millisecond, 5 * time.Second}[r.IntN(2)])
	}
	w.schedule(f)
	return true
}

// meetsRequest is meets for the moment of a request, which reaches the store a while after the fault.
func (w *world) meetsRequest(q *request) bool {
	m := map[string]moment{"reboot": whenCalling, "lease": whenRenewing}[q.loop]
	if m == "" || q.fate != delivered || q.Call != memory.Update && (q.Call != memory.Get || m == whenRenewing) || !w.meets(m, q.of.name, true) {
		return false
	}
	w.carrier.mu.Lock()
	defer w.carrier.mu.Unlock()
	q.due = time.Now().Add(between(w.plan.draw("moment", q.key), 100*time.Millisecond, 3*time.Second))
	return true
}

// aimed returns the faults that wait for a moment.
func aimed(e engine) []drawn {
	one := func(r *rand.Rand, kinds ...kind) kind { return kinds[r.IntN(len(kinds))] }
	step := func(r *rand.Rand, steps ...controlplane.RebootStep) moment { return whenAt(steps[r.IntN(len(steps))]) }
	// each adds n faults for each host that wants to reboot. They end after 2 minutes or later.
	each := func(n int, most time.Duration, make func(p plan, r *rand.Rand, host string) fault) drawn {
		return func(p plan, r *rand.Rand) []fault {
			all := wanted(p, r, 2)
			for _, w := range all {
				for range n {
					f := make(p, r, w.On)
					f.From, f.To = between(r, 0, 30*time.Second), between(r, 2*time.Minute, most)
					all = append(all, f)
				}
			}
			return all
		}
	}
	ended := each(1, 5*time.Minute, func(p plan, r *rand.Rand, host string) fault { // a slot of a host that drains
		f := fault{Kind: one(r, nodeDeleted, nodeDeleted, personLeaves, slotReleased), On: host, What: step(r, controlplane.RebootGranted, controlplane.RebootDraining)}
		if f.Kind == slotReleased {
			f.On = p.anyServer(r)
		}
		return f
	})
	requested := each(2, 5*time.Minute, func(_ plan, r *rand.Rand, host string) fault {
		return fault{Kind: one(r, personAsks, personForces, personStops), On: host, What: whenCalling}
	})
	renewed := func(p plan, r *rand.Rand) (all []fault) { // the garbage collector deletes the Lease of a host that has another Node already
		for range 3 {
			host, from := p.anyHost(r), between(r, 0, 3*time.Minute)
			all = append(all, fault{nodeDeleted, host, whenRenewing, from, from + time.Minute}, fault{callLate, host, whenRenewing, from, from + time.Minute})
		}
		return all
	}
	full := each(1, 4*time.Minute, func(_ plan, r *rand.Rand, host string) fault { // before a drain, the cordon needs the disk too
		return fault{Kind: diskFull, On: host, What: step(r, controlplane.RebootWanted, controlplane.RebootWaiting, controlplane.RebootGranted, controlplane.RebootDraining, controlplane.RebootDraining, controlplane.RebootDraining)}
	})
	failing := each(1, 5*time.Minute, func(_ plan, r *rand.Rand, host string) fault {
		return fault{Kind: commandsFail, On: host, What: step(r, controlplane.RebootWaiting, controlplane.RebootGranted, controlplane.RebootDraining, controlplane.RebootRebooting)}
	})
	undone := func(p plan, r *rand.Rand) (all []fault) { // something happens when the host does not go down
		for _, f := range failing(p, r) {
			if all = append(all, f); f.Kind == commandsFail {
				all = append(all, fault{one(r, personStops, personStops, personForces, personAsks, agentDies, hostDies, nodeDeleted, personLeaves), f.On, whenStays, f.From, f.To})
			}
		}
		return all
	}
	all := []drawn{
		failing, undone, undone,
		ended, ended, requested, requested, renewed, renewed, full, full,
		each(1, 4*time.Minute, func(p plan, r *rand.Rand, _ string) fault {
			return fault{Kind: slotReleased, On: p.anyServer(r), What: whenGiven}
		}),
		each(1, 4*time.Minute, func(_ plan, r *rand.Rand, host string) fault {
			return fault{Kind: checkFlaps, On: host, What: step(r, controlplane.RebootGranted, controlplane.RebootDraining)}
		}),
		each(1, 4*time.Minute, func(_ plan, r *rand.Rand, host string) fault {
			return fault{Kind: one(r, agentDies, suspended, cut), On: host, What: step(r, controlplane.RebootWaiting, controlplane.RebootGranted, controlplane.RebootDraining, controlplane.RebootRebooting, controlplane.RebootVerifying)}
		}),
	}
	if e != etcd {
		forbidden := each(1, 4*time.Minute, func(_ plan, r *rand.Rand, host string) fault {
			return fault{Kind: budgetForbids, On: host, What: step(r, controlplane.RebootWaiting, controlplane.RebootGranted, controlplane.RebootDraining)}
		})
		all = append(all, forbidden, forbidden, forbidden)
	}
	forgotten := func(p plan, r *rand.Rand) []fault { // the restored store does not know the slot of a host that reboots
		all := wanted(p, r, 2)
		for _, w := range all {
			all = append(all, fault{storeReset, w.On, []moment{whenDown, whenDown, whenAt(controlplane.RebootRebooting)}[r.IntN(3)], 0, 5 * time.Minute})
		}
		return append(all, fault{storeSaved, "", "", 0, time.Millisecond})
	}
	return append(all, forgotten, forgotten, forgotten, forgotten)
}
