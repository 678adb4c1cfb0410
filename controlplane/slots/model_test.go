package slots_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// errKilled simulates that a server is killed between its read and its write.
var errKilled = errors.New("killed")

// interrupted is the store of one server. It calls before ahead of each write.
type interrupted struct {
	store.Store
	before func() error
}

func (s interrupted) Update(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, edit func(store.Object) error) (store.Object, error) {
	return s.Store.Update(ctx, kind, name, pre, func(o store.Object) error {
		if err := edit(o); err != nil {
			return err
		}
		return s.before()
	})
}

func (s interrupted) Create(ctx context.Context, kind store.Kind, o store.Object) (store.Object, error) {
	if err := s.before(); err != nil {
		return nil, err
	}
	return s.Store.Create(ctx, kind, o)
}

// history is a random sequence of operations on a group.
type history struct {
	*testing.T
	*rand.Rand
	seed    uint64
	store   *memory.Store
	servers []*slots.Groups
	busy    []int // servers with a change in progress
	policy  slots.Policy
	nodes   slots.Nodes
	now     time.Time
	depth   int // number of nested operations
	uids    int
	// deleted has the UIDs of deleted Nodes. released has the clients that gave back or were released since the
	// last check.
	deleted  map[types.UID]bool
	released map[string]bool
	// agents has the requests on Nodes. seen has the requests that a leader sees: its watch may be late.
	agents, seen map[string]slots.AgentRequest
	requests     int // number of agents' requests so far
	last         slots.State
	maxSlots     int                // greatest number of slots since the last check
	overtaken    map[int64][]string // clients that overtook a request, by its number
	log          []string
}

var clients = []string{"a1", "a2", "a3", "b1", "b2", "x1", "x2"}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		T: t, Rand: rand.New(rand.NewPCG(seed, 31)), seed: seed, store: memory.New(memory.Options{EndsLeases: seed/4%2 == 0}),
		nodes: slots.Nodes{}, now: noon, deleted: map[types.UID]bool{}, released: map[string]bool{},
		overtaken: map[int64][]string{}, agents: map[string]slots.AgentRequest{},
	}
	h.policy = slots.Policy{Group: controlplane.DefaultRebootGroup, Slots: 1 + h.IntN(3), OneZoneAtATime: h.IntN(4) > 0, MaxUnavailable: part(t, []string{"0", "1", "50%", "100%"}[h.IntN(4)])}
	for range 3 {
		h.servers = append(h.servers, h.server())
	}
	for _, id := range clients[:5] {
		h.register(id)
	}
	return h
}

// server returns a new server process.
func (h *history) server() *slots.Groups {
	return slots.NewGroups(interrupted{h.store, h.interrupt}, "hostler-system")
}

// interrupt runs between a read and a write of a server: it may kill the server, or do another step.
func (h *history) interrupt() error {
	switch n := h.IntN(12); {
	case n == 0:
		h.note("it is killed before its write")
		return errKilled
	case n < 4 && h.depth < 2:
		h.depth++
		h.step()
		h.depth--
	}
	return nil
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *history) register(id string) {
	h.uids++
	uid := types.UID(fmt.Sprint("uid-", h.uids))
	h.store.Put(store.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: id, UID: uid}})
	h.nodes[id] = slots.Node{Name: id, UID: uid, Zone: id[:1], Group: controlplane.DefaultRebootGroup, Ready: true}
}

// change changes the group through a random server, whose answer may be lost. It fails on unexpected
// errors.
func (h *history) change(edit func(*slots.State) error) error {
	n := h.IntN(len(h.servers))
	for slices.Contains(h.busy, n) {
		n = (n + 1) % len(h.servers)
	}
	h.busy = append(h.busy, n)
	defer func() { h.busy = h.busy[:len(h.busy)-1] }()
	if h.IntN(15) == 0 {
		h.store.Inject(memory.Any, memory.Fault{LoseAnswer: true, Times: 1})
	}
	_, err := h.servers[n].Change(context.Background(), controlplane.DefaultRebootGroup, store.Term{}, edit)
	h.store.Heal()
	if errors.Is(err, errKilled) {
		h.servers[n] = h.server()
	}
	if err != nil && !errors.Is(err, errKilled) && !errors.Is(err, controlplane.ErrUnavailable) && !errors.Is(err, controlplane.ErrNotFound) {
		h.fail("change = %v", err)
	}
	return err
}

