package reboots_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/controllertest"
	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/election"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
	"hostler.io/hostler/internal/loop"
)

// history is a random sequence of operations on a fleet.
type history struct {
	*testing.T
	seed   uint64
	fleet  *kubelets
	policy slots.Policy

	mu      sync.Mutex // guards the fields below
	random  *rand.Rand
	calm    bool              // no more faults, and no more requests
	active  map[string]string // IDs of requests, by the host that uses its slot
	excused map[string]bool   // hosts of active whose slot was released, or whose Node was deleted
	persons map[string]bool   // Nodes that a person has cordoned
	done    int               // number of reboots
	log     []string
}

func (h *history) n(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.random.IntN(n)
}

func (h *history) isCalm() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calm
}

func (h *history) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (h *history) fail(format string, args ...any) {
	h.mu.Lock()
	log := strings.Join(h.log[max(0, len(h.log)-60):], "\n")
	h.mu.Unlock()
	h.Fatalf("history %d, %+v: %s\n%s", h.seed, h.policy, fmt.Sprintf(format, args...), log)
}

// serve starts a server.
func (h *history) serve(name string) (stop func()) {
	p := h.fleet.process()
	var s store.Store = p
	if h.fleet.EndsLeases() { // this store evicts no pods
		s = p.Process
	}
	log, contact, changed := slog.New(slog.NewTextHandler(noter{h, name}, nil)), &store.Contact{}, loop.NewSignal()
	cache := podcache.New(changed)
	c := reboots.New(s, slots.NewGroups(s, "hostler-system"), contact, cache, changed, reboots.Policies{"default": h.policy}, []string{"zone"}, name, log)
	e := election.New(s, reboots.Name, name, log)
	ignore := func(error) {}
	end := controllertest.Run(h,
		func(ctx context.Context) error { return contact.Run(ctx, s.Ping, ignore) },
		func(ctx context.Context) error { return s.Follow(ctx, store.Nodes, store.AllChanges, c.Nodes()) },
		func(ctx context.Context) error { return s.Follow(ctx, pods, store.AllChanges, cache.Follower()) },
		func(ctx context.Context) error { return c.Run(ctx, ignore) },
		func(ctx context.Context) error { return c.RunReads(ctx, ignore) },
		func(ctx context.Context) error { return e.Run(ctx, c.Lead, ignore) },
	)
	return func() { p.Kill(); end() }
}

// noter writes log messages of a server to the log of a history.
type noter struct {
	h    *history
	name string
}

// Write implements io.Writer.
func (n noter) Write(text []byte) (int, error) {
	_, message, _ := strings.Cut(strings.TrimSpace(string(text)), "msg=")
	n.h.note("%s: %s", n.name, message)
	return len(text), nil
}

// host simulates a host and its agent.
type host struct {
	*history
	name   string
	id     string
	wanted time.Time
	n      int // number of requests
}

// to writes a step of the request on the Node. It reports whether the Node exists.
func (a *host) to(step controlplane.RebootStep) bool {
	there := edit(a.fleet.Store, a.name, func(n *corev1.Node) {
		setRequest(n, controlplane.RebootRequest{ID: a.id, Step: step, Since: metav1.Now(), Wanted: metav1.NewTime(a.wanted), Reason: "kernel", EmptiedByServer: !a.fleet.EndsLeases()})
	})
	a.note("%s: request %s at %s", a.name, a.id, step)
	return there
}

// slot returns the servers' answer to the current request; nil if there is none.
func (a *host) slot() *controlplane.RebootSlot {
	_, s := read(a.T, a.fleet.Store, a.name)
	if s == nil || s.ID != a.id {
		return nil
	}
	return s
}

// begins records that the host uses its slot, and checks that not too many hosts do.
func (a *host) begins() {
	a.mu.Lock()
	a.active[a.name] = a.id
	beside := 0
	for name := range a.active {
		if !a.excused[name] {
			beside++
		}
		if a.policy.OneZoneAtATime && !a.excused[name] && name[0] != a.name[0] {
			a.mu.Unlock()
			a.fail("%s acts beside %s of another zone", a.name, name)
		}
	}
	a.mu.Unlock()
	if beside > a.policy.Slots {
		a.fail("%d hosts act, there are %d slots: %v", beside, a.policy.Slots, a.active)
	}
}

