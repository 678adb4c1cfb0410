package fleetsim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// The kinds of faults.
const (
	roughCalls    kind = "calls fail"     // a share of the requests of a process is lost, late or refused
	cut           kind = "cut off"        // no request reaches the store; What says whether there is an answer
	watchRefused  kind = "watch refused"  // a kind of objects can be neither listed nor watched
	statusRefused kind = "status refused" // a host can renew its Lease, and cannot write its Node
	watchSilent   kind = "watch silent"   // watches of a kind of objects report nothing
	watchBroken   kind = "watch broken"   // watches end
	memberLags    kind = "member lags"    // watches of a process report changes late: once in each time that What says
	storeAway     kind = "store away"     // the store has no leader
	storeFull     kind = "store full"     // the store accepts no writes
	storeBack     kind = "store restored" // at the end, it has the content of the start again
	storeSaved    kind = "store saved"    // storeReset restores that
	storeReset    kind = "saved store restored"
	callLate      kind = "call late"           // only the request of its moment
	compacted     kind = "history compacted"   // all watches list again
	hostDies      kind = "host dies"           // it boots again at the end
	serverDies    kind = "server killed"       // it starts again at the end
	serverStops   kind = "server stopped"      // it resigns, and starts again at the end
	suspended     kind = "suspended"           // nothing goes in or out of a process
	nodeDeleted   kind = "person deletes Node" // by a person
)

// More kinds of faults, and what makes hosts reboot.
const (
	rebootWanted  kind = "reboot wanted" // until the next boot
	diskFull      kind = "disk full"
	twinStarts    kind = "another machine has the name"
	diskBack      kind = "disk set back"        // a host boots from the disk that it had at the start
	slotReleased  kind = "person releases slot" // of the host that holds one, on a server
	agentDies     kind = "agent killed"         // it starts again at the end, and the host stays
	checkFlaps    kind = "check flaps"          // a host wants a reboot, and then not, until the end
	personAsks    kind = "person requests reboot"
	personForces  kind = "person requests reboot --now"
	personStops   kind = "person cancels reboot"
	personCordons kind = "person cordons"          // until the end; What says how
	personLeaves  kind = "person lets host leave"  // until the end
	policyChanges kind = "policy changes"          // of a server; at the end, it is that of the plan again
	clockStepped  kind = "clock stepped"           // of a host or a server, by What; it is right again at the end
	hostIsHostile kind = "host is hostile"         // it writes anything; at the end, it is installed again, and its Node deleted
	leasesEnded   kind = "store ends all Leases"   // as a member of etcd that led, was suspended and continues
	budgetForbids kind = "budget forbids"          // the pods of a host may not be evicted
	clientDies    kind = "FleetLock client killed" // at the end, a person releases its slot, and it starts again
	commandsFail  kind = "commands fail"           // most saves, or drains, or reboot commands of a host
)

// forGood is the What of a host that dies and does not boot again.
const forGood = "for good"

// hangs is the What of a cut without answers.
const hangs = "without an answer"

// schedule adds the start and the end of a fault.
func (w *world) schedule(f fault) {
	if f.waitsForMoment() {
		w.aimed = append(w.aimed, f)
		return
	}
	begin, end := w.effect(f)
	w.at(f.From, "FAULT begins: "+f.String(), func() {
		w.begun = f.Kind
		begin()
	})
	if end != nil {
		w.at(f.To, "FAULT ends: "+f.String(), end)
	}
}

// errStopped is why a server ends that was stopped, as systemd does it.
var errStopped = errors.New("the process was stopped")

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
	case roughCalls, commandsFail:
		return func() { w.rough = append(w.rough, f) }, func() {
			w.rough = slices.DeleteFunc(w.rough, func(other fault) bool { return other.Kind == f.Kind && other.On == f.On && other.What == f.What })
		}
	case cut, watchRefused, statusRefused, watchSilent, watchBroken, memberLags, suspended:
		return w.ofProcess(f)
	case storeAway:
		return func() { w.away(true) }, func() { w.away(false) }
	case storeFull:
		return func() { w.storage.full = true }, func() { w.storage.full = false }
	case storeBack:
		return func() { w.storage.restored = w.store.Snapshot() }, w.restore
	case callLate:
		return func() {}, nil
	case storeSaved:
		return func() { w.storage.restored = w.store.Snapshot() }, nil
	case storeReset:
		return w.restore, nil
	case budgetForbids:
		return func() { w.storage.forbidden[f.On] = true }, func() {
			w.storage.forbidden[f.On] = false
			w.storage.permitted = time.Now()
		}
	case leasesEnded:
		return func() {
			w.storage.ended = time.Now()
			w.store.EndLeases()
		}, nil
	case compacted:
		return w.store.Relist, nil
	case hostDies:
		h := w.host(f.On)
		if f.What == forGood {
			return func() {
				h.dies()
				h.gone = true
			}, nil
		}
		return h.dies, h.bootsAgain
	case serverDies:
		s := w.server(f.On)
		return func() { s.process.kill() }, s.bootsAgain
	case serverStops:
		s := w.server(f.On)
		return func() { s.process.cancel(errStopped) }, s.bootsAgain
	case rebootWanted:
		return func() { w.host(f.On).require(true) }, nil
	case diskFull:
		return func() { w.host(f.On).fill(true) }, func() { w.host(f.On).fill(false) }
	case twinStarts:
		return w.host(f.On).twin(f.What)
	case diskBack:
		return w.host(f.On).disk.save, w.host(f.On).bootsFromSaved
	case agentDies:
		h := w.host(f.On)
		return h.dies, h.restarts
	case clockStepped:
		by := durationOf(f.What)
		return func() { w.setClock(f.On, by) }, func() { w.setClock(f.On, -by) }
	case hostIsHostile:
		return w.host(f.On).becomesHostile, w.host(f.On).isRepaired
	case policyChanges:
		s := w.server(f.On)
		return func() { s.configure(parsePolicy(f.What)) }, func() { s.configure(w.plan.Policy) }
	case clientDies:
		c := w.clients[slices.IndexFunc(w.clients, func(c *client) bool { return c.name == f.On })]
		return func() { c.process.kill() }, c.died
	case checkFlaps, personCordons, personAsks, personForces, personStops, personLeaves:
		return w.host(f.On).person(f)
	case slotReleased:
		return func() { w.freeSlot(w.server(f.On)) }, nil
	case nodeDeleted:
		return func() {
			w.truth.forced(f.On) // its slot becomes free
			w.store.Remove(store.Nodes, f.On)
		}, nil
	}
	panic("no such fault: " + f.Kind)
}