// step does one random operation.
func (h *history) step() {
	h.now = h.now.Add(time.Duration(h.IntN(600)) * time.Second)
	id := clients[h.IntN(len(clients))]
	switch n := h.IntN(28); {
	case n < 9 && h.agents[id].ID == "":
		h.ask(id)
	case n < 13:
		_ = h.giveBack(id)
	case n < 14:
		h.note("a person releases %s", id)
		h.released[id] = true
		_ = h.change(func(s *slots.State) error { s.Release(id, "anna", "broken", h.now); return nil })
	case n < 16:
		h.free()
	case n < 17:
		if node, is := h.nodes[id]; is {
			h.note("Node %s is deleted", id)
			h.deleted[node.UID] = true
			h.store.Remove(store.Nodes, id)
			delete(h.nodes, id)
		} else if id[0] != 'x' {
			h.note("Node %s is registered", id)
			h.register(id)
		}
	case n < 19:
		if node, is := h.nodes[id]; is {
			node.Ready = !node.Ready
			h.nodes[id] = node
			h.note("Node %s ready: %t", id, node.Ready)
		}
	case n < 23:
		h.request(id)
	case n < 27 && h.depth == 0: // not nested: there is only one leader
		h.lead()
	case n == 27:
		h.maxSlots = max(h.maxSlots, h.policy.Slots)
		h.policy.Slots = h.IntN(4)
		h.note("slots: %d", h.policy.Slots)
	}
}

// ask requests a slot. If the client gets one, judge checks that.
func (h *history) ask(id string) (got bool) {
	var before slots.State
	var wait *slots.Wait
	now := h.now
	err := h.change(func(s *slots.State) error {
		before = *s
		wait = s.Ask(client(id), h.policy, h.nodes, now)
		if held := before.Holder(id) != nil; wait == nil && !held {
			h.judge(before, *s, id, now)
		}
		return nil
	})
	h.note("%s asks: %+v, %v", id, wait, err)
	return err == nil && wait == nil
}

// judge fails if a client got a slot against the rules. It does not use the code under test.
func (h *history) judge(before, after slots.State, id string, now time.Time) {
	if len(before.Holders) >= h.policy.Slots || len(after.Holders) != len(before.Holders)+1 {
		h.fail("%s gets one of %d slots beside %d holders", id, h.policy.Slots, len(before.Holders))
	}
	node, isNode := h.nodes[id]
	if isNode && h.policy.OneZoneAtATime && h.otherZone(before, node) {
		h.fail("%s gets a slot beside holders of another zone", id)
	}
	if h.tooMany(before, id) {
		h.fail("%s gets a slot while too many Nodes are not ready", id)
	}
	oldest := true
	for _, older := range before.Waiting {
		overdue := older.Type == slots.FleetLock && now.Sub(older.Asked.Time) > max(15*time.Minute, 2*min(time.Hour, time.Duration(older.EverySeconds)*time.Second))
		if older.ID == id {
			break
		}
		if overdue || older.Paused || h.tooMany(before, older.ID) {
			continue
		}
		n, is := h.nodes[older.ID]
		may := !is || !h.policy.OneZoneAtATime || !h.otherZone(before, n)
		if oldest && may && h.policy.Slots-len(before.Holders) == 1 {
			h.fail("%s gets the only slot before %s, which may have it and asked first", id, older.ID)
		}
		oldest = false
		if may && h.policy.Slots-len(before.Holders) > 1 {
			continue // a slot is kept free for the older request
		}
		h.overtaken[older.Number] = append(h.overtaken[older.Number], id)
		if times := len(slices.DeleteFunc(slices.Clone(h.overtaken[older.Number]), func(by string) bool { return by != id })); times > len(clients) {
			h.fail("%s gets a slot before %s for the %dth time", id, older.ID, times)
		}
	}
}

func (h *history) otherZone(s slots.State, node slots.Node) bool {
	return slices.ContainsFunc(s.Holders, func(o slots.Holder) bool { return o.Node != "" && o.Zone != node.Zone })
}