func (a *host) ends() {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.active, a.name)
	delete(a.excused, a.name)
}

// pause waits for a random time. The agent may be down for longer.
func (a *host) pause(seconds int) {
	time.Sleep(time.Duration(a.history.n(seconds*1000)) * time.Millisecond)
	if a.history.n(20) == 0 && !a.isCalm() {
		a.note("%s does not answer for a while", a.name)
		time.Sleep(time.Duration(a.history.n(120)) * time.Second)
	}
}

// live makes requests until ctx ends and no more are due.
func (a *host) live(ctx context.Context) {
	for ctx.Err() == nil && !a.isCalm() {
		if a.history.n(3) > 0 { // otherwise the host requests the next reboot immediately
			a.pause(300)
		}
		a.n++
		a.id, a.wanted = fmt.Sprintf("%s-%d", a.name, a.n), time.Now()
		for ctx.Err() == nil && !a.reboot(ctx) {
		}
	}
}

// reboot makes one attempt, and reports whether the request is done.
func (a *host) reboot(ctx context.Context) bool {
	if a.history.n(2) == 0 || a.isCalm() {
		a.to(controlplane.RebootWanted)
		a.pause(120)
	}
	a.to(controlplane.RebootWaiting)
	for {
		if ctx.Err() != nil {
			return true
		}
		a.pause(5)
		if a.history.n(60) == 0 && !a.isCalm() {
			if a.to(controlplane.RebootDone); a.history.n(2) == 0 { // cancelled
				return true
			}
			a.to(controlplane.RebootWanted) // a window closes
			return false
		}
		if s := a.slot(); s != nil && s.Granted != nil {
			break
		}
		if n, _ := read(a.T, a.fleet.Store, a.name); n != nil && n.Annotations[controlplane.AnnotationReboot] == "" {
			a.to(controlplane.RebootWaiting) // the Node was deleted and registered again
		}
	}
	a.begins()
	for _, step := range []controlplane.RebootStep{controlplane.RebootGranted, controlplane.RebootDraining} {
		a.to(step)
		a.pause(5)
	}
	if why := a.drain(ctx); why != "" {
		a.note("%s: %s", a.name, why)
		a.ends()
		if a.history.n(3) == 0 {
			a.to(controlplane.RebootDone)
			return true
		}
		a.to(controlplane.RebootWanted)
		a.pause(1)
		return false
	}
	a.to(controlplane.RebootRebooting)
	a.pause(10)
	edit(a.fleet.Store, a.name, setReady(corev1.ConditionFalse))
	a.pause(30)
	edit(a.fleet.Store, a.name, setReady(corev1.ConditionTrue))
	a.to(controlplane.RebootVerifying)
	a.pause(30)
	a.mu.Lock()
	a.done++
	a.mu.Unlock()
	a.ends()
	a.to(controlplane.RebootDone)
	return true
}

// drain returns why there is to be no reboot.
func (a *host) drain(ctx context.Context) string {
	for end := time.Now().Add(2 * time.Hour); ; {
		a.pause(4)
		s := a.slot()
		switch {
		case ctx.Err() != nil:
			return "the test ends"
		case s == nil || s.Granted == nil:
			return "the slot was lost: " + describe(s)
		case s.Failed:
			return "it failed: " + s.Message
		case a.history.n(40) == 0 && !a.isCalm():
			return "the drain was cancelled"
		case a.fleet.EndsLeases():
			return ""
		case s.Emptied:
			return ""
		case time.Now().After(end) && a.isCalm():
			a.fail("%s is neither emptied nor refused after two hours: %s", a.name, describe(s))
		}
	}
}

// persons does what people do, until calm is set.
func (h *history) people(ctx context.Context, names []string) {
	for ctx.Err() == nil && !h.isCalm() {
		time.Sleep(time.Duration(h.n(60)) * time.Second)
		name := names[h.n(len(names))]
		switch n := h.n(10); {
		case n < 2:
			h.cordon(name)
		case n < 5:
			h.uncordon(name)
		case n < 6:
			h.release(name)
		case n < 7:
			h.replace(name)
		case n < 8:
			edit(h.fleet.Store, name, setReady([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}[h.n(3)]))
		default:
			h.fleet.block(h.n(3) == 0)
		}
	}
}