func durationOf(what string) time.Duration {
	d, err := time.ParseDuration(what)
	if err != nil {
		panic(err)
	}
	return d
}

// failing are the commands of which most fail while commands fail: one of these groups.
var failing = [][]memory.Call{{commandFlush}, {commandDrain, commandSelfDrain, commandUndo}, {commandReboot}}

const mostFail = 0.7

// roughness returns the share of the requests of a process that have a fate of their own now.
func (w *world) roughness(q *request) float64 {
	most := 0.0
	for _, f := range w.rough {
		share := 0.0
		if f.Kind == commandsFail && f.On == q.of.name && slices.Contains(failing[w.plan.draw(f).IntN(len(failing))], q.Call) {
			most = max(most, mostFail)
		}
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
				case statusRefused:
					n.refused[string(statusRefused)] = on
				case watchSilent:
					n.silent[f.What] = on
				case memberLags:
					n.lag = 0
					if on {
						n.lag = durationOf(f.What)
					}
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
	w.storage.longestAway = max(w.storage.longestAway, time.Since(w.storage.since))
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
	for _, p := range w.twins {
		p.breaks("", errBroken)
	}
}

// restore gives the store the content of an earlier snapshot. Its members were stopped for that. On Kubernetes, the API
// servers are stopped, too, and half of the persons bump the revision, as the documentation of etcd recommends.
func (w *world) restore() {
	if w.plan.Engine == etcd {
		w.replace(w.storage.restored)
		return
	}
	passed := time.Since(w.start)
	r, snapshot := w.plan.draw("restore", passed), w.storage.restored
	if r.IntN(2) == 0 {
		snapshot = snapshot.Bumped()
	}
	begin, end := w.effect(fault{Kind: storeAway})
	begin()
	most := max(w.plan.Length-passed, leastRestore) // the faults end in time
	w.at(passed+min(between(r, leastRestore, time.Minute), most), "the API servers start with the restored store", func() {
		w.replace(snapshot)
		end()
	})
}

// leastRestore is shorter than any real restore, so that servers also meet one that they do not notice.
const leastRestore = 6 * time.Second

// replace gives the store the content of a snapshot.
func (w *world) replace(snapshot memory.Snapshot) {
	w.breakAll() // before: all at once, they would draw their pauses in any order
	w.store.Restore(snapshot)
	w.truth.restored(w)
}

// obstacle returns why the store does not serve a request of any process; nil if it does.
func (w *world) obstacle(r memory.Request) error {
	switch {
	case local(r.Call), r.Call == lockAsked, r.Call == lockAnswered:
	case w.storage.away:
		return fmt.Errorf("%w: no leader", controlplane.ErrUnavailable)
	case w.storage.full && writes(r.Call):
		return fmt.Errorf("%w: database space exceeded", controlplane.ErrUnavailable)
	}
	return nil
}

func writes(c memory.Call) bool {
	switch c {
	case memory.Create, memory.Update, memory.Delete, memory.Evict, memory.Elect, memory.Set:
		return true
	}
	return false
}

// freeSlot makes a person release the slot of a host, if one has a slot.
func (w *world) freeSlot(s *server) {
	for _, name := range slices.Sorted(maps.Keys(w.truth.slots.holders)) {
		w.freeSlotOf(s, name)
		return
	}
}

// freeSlotOf makes a person release the slot of a client on a server. Without an error, the client does not have that slot
// any more, unless a restored store has it again.
func (w *world) freeSlotOf(s *server, name string) {
	w.truth.forced(name)
	ctx, controllers, at, before := s.process.ctx, s.controllers, time.Now(), w.truth.slots.holders[name]
	go func() {
		if controllers.Reboots().Release(ctx, controlplane.DefaultRebootGroup, name, "person", "simulated") != nil {
			return
		}
		if now, holds := w.truth.slots.holders[name]; holds && now.Number == before.Number && w.truth.slots.restored.Before(at) {
			w.fail("a wish of a person is carried out, refused or dropped with a word", "a person has released the slot of %s, which still has it", name)
		}
	}()
}
