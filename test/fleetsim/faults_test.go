package fleetsim

import (
	"fmt"
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
	if e == etcd {
		all = append(all, func(_ plan, r *rand.Rand) []fault {
			return []fault{{storeBack, "", "", 0, between(r, 10*time.Second, 3*time.Minute)}}
		})
	}
	return all
}

// schedule adds the start and the end of a fault.
func (w *world) schedule(f fault) {
	begin, end := w.effect(f)
	w.at(f.From, "FAULT begins: "+f.String(), begin)
	if end != nil {
		w.at(f.To, "FAULT ends: "+f.String(), end)
	}
}

var errBroken = fmt.Errorf("%w: connection broken", controlplane.ErrUnavailable)

// effect returns what a fault does at its start and at its end. Of several equal faults at a time, the
// first start and the last end count.
func (w *world) effect(f fault) (begin, end func()) {
	begin, end = w.single(f)
	if end == nil {
		return begin, nil
	}
	key := fmt.Sprint(f.Kind, "/", f.On, "/", f.What)
	return func() {
			if w.active[key]++; w.active[key] == 1 {
				begin()
			}
		}, func() {
			if w.active[key]--; w.active[key] == 0 {
				end()
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
		return h.dies, h.boots
	case serverDies:
		s := w.server(f.On)
		return func() { s.process.kill() }, s.boots
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
	if !away {
		return
	}
	w.breakAll()
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