// tooMany reports whether more Nodes than allowed are not ready, apart from holders and the Node id.
func (h *history) tooMany(s slots.State, id string) bool {
	notReady := 0
	for _, n := range h.nodes {
		held := slices.ContainsFunc(s.Holders, func(o slots.Holder) bool { return o.Node == n.Name })
		if !n.Ready && !held && n.Name != id {
			notReady++
		}
	}
	return notReady > h.policy.MaxUnavailable.Of(len(h.nodes))
}

// request changes the request of an agent.
func (h *history) request(id string) {
	r := h.agents[id]
	switch _, isNode := h.nodes[id]; {
	case !isNode || h.IntN(3) == 0:
		delete(h.agents, id)
		h.note("%s withdraws its request", id)
		return
	case r.ID == "" || h.IntN(3) == 0: // a new request, perhaps in place of another one
		h.requests++
		r = slots.AgentRequest{Client: slots.Client{ID: id, Type: slots.Agent, Request: fmt.Sprint("r", h.requests)}}
	}
	r.Paused = h.IntN(3) == 0
	h.agents[id] = r
	h.note("%s requests %s, paused: %t", id, r.Client.Request, r.Paused)
}

// lead does what the leader does with agents' requests, of which it may see an old state.
func (h *history) lead() {
	if h.seen == nil || h.depth > 2 || h.IntN(4) > 0 {
		h.seen = maps.Clone(h.agents)
	}
	var requests []slots.AgentRequest
	for _, id := range clients { // the order does not matter here
		if r, wants := h.seen[id]; wants {
			requests = append(requests, r)
		}
	}
	err := h.change(func(s *slots.State) error {
		for _, o := range s.Holders {
			if live, wants := h.agents[o.ID]; o.Type == slots.Agent && (!wants || live.Client.Request != o.Client.Request || live.Paused) {
				h.released[o.ID] = true
				s.Free(o, slots.GivenBack, "agent", h.now)
			}
		}
		s.UpdateQueue(requests, h.policy, h.nodes, h.now)
		before := *s
		for _, c := range s.Grant(h.policy, h.nodes, h.now) {
			if node := h.nodes[c.ID]; h.policy.OneZoneAtATime && h.otherZone(before, node) || h.tooMany(before, c.ID) || before.Request(c.ID) == nil || before.Request(c.ID).Paused {
				h.fail("%s gets a slot, and may not: %+v", c.ID, before)
			}
		}
		if len(s.Holders) > max(h.policy.Slots, len(before.Holders)) {
			h.fail("%d holders of %d slots", len(s.Holders), h.policy.Slots)
		}
		return nil
	})
	h.note("the leader has seen %d requests: %v", len(requests), err)
}

func (h *history) giveBack(id string) error {
	h.note("%s gives back", id)
	h.released[id] = true
	return h.change(func(s *slots.State) error { s.GiveBack(id, h.now); return nil })
}

// free frees the slots of deleted Nodes, as the leader does, from a State read before.
func (h *history) free() {
	s, err := slots.NewGroups(h.store, "hostler-system").Get(context.Background(), controlplane.DefaultRebootGroup)
	if err != nil {
		h.fail("Get() = %v", err)
	}
	for _, holder := range s.Holders {
		if holder.Node != "" && h.nodes[holder.Node].UID != holder.UID {
			h.note("the slot of %s is freed", holder.ID)
			_ = h.change(func(s *slots.State) error { s.Free(holder, slots.NodeDeleted, "server", h.now); return nil })
		}
	}
}

// serveAgents checks that every agent with a request gets a slot. Each holder reboots and gives it back.
func (h *history) serveAgents() {
	for id, r := range h.agents {
		r.Paused = false
		h.agents[id] = r
	}
	left := func() bool {
		return len(h.agents) > 0 || slices.ContainsFunc(h.last.Holders, func(o slots.Holder) bool { return o.Type == slots.Agent }) ||
			slices.ContainsFunc(h.last.Waiting, func(r slots.Request) bool { return r.Type == slots.Agent })
	}
	for round := 0; left(); round++ {
		if round > 100 {
			h.fail("agents have no slot: %v, %+v", h.agents, h.last)
		}
		h.now = h.now.Add(time.Minute)
		h.seen = nil
		h.lead()
		h.check()
		for _, o := range h.last.Holders {
			switch {
			case o.Type == slots.Agent && h.agents[o.ID].Client.Request == o.Client.Request:
				delete(h.agents, o.ID)
			case o.Type == slots.FleetLock:
				_ = h.giveBack(o.ID)
			}
		}
		for _, r := range h.last.Waiting { // FleetLock clients withdraw, and ask again later
			if r.Type == slots.FleetLock {
				_ = h.giveBack(r.ID)
			}
		}
	}
}

