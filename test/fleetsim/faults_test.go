package fleetsim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// The kinds of faults.
const (
	roughCalls   kind = "calls fail"          // a share of the requests of a process is lost, late or refused
	cut          kind = "cut off"             // no request reaches the store; What says whether there is an answer
	watchRefused kind = "watch refused"       // a kind of objects can be neither listed nor watched
	watchSilent  kind = "watch silent"        // watches of a kind of objects report nothing
	watchBroken  kind = "watch broken"        // watches end
	storeAway    kind = "store away"          // the store has no leader
	storeFull    kind = "store full"          // the store accepts no writes
	storeBack    kind = "store restored"      // at the end, it has the content of the start again
	compacted    kind = "history compacted"   // all watches list again
	hostDies     kind = "host dies"           // it boots again at the end
	serverDies   kind = "server killed"       // it starts again at the end
	suspended    kind = "suspended"           // nothing goes in or out of a process
	nodeDeleted  kind = "person deletes Node" // by a person
)

// More kinds of faults, and what makes hosts reboot.
const (
	rebootWanted kind = "reboot wanted" // until the next boot
	diskFull     kind = "disk full"
	slotReleased kind = "person releases slot" // of the host that holds one, on a server
	agentDies    kind = "agent killed"         // it starts again at the end, and the host stays
	checkFlaps   kind = "check flaps"          // a host wants a reboot, and then not, until the end
	personAsks   kind = "person requests reboot"
	personForces kind = "person requests reboot --now"
	personStops  kind = "person cancels reboot"
	personLeaves kind = "person lets host leave" // until the end
)

// hangs is the What of a cut without answers.
const hangs = "without an answer"

// drawn draws a fault, or several that belong together. Their times count from the first.
type drawn func(p plan, r *rand.Rand) []fault

