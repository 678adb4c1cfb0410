package reboots_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/slots"
)

// policy is what does not change in a walk.
type policy struct {
	slots        slots.Policy
	transactions bool // see port
	requests     int  // of the host
	start        faults
}

// faults are how often something may still happen.
type faults struct {
	flaps    int // a check of the host that waits fails, and succeeds again
	powerCut int // the host boots without having been asked to
	releases int // a person releases the slot of n1
	asks     int // x requests a slot by FleetLock
	crashes  int // the second server is killed
	failover int // the leader is replaced. A write of the old one may still arrive, unless the store compares the term
	losses   int // the answer to a write is lost
	lags     int // the leader does not see changes of the Node, or of the record, for a while
	replaced int // the Node is deleted, and registered again
}

// state is a state of all actors.
type state struct {
	world
	host   automaton
	leader leader
	second *operation // of the second server; nil if it does nothing
	late   *operation // of a leader that was replaced
	x      bool       // the FleetLock client x acts
	left   faults
}

// leader is the state of the leader: its copies, and the writes in progress.
type leader struct {
	old              [allObjects]*entry // old copies that it still has; nil for a copy of the present
	changes, answers *operation
}

// copies are what the leader decides from.
func (s *state) copies() [allObjects]*entry {
	copies := s.objects
	for at, e := range s.leader.old {
		if e != nil {
			copies[at] = e
		}
	}
	return copies
}

// move is a step of an actor, and the state after it.
type move struct {
	what string
	to   state
}

// renumber replaces the numbers of slots by the order in which they appear: only that they differ matters.
func renumber(text string) string {
	parts := strings.Split(text, "#")
	var numbers []string
	for i := 1; i < len(parts); i += 2 {
		if parts[i] == "" {
			continue
		}
		at := slices.Index(numbers, parts[i])
		if at < 0 {
			at, numbers = len(numbers), append(numbers, parts[i])
		}
		parts[i] = string(rune('A' + at))
	}
	return strings.Join(parts, "")
}

// key identifies a state. Of an object that was read, it matters what it says. Of the copy of a record that an answer
// depends on, it also matters whether the record has changed since. What an Update has read has not changed, see
// operation.current.
func (s *state) key() [sha256.Size]byte {
	var b strings.Builder
	texts := func(list ...*entry) {
		for _, e := range list {
			if b.WriteByte('|'); e != nil {
				b.WriteString(e.text)
			}
		}
	}
	texts(s.objects[:]...)
	texts(s.leader.old[:]...)
	fmt.Fprint(&b, "\n", s.host, s.x, s.left, s.leader.old[aNode] == nil, s.leader.old[aRecord] == nil, s.leader.old[aRecord] == s.objects[aRecord])
	for _, o := range []*operation{s.leader.changes, s.leader.answers, s.second, s.late} {
		if b.WriteByte('\n'); o == nil {
			continue
		}
		fmt.Fprint(&b, o.does, len(o.log), o.copies[aRecord] == s.objects[aRecord])
		texts(o.copies[:]...)
		before := o.log
		if o.edits != nil {
			before = before[:o.edits.calls]
		}
		for _, a := range before {
			switch a := a.(type) {
			case *entry:
				texts(a)
			case [allObjects]*entry:
				texts(a[:]...)
			case answer:
				fmt.Fprint(&b, a.err)
			}
		}
	}
	return sha256.Sum256([]byte(renumber(b.String())))
}

// walk visits all states that can be reached.
type walk struct {
	*testing.T
	policy
	seen    map[[sha256.Size]byte]*step
	settled map[string]bool
	due     map[string][]string
}

// step is how a state was reached, for the trace.
type step struct {
	what string
	from *step
}

func (w *walk) trace(s *step) string {
	var lines []string
	for ; s != nil; s = s.from {
		lines = append(lines, s.what)
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
}

// run visits all states, and returns their number.
func (w *walk) run(first state) int {
	type item struct {
		state
		*step
	}
	start := &step{what: "start"}
	w.seen[first.key()] = start
	for todo := []item{{first, start}}; len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, m := range w.moves(&s.state) {
			m.to.current()
			key := m.to.key()
			if w.seen[key] != nil {
				continue
			}
			here := &step{m.what + "\t" + m.to.String(), s.step}
			w.seen[key] = here
			if why := m.to.broken(); why != "" {
				w.Fatalf("%s:\n%s", why, w.trace(here))
			}
			if why := w.settle(m.to); why != "" {
				w.Fatalf("the fleet does not settle, %s:\n%s", why, w.trace(here))
			}
			todo = append(todo, item{m.to, here})
		}
	}
	return len(w.seen)
}

// String describes a state in a trace.
func (s *state) String() string {
	return fmt.Sprintf("host %s acts %t, x acts %t; Node %s; record %s", s.host.step, s.host.acts, s.x, textOf(s.objects[aNode]), textOf(s.objects[aRecord]))
}

// current updates what depends on the objects, after another actor has changed them.
func (s *state) current() {
	s.leader.changes, s.leader.answers = s.leader.changes.current(&s.world), s.leader.answers.current(&s.world)
	s.second, s.late = s.second.current(&s.world), s.late.current(&s.world)
	if s.host.acts && s.isExcused() {
		s.host.excused = true
	}
}