// check compares the stored State with the one before the step.
func (h *history) check() {
	s, err := slots.NewGroups(h.store, "hostler-system").Get(context.Background(), controlplane.DefaultRebootGroup)
	if err != nil {
		h.fail("Get() = %v", err)
	}
	if h.maxSlots = max(h.maxSlots, h.policy.Slots); len(s.Holders) > max(h.maxSlots, len(h.last.Holders)) {
		h.fail("%d holders of %d slots, %d before", len(s.Holders), h.maxSlots, len(h.last.Holders))
	}
	h.maxSlots = 0
	seen := map[string]bool{}
	for _, holder := range s.Holders {
		if seen[holder.ID] || s.Request(holder.ID) != nil {
			h.fail("%s is there twice: %+v", holder.ID, s)
		}
		seen[holder.ID] = true
	}
	for _, holder := range h.last.Holders {
		if !seen[holder.ID] && !h.released[holder.ID] && !h.deleted[holder.UID] {
			h.fail("%s has lost its slot", holder.ID)
		}
	}
	h.last, h.released = s, map[string]bool{}
}

func (h *history) fail(format string, args ...any) {
	h.Helper()
	h.Fatalf("history %d, %+v: %s\n%q", h.seed, h.policy, fmt.Sprintf(format, args...), h.log[max(0, len(h.log)-30):])
}

// settle ends all faults, and checks that every client gets a slot. Each holder reboots and gives it back.
// Each waiting client asks again every few minutes.
func (h *history) settle() {
	h.policy.Slots = max(h.policy.Slots, 1)
	for _, id := range clients[:5] {
		if _, there := h.nodes[id]; !there {
			h.register(id)
		}
		node := h.nodes[id]
		node.Ready = true
		h.nodes[id] = node
	}
	h.depth = 10
	for gone := true; gone; { // repeat: servers may be killed
		h.free()
		h.check()
		gone = slices.ContainsFunc(h.last.Holders, func(o slots.Holder) bool { return o.Node != "" && h.nodes[o.Node].UID != o.UID })
	}
	h.serveAgents()
	waiting := slices.Clone(clients)
	for round := 0; len(waiting) > 0; round++ {
		if round > 60 {
			h.fail("no slot for %v after %d rounds: %+v", waiting, round, h.last)
		}
		h.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
		var got []string
		for _, id := range waiting {
			h.now = h.now.Add(time.Minute)
			if h.ask(id) {
				got = append(got, id)
			}
		}
		for _, id := range got {
			for h.giveBack(id) != nil { // repeat until the client gets an answer
			}
		}
		for _, id := range clients { // clients whose answer was lost
			if h.last.Holder(id) != nil && !slices.Contains(waiting, id) {
				_ = h.giveBack(id)
			}
		}
		waiting = slices.DeleteFunc(waiting, func(id string) bool { return slices.Contains(got, id) })
		h.check()
	}
}

// TestRandomHistories makes three servers change one group while servers are killed, Nodes are deleted and
// answers are lost. It checks that there are never more holders than slots, that no client loses its slot,
// and that every client gets one in the end.
func TestRandomHistories(t *testing.T) {
	histories := uint64(1_000)
	if raced {
		histories = 250
	}
	if os.Getenv("HOSTLER_TEST_LONG") != "" {
		histories = 100_000
	}
	const each = 250 // number of histories in a subtest
	for first := uint64(0); first < histories; first += each {
		t.Run(fmt.Sprint("from ", first), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(each) {
				synctest.Test(t, func(t *testing.T) { runHistory(t, first+seed) })
			}
		})
	}
}

// runHistory runs the history of a seed.
func runHistory(t *testing.T, seed uint64) {
	h := newHistory(t, seed)
	for range 10 + h.IntN(20) {
		h.step()
		h.check()
	}
	if seed%4 == 0 { // only sometimes: this takes longer than the rest
		h.settle()
	}
}