// catalogue returns all faults of an engine. Later versions add to its end.
func catalogue(e engine) []drawn {
	kinds := []string{"nodes", "leases", "pods"}
	anyKind := func(r *rand.Rand) string { return kinds[r.IntN(len(kinds))] }
	anyProcess := func(p plan, r *rand.Rand) string {
		if r.IntN(2) == 0 {
			return p.anyServer(r)
		}
		return p.anyHost(r)
	}
	how := func(r *rand.Rand) string { return []string{"", hangs}[r.IntN(2)] }
	all := []drawn{
		func(p plan, r *rand.Rand) []fault {
			return []fault{{roughCalls, []string{"", anyProcess(p, r)}[r.IntN(2)], fmt.Sprint(5 + r.IntN(40)), 0, between(r, 10*time.Second, 3*time.Minute)}}
		},
		func(p plan, r *rand.Rand) []fault {
			return []fault{{cut, anyProcess(p, r), how(r), 0, between(r, 2*time.Second, 2*time.Minute)}}
		},
		func(p plan, r *rand.Rand) []fault { // of all servers, as when rights are taken away
			what, most := anyKind(r), between(r, 20*time.Second, 3*time.Minute)
			var all []fault
			for i := range p.Servers {
				all = append(all, fault{watchRefused, serverName(i), what, 0, most})
			}
			return all
		},
		func(p plan, r *rand.Rand) []fault {
			what, most := anyKind(r), between(r, 5*time.Second, 3*time.Minute)
			var all []fault
			for i := range p.Servers {
				all = append(all, fault{watchSilent, serverName(i), what, 0, most})
			}
			return all
		},
		func(p plan, r *rand.Rand) []fault {
			return []fault{{watchSilent, anyProcess(p, r), anyKind(r), 0, between(r, 2*time.Second, 2*time.Minute)}}
		},
		func(p plan, r *rand.Rand) []fault {
			return []fault{{watchBroken, anyProcess(p, r), anyKind(r), 0, time.Millisecond}}
		},
		func(p plan, r *rand.Rand) []fault { // some hosts die meanwhile, or shortly before
			all := []fault{{storeAway, "", "", 0, between(r, 3*time.Second, 2*time.Minute)}}
			for i := range p.Hosts {
				if r.IntN(3) == 0 {
					from := between(r, -2*time.Minute, all[0].To)
					all = append(all, fault{hostDies, hostName(i), "", from, from + between(r, 30*time.Second, 5*time.Minute)})
				}
			}
			return all
		},
		func(_ plan, r *rand.Rand) []fault {
			return []fault{{compacted, "", "", 0, time.Millisecond}}
		},
		func(_ plan, r *rand.Rand) []fault {
			return []fault{{storeFull, "", "", 0, between(r, 5*time.Second, time.Minute)}}
		},
		func(p plan, r *rand.Rand) []fault {
			return []fault{{hostDies, p.anyHost(r), "", 0, between(r, 10*time.Second, 6*time.Minute)}}
		},
		func(p plan, r *rand.Rand) []fault {
			return []fault{{serverDies, p.anyServer(r), "", 0, between(r, time.Second, time.Minute)}}
		},
		func(p plan, r *rand.Rand) []fault {
			return []fault{{suspended, anyProcess(p, r), "", 0, between(r, 2*time.Second, 2*time.Minute)}}
		},
		func(p plan, r *rand.Rand) []fault { // several times: a race of milliseconds follows each
			host, all := p.anyHost(r), []fault(nil)
			for i := range 8 {
				from := time.Duration(i)*20*time.Second + between(r, 0, 10*time.Second)
				all = append(all, fault{nodeDeleted, host, "", from, from + time.Millisecond})
			}
			return all
		},
	}
	wanted := func(p plan, r *rand.Rand, least int) (all []fault) {
		for i := range p.Hosts {
			if len(all) < 4 && (r.IntN(3) > 0 || p.Hosts-i <= least-len(all)) {
				from := between(r, 0, time.Minute)
				all = append(all, fault{rebootWanted, hostName(i), "", from, from + time.Millisecond})
			}
		}
		return all
	}
	for range 4 { // reboots make most other faults worse
		all = append(all, func(p plan, r *rand.Rand) []fault { return wanted(p, r, 2) })
	}
	all = append(all,
		func(p plan, r *rand.Rand) []fault { // the last ones want to reboot while the first ones die unseen
			all := append(wanted(p, r, 1), fault{storeAway, "", "", 30 * time.Second, between(r, 40*time.Second, 70*time.Second)})
			for i := range max(1, p.Hosts/2) {
				from := between(r, 25*time.Second, 40*time.Second)
				all = append(all, fault{hostDies, hostName(i), "", from, from + between(r, 2*time.Minute, 4*time.Minute)})
			}
			return all
		},
		func(p plan, r *rand.Rand) []fault {
			all := wanted(p, r, 2)
			for range 3 {
				from := between(r, 0, 3*time.Minute)
				all = append(all, fault{slotReleased, p.anyServer(r), "", from, from + time.Millisecond})
			}
			return all
		},
		func(p plan, r *rand.Rand) []fault {
			host := p.anyHost(r)
			return []fault{{diskFull, host, "", 0, between(r, time.Minute, 4*time.Minute)}, {rebootWanted, host, "", 5 * time.Second, 6 * time.Second}}
		},
	)
	all = append(all,
		func(p plan, r *rand.Rand) []fault { // a host that was dead long before an outage lives again during it
			all := []fault{{storeAway, "", "", 0, between(r, 30*time.Second, 100*time.Second)}}
			for i := range p.Hosts {
				if r.IntN(2) == 0 {
					from := between(r, -150*time.Second, -60*time.Second)
					all = append(all, fault{hostDies, hostName(i), "", from, between(r, 0, all[0].To+20*time.Second)})
				}
			}
			return all
		},
		func(p plan, r *rand.Rand) []fault {
			host, all := p.anyHost(r), wanted(p, r, 2)
			for range 3 {
				from := between(r, 0, 3*time.Minute)
				all = append(all, fault{agentDies, host, "", from, from + between(r, time.Second, 20*time.Second)})
			}
			return all
		},
		func(p plan, r *rand.Rand) []fault {
			return append(wanted(p, r, 2), fault{checkFlaps, p.anyHost(r), "", 0, between(r, time.Minute, 3*time.Minute)})
		},
		func(p plan, r *rand.Rand) []fault { // persons do several things with one host
			host, all := p.anyHost(r), wanted(p, r, 1)
			does := []kind{personAsks, personAsks, personForces, personStops, personLeaves, slotReleased, nodeDeleted}
			for range 2 + r.IntN(3) {
				from := between(r, 0, 2*time.Minute)
				f := fault{does[r.IntN(len(does))], host, "", from, from + between(r, 5*time.Second, time.Minute)}
				if f.Kind == slotReleased {
					f.On = p.anyServer(r)
				}
				all = append(all, f)
			}
			return all
		},
	)
	if e == etcd {
		all = append(all, func(p plan, r *rand.Rand) []fault {
			from := between(r, 0, 10*time.Second)
			return append(wanted(p, r, 2), fault{storeBack, "", "", from, from + between(r, 10*time.Second, 3*time.Minute)})
		})
		all = append(all, func(_ plan, r *rand.Rand) []fault {
			return []fault{{storeBack, "", "", 0, between(r, 10*time.Second, 3*time.Minute)}}
		})
	}
	return all
}

// schedule adds the start and the end of a fault.
func (w *world) schedule(f fault) {
	begin, end := w.effect(f)
	w.at(f.From, "FAULT begins: "+f.String(), func() {
		w.begun = f.Kind
		begin()
	})
	if end != nil {
		w.at(f.To, "FAULT ends: "+f.String(), end)
	}
}

var errBroken = fmt.Errorf("%w: connection broken", controlplane.ErrUnavailable)

// effect returns what a fault does at its start and at its end. Of several equal faults at a time, the
// first start and the last end count.
func (w *world) effect(f fault) (begin, end func()) {
	first, last := w.single(f)
	if last == nil {
		return first, nil
	}
	key := fmt.Sprint(f.Kind, "/", f.On, "/", f.What)
	return func() {
			if w.active[key]++; w.active[key] == 1 {
				first()
			}
		}, func() {
			if w.active[key]--; w.active[key] == 0 {
				last()
			}
		}
}