func (h *history) cordon(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	edit(h.fleet.Store, name, func(node *corev1.Node) {
		if !node.Spec.Unschedulable { // as kubectl does
			h.log = append(h.log, "a person cordons "+name)
			node.Spec.Unschedulable, h.persons[name] = true, true
		}
	})
}

func (h *history) uncordon(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.persons[name] {
		h.log = append(h.log, "a person uncordons "+name)
		delete(h.persons, name)
		edit(h.fleet.Store, name, func(node *corev1.Node) { node.Spec.Unschedulable = false })
	}
}

// release frees a slot as a person does.
func (h *history) release(name string) {
	h.mu.Lock()
	if h.active[name] == "" && h.n1(4) > 0 {
		h.mu.Unlock()
		return
	}
	h.excused[name] = true
	h.mu.Unlock()
	h.note("a person releases the slot of %s", name)
	other := reboots.New(h.fleet.Store, slots.NewGroups(h.fleet.Store, "hostler-system"), &store.Contact{}, podcache.New(), loop.NewSignal(), reboots.Policies{"default": h.policy}, nil, "other", slog.New(slog.DiscardHandler))
	err := other.Release(h.Context(), "default", name, "anna", "broken")
	h.note("its slot is released: %v", err)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.active[name] == "" {
		delete(h.excused, name) // the host must get another slot
	}
}

// n1 is n for a caller that holds mu.
func (h *history) n1(n int) int { return h.random.IntN(n) }

// replace deletes a Node, and registers another one with the same name.
func (h *history) replace(name string) {
	h.note("Node %s is deleted", name)
	h.mu.Lock()
	if h.active[name] != "" {
		h.excused[name] = true
	}
	delete(h.persons, name)
	h.mu.Unlock()
	h.fleet.Remove(store.Nodes, name)
	time.Sleep(time.Duration(h.n(20)) * time.Second)
	h.register(name)
}

func (h *history) register(name string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": name[:1]}}}
	setReady(corev1.ConditionTrue)(node)
	h.fleet.Put(store.Nodes, node)
}

// check checks that no cordon of a person is undone, and that each other cordon has a slot.
func (h *history) check(ctx context.Context, names []string) {
	for ctx.Err() == nil {
		time.Sleep(500 * time.Millisecond)
		for _, name := range names {
			h.mu.Lock()
			node, slot := read(h.T, h.fleet.Store, name)
			wrong := node != nil && h.persons[name] && !node.Spec.Unschedulable
			odd := node != nil && !h.persons[name] && node.Spec.Unschedulable && (slot == nil || !slot.Cordoned)
			h.mu.Unlock()
			if wrong {
				h.fail("a person's cordon of %s was undone", name)
			}
			if odd {
				h.fail("%s is cordoned, and nothing says why: slot %s", name, describe(slot))
			}
		}
	}
}

// schedule creates pods on schedulable Nodes.
func (h *history) schedule(ctx context.Context, nodes []string) {
	for i := 0; ctx.Err() == nil; i++ {
		name := nodes[h.n(len(nodes))]
		if node, _ := read(h.T, h.fleet.Store, name); node != nil && !node.Spec.Unschedulable && len(h.fleet.on(name)) < 4 {
			kind := []string{"free", "blocked"}[h.n(2)]
			h.fleet.pod(name, fmt.Sprintf("%s-%d", kind, i))
		}
		time.Sleep(time.Duration(h.n(20)) * time.Second)
	}
}

// TestRandomHistories simulates servers that are killed, deposed, cut off and see old states. Agents are
// cancelled, fail and pause. People cordon Nodes, release slots and delete Nodes. There must never be more active
// hosts than slots, and no server may undo a person's cordon. In the end, each request is done, and no Node is
// cordoned.
func TestRandomHistories(t *testing.T) {
	histories := 16
	if raced {
		histories = 4
	}
	if os.Getenv("HOSTLER_TEST_LONG") != "" {
		histories = 1000
	}
	for i := range 4 {
		t.Run(fmt.Sprint("part ", i), func(t *testing.T) {
			t.Parallel()
			for seed := i; seed < histories; seed += 4 {
				synctest.Test(t, func(t *testing.T) { lives(t, uint64(seed)) })
			}
		})
	}
}