// isExcused reports whether a person has taken the slot from the host, or its Node was deleted.
func (s *state) isExcused() bool {
	e := s.objects[aNode]
	return e == nil || e.object.GetUID() != s.host.uid || e.place.slot != nil && e.place.slot.ID == s.host.request() && e.place.slot.Why == "lost"
}

// broken says which promise a state breaks; empty if it breaks none.
func (s *state) broken() string {
	var holders []slots.Holder
	if e := s.objects[aRecord]; e != nil {
		holders = e.slots.Holders
	}
	if len(holders) > 1 {
		return "the record gives one slot to two clients"
	}
	if s.x && s.host.acts && !s.host.excused {
		return "two clients act with one slot"
	}
	e := s.objects[aNode]
	if e == nil || e.place.slot == nil || e.place.slot.Granted == nil {
		return ""
	}
	for _, h := range holders {
		if h.Name("default") == e.place.slot.Slot && h.Client.Request == e.place.slot.ID && h.UID == e.object.GetUID() {
			return ""
		}
	}
	return "the Node says Granted, and the record does not"
}

// settle ends all faults: the operations in progress are lost, the client x withdraws, and a new leader starts. It
// returns what does not come to its end.
func (w *walk) settle(s state) string {
	key := fmt.Sprint(s.host.uid, s.host.step, s.host.id, s.host.acts)
	for _, e := range s.objects {
		if e != nil {
			key += "|" + e.text
		}
	}
	if key = renumber(key); w.settled[key] {
		return ""
	}
	w.settled[key] = true
	finish := func(o operation) {
		for next := &o; next != nil; {
			next, _ = w.advance(&s.world, *next, false)
		}
	}
	if s.objects[aRecord] != nil {
		finish(operation{does: toGiveBack})
	}
	if s.objects[aNode] == nil {
		s.register()
	}
	for range 40 {
		for _, does := range w.dueOf(s.objects) {
			finish(operation{does: does, copies: s.objects})
		}
		if !s.host.announce(&s.world, w.requests) && len(w.dueOf(s.objects)) == 0 {
			break
		}
	}
	record := s.objects[aRecord]
	switch {
	case s.host.step != "":
		return fmt.Sprintf("the host stays at step %s: %s", s.host.step, s.String())
	case s.objects[aNode].place.slot != nil:
		return "the Node keeps an answer: " + s.String()
	case record != nil && len(record.slots.Holders)+len(record.slots.Waiting) > 0:
		return "the record keeps a client: " + s.String()
	}
	return ""
}

// dueOf returns the operations that are due for a leader with these copies.
func (w *walk) dueOf(copies [allObjects]*entry) []string {
	key := ""
	for _, e := range copies {
		if key += "|"; e != nil {
			key += e.text
		}
	}
	key = renumber(key)
	names, known := w.due[key]
	if !known {
		world := world{}
		for _, a := range due(w.server(&port{world: &world, transactions: w.transactions}, copies)) {
			names = append(names, nameOf(a))
		}
		w.due[key] = names
	}
	return names
}

// TestEveryOrderOfStepsKeepsThePromises walks through all orders of the steps of a host, of the leader and of a second
// server with a person and a FleetLock client. Each call of the store is a step.
func TestEveryOrderOfStepsKeepsThePromises(t *testing.T) {
	part, err := slots.ParsePart("100%")
	if err != nil {
		t.Fatal(err)
	}
	one := slots.Policy{Group: controlplane.DefaultRebootGroup, Slots: 1, MaxUnavailable: part}
	more := 0
	if os.Getenv("HOSTLER_TEST_LONG") != "" {
		more = 1
	}
	type history struct {
		requests int
		faults
	}
	histories := map[string]history{
		"a person releases the slot":         {1, faults{releases: 1, asks: 1, lags: 1, losses: more}},
		"the server that releases is killed": {1, faults{releases: 1, crashes: 1, flaps: 1, asks: more}},
		"a check of the host fails":          {1, faults{flaps: 1 + more, asks: 1, lags: 1}},
		"the leader is replaced":             {1, faults{failover: 1, flaps: 1, asks: 1, releases: more}},
		"a leader does not know a release":   {1, faults{failover: 1, releases: 1, asks: more}},
		"answers are lost":                   {1, faults{losses: 1, flaps: 1, asks: 1, releases: more}},
		"the Node is deleted":                {1, faults{replaced: 1, asks: 1, lags: 1, releases: more}},
		"a host requests its next reboot":    {2, faults{powerCut: 1, asks: 1, releases: more}},
	}
	if more > 0 {
		histories["a leader does not know its grant"] = history{1, faults{losses: 1, lags: 1, releases: 1, flaps: 1}}
	}
	for name, c := range histories {
		for store, transactions := range map[string]bool{"etcd": true, "Kubernetes": false} {
			if raced && c.releases > 0 && c.asks > 0 { // these have the most orders
				continue
			}
			t.Run(name+", "+store, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := &walk{T: t, policy: policy{one, transactions, c.requests, c.faults}, seen: map[[sha256.Size]byte]*step{}, settled: map[string]bool{}, due: map[string][]string{}}
					first := state{left: c.faults, host: automaton{uid: "u1", step: controlplane.RebootWaiting, id: 1}}
					first.register()
					first.put(aRecord, recordOf(transactions))
					t.Logf("%d states", w.run(first))
				})
			})
		}
	}
}