// single is effect for a fault without equal ones.
func (w *world) single(f fault) (begin, end func()) {
	switch f.Kind {
	case roughCalls:
		return func() { w.rough = append(w.rough, f) }, func() {
			w.rough = slices.DeleteFunc(w.rough, func(other fault) bool { return other.Kind == f.Kind && other.On == f.On && other.What == f.What })
		}
	case cut, watchRefused, watchSilent, watchBroken, suspended:
		return w.ofProcess(f)
	case storeAway:
		return func() { w.away(true) }, func() { w.away(false) }
	case storeFull:
		return func() { w.storage.full = true }, func() { w.storage.full = false }
	case storeBack:
		return func() { w.storage.restored = w.store.Snapshot() }, w.restore
	case compacted:
		return w.store.Relist, nil
	case hostDies:
		h := w.host(f.On)
		return h.dies, h.bootsAgain
	case serverDies:
		s := w.server(f.On)
		return func() { s.process.kill() }, s.boots
	case rebootWanted:
		return func() { w.host(f.On).require(true) }, nil
	case diskFull:
		return func() { w.host(f.On).fill(true) }, func() { w.host(f.On).fill(false) }
	case agentDies:
		h := w.host(f.On)
		return h.dies, h.restarts
	case checkFlaps, personAsks, personForces, personStops, personLeaves:
		return w.host(f.On).person(f)
	case slotReleased:
		return func() { w.freeSlot(w.server(f.On)) }, nil
	case nodeDeleted:
		return func() { w.store.Remove(store.Nodes, f.On) }, nil
	}
	panic("no such fault: " + f.Kind)
}

// roughness returns the share of the requests of a process that have a fate of their own now.
func (w *world) roughness(q *request) float64 {
	most := 0.0
	for _, f := range w.rough {
		share := 0.0
		if _, err := fmt.Sscan(f.What, &share); err == nil && (f.On == "" || f.On == q.of.name) {
			most = max(most, share/100)
		}
	}
	return most
}

// network returns the process that a fault affects: the present one of that name.
func (w *world) network(name string) *process {
	if s := w.server(name); s != nil {
		return s.process
	}
	return w.host(name).process
}

// ofProcess returns the effect of a fault of one process.
func (w *world) ofProcess(f fault) (begin, end func()) {
	set := func(on bool) func() {
		return func() {
			p := w.network(f.On)
			p.change(func(n *network) {
				switch f.Kind {
				case cut:
					n.cut, n.hangs = on, on && f.What == hangs
				case watchRefused:
					n.refused[f.What] = on
				case watchSilent:
					n.silent[f.What] = on
				case suspended:
					n.suspended = on
				}
			})
			switch {
			case f.Kind == cut && f.What != hangs && on:
				p.breaks("", errBroken)
			case (f.Kind == watchRefused || f.Kind == watchBroken) && on:
				p.breaks(f.What, errBroken)
			}
		}
	}
	return set(true), set(false)
}

// away takes the leader of the store away, or gives it one.
func (w *world) away(away bool) {
	w.storage.away = away
	w.store.Away(away)
	if away {
		w.storage.since = time.Now()
		w.breakAll()
		return
	}
	w.longestAway = max(w.longestAway, time.Since(w.storage.since))
	if time.Since(w.storage.since) > slack {
		w.truth.slots.outage = time.Now()
	}
}

// breakAll ends all watches of all processes.
func (w *world) breakAll() {
	for _, s := range w.servers {
		s.process.breaks("", errBroken)
	}
	for _, h := range w.hosts {
		h.process.breaks("", errBroken)
	}
}

// restore gives the store the content of an earlier snapshot. Its members were stopped for that.
func (w *world) restore() {
	w.store.Restore(w.storage.restored)
	w.truth.restored(w)
	w.breakAll()
}

// obstacle returns why the store does not serve a request of any process; nil if it does.
func (w *world) obstacle(r memory.Request) error {
	switch {
	case local(r.Call):
	case w.storage.away:
		return fmt.Errorf("%w: no leader", controlplane.ErrUnavailable)
	case w.storage.full && writes(r.Call):
		return fmt.Errorf("%w: database space exceeded", controlplane.ErrUnavailable)
	}
	return nil
}

func writes(c memory.Call) bool {
	switch c {
	case memory.Create, memory.Update, memory.Delete, memory.Elect, memory.Set:
		return true
	}
	return false
}

// freeSlot makes a person release the slot of a host, if one has a slot.
func (w *world) freeSlot(s *server) {
	for _, name := range slices.Sorted(maps.Keys(w.truth.slots.holders)) {
		w.truth.slots.released[name] = time.Now()
		ctx, controllers := s.process.ctx, s.controllers
		go func() {
			_ = controllers.Reboots().Release(ctx, controlplane.DefaultRebootGroup, name, "person", "simulated")
		}()
		return
	}
}