func lives(t *testing.T, seed uint64) {
	h := &history{
		T: t, seed: seed, random: rand.New(rand.NewPCG(seed, 31)), active: map[string]string{}, excused: map[string]bool{}, persons: map[string]bool{},
		fleet: &kubelets{Store: memory.New(memory.Options{EndsLeases: seed%3 == 0})},
	}
	part, err := slots.ParsePart([]string{"1", "50%", "100%"}[h.n(3)])
	if err != nil {
		t.Fatal(err)
	}
	h.policy = slots.Policy{Group: "default", Slots: 1 + h.n(2), OneZoneAtATime: h.n(2) == 0, MaxUnavailable: part}
	names := []string{"a1", "a2", "a3", "b1", "b2"}
	for _, name := range names {
		h.register(name)
		h.fleet.pod(name, "daemon-"+name, daemon)
		h.fleet.pod(name, "mirror-"+name, mirror)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all, hosts sync.WaitGroup
	for _, name := range names {
		a := &host{history: h, name: name}
		hosts.Go(func() { a.live(ctx) })
	}
	all.Go(func() { h.people(ctx, names) })
	all.Go(func() { h.check(ctx, names) })
	if !h.fleet.EndsLeases() {
		all.Go(func() { h.schedule(ctx, names) })
	}
	stops := []func(){h.serve("s1"), h.serve("s2")}
	for i := range 40 {
		time.Sleep(time.Duration(h.n(60)) * time.Second)
		switch h.n(9) {
		case 0, 1, 2:
			k := h.n(len(stops))
			h.note("a server is killed")
			stops[k]()
			stops[k] = h.serve(fmt.Sprint("s", 3+i))
		case 3:
			h.fleet.Depose(reboots.Name)
		case 4:
			h.fleet.Relist()
		case 5:
			h.fleet.Inject(memory.Update, memory.Fault{LoseAnswer: true, Times: 1 + h.n(3)})
		case 6:
			h.note("watches report nothing for a while")
			h.fleet.Inject(memory.Follow, memory.Fault{Hang: true, Times: 2})
		case 7:
			h.fleet.Inject([]memory.Call{memory.Any, memory.Get, memory.Update, memory.Extend}[h.n(4)], memory.Fault{Err: controlplane.ErrUnavailable})
			time.Sleep(time.Duration(h.n(20)) * time.Second)
			h.fleet.Heal()
		case 8:
			h.fleet.Inject(memory.Update, memory.Fault{Delay: time.Duration(h.n(9)) * time.Second, Times: 1 + h.n(3)})
		}
	}
	h.settle(names, stops, &hosts)
	for _, stop := range stops {
		stop()
	}
	cancel()
	all.Wait()
	if h.done == 0 {
		t.Errorf("history %d: no host has rebooted", seed)
	}
}

// settle ends all faults, and waits until each requested reboot is done.
func (h *history) settle(names []string, stops []func(), hosts *sync.WaitGroup) {
	h.mu.Lock()
	h.calm = true
	h.mu.Unlock()
	h.note("all is calm")
	h.fleet.Heal()
	h.fleet.block(false)
	for i := range stops { // their watches may miss changes
		stops[i]()
		stops[i] = h.serve(fmt.Sprint("last", i))
	}
	time.Sleep(2 * time.Minute) // operations by persons may still be in progress
	h.fleet.block(false)
	for _, name := range names {
		h.uncordon(name)
		edit(h.fleet.Store, name, setReady(corev1.ConditionTrue))
	}
	ended := make(chan struct{})
	go func() { hosts.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(12 * time.Hour):
		h.fail("requests are not done: %v", h.active)
	}
	time.Sleep(2 * time.Minute)
	s, err := slots.NewGroups(h.fleet.Store, "hostler-system").Get(h.Context(), "default")
	if err != nil || len(s.Holders)+len(s.Waiting) > 0 {
		h.fail("in the end the group is %+v, %v", s, err)
	}
	for _, name := range names {
		node, slot := read(h.T, h.fleet.Store, name)
		if slot != nil || node.Spec.Unschedulable {
			h.fail("in the end Node %s has the slot %s, unschedulable: %t", name, describe(slot), node.Spec.Unschedulable)
		}
		for _, kind := range []string{"daemon-", "mirror-"} {
			if !slices.Contains(namesOf(h.fleet.on(name)), kind+name) {
				h.fail("pod %s%s is gone", kind, name)
			}
		}
	}
}
