package reboots_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// oneSlot is a group with one slot. Nodes that are not ready do not matter.
func oneSlot(t *testing.T) reboots.Policies {
	part, err := slots.ParsePart("100%")
	if err != nil {
		t.Fatal(err)
	}
	return reboots.Policies{"default": {Group: "default", Slots: 1, MaxUnavailable: part}}
}

// journal is a log in memory.
type journal struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

// take returns the messages since the last call, with the client or Node of each.
func (j *journal) take() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var lines []string
	for line := range strings.Lines(j.buf.String()) {
		if m := regexp.MustCompile(`msg="?([^"=]+[^"= ])"? .*(?:id|node)=(\S+)`).FindStringSubmatch(line); m != nil {
			lines = append(lines, m[1]+" "+m[2])
		}
	}
	j.buf.Reset()
	return strings.Join(lines, ", ")
}

// TestWhatIsLoggedOfSlots makes each step of a FleetLock client twice. The second time, it changes nothing.
func TestWhatIsLoggedOfSlots(t *testing.T) {
	inBubble(t, func(r rig) {
		log := &journal{}
		c := r.serveAs("s", r.store, oneSlot(t), slog.New(slog.NewTextHandler(log, nil)))
		log.take()
		requests := func(id string) func() error {
			return func() error { _, err := c.Request(r.Context(), "default", id); return err }
		}
		request := requests("x")
		back := func() error { return c.GiveBack(r.Context(), "default", "x") }
		release := func() error { return c.Release(r.Context(), "default", "x", "anna", "gone") }
		for _, step := range []struct {
			do          func() error
			want, again string
			err         error // of the second time
		}{
			{request, "gave slot x", "", nil},
			{back, "slot given back x", "", nil},
			{request, "gave slot x", "", nil},
			{requests("y"), "", "", nil}, // it waits
			{release, "slot released x", "", controlplane.ErrNotFound},
		} {
			if err := step.do(); err != nil {
				t.Fatal(err)
			}
			if got := log.take(); got != step.want {
				t.Errorf("log = %q, want %q", got, step.want)
			}
			if err := step.do(); !errors.Is(err, step.err) {
				t.Errorf("second time = %v, want %v", err, step.err)
			}
			if got := log.take(); got != step.again {
				t.Errorf("log of the second time = %q, want %q", got, step.again)
			}
		}
		r.store.Inject(memory.Update, memory.Fault{Err: controlplane.ErrUnavailable})
		if request() == nil {
			t.Error("Request() = nil while the store is away, want an error")
		}
		if got := log.take(); got != "" {
			t.Errorf("log of a failure = %q, want nothing", got)
		}
	})
}

// TestAServerKnowsWhatOthersHaveGiven has two servers that do nothing else.
func TestAServerKnowsWhatOthersHaveGiven(t *testing.T) {
	inBubble(t, func(r rig) {
		first, second := r.serveGroups("s1", r.store, oneSlot(t)), r.serveGroups("s2", r.store, oneSlot(t))
		for _, servers := range [][2]*reboots.Controller{{first, second}, {second, first}} {
			if why := r.asks(servers[0], "x"); why != "" {
				t.Fatalf("x gets no slot: %s", why)
			}
			time.Sleep(soon)
			if g := servers[1].Report().Groups[0]; len(g.Holders) != 1 {
				t.Errorf("holders = %+v, want the one that the other server has given the slot", g.Holders)
			}
			r.gives(servers[0], "x")
		}
		before := r.store.Calls(memory.Get)
		time.Sleep(time.Minute)
		if reads := r.store.Calls(memory.Get) - before; reads > 14 {
			t.Errorf("%d reads in a minute, want one of each server every ten seconds", reads)
		}
	})
}

func TestTheOtherGroups(t *testing.T) {
	inBubble(t, func(r rig) {
		c := r.serveGroups("s", r.store, reboots.Policies{"a": {}, "b": {}, "c": {}})
		if got := c.Others("b"); !slices.Equal(got, []string{"a", "c"}) {
			t.Errorf("Others() = %q, want a and c", got)
		}
	})
}

// busy is a store in which a client gives back its slot, and gets another one, after each read of the group.
type busy struct {
	store.Store
	meanwhile func()
	reads     atomic.Int32
}

// Get implements store.Store.
func (b *busy) Get(ctx context.Context, kind store.Kind, name string) (store.Object, error) {
	o, err := b.Store.Get(ctx, kind, name)
	if b.meanwhile != nil && kind.Name == store.Slots {
		b.reads.Add(1)
		b.meanwhile()
	}
	return o, err
}

// TestASlotThatIsNewIsNotReleased has a person who releases the slot of a client that always has another one meanwhile.
func TestASlotThatIsNewIsNotReleased(t *testing.T) {
	inBubble(t, func(r rig) {
		other := slots.NewGroups(r.store, "")
		policy := oneSlot(t)["default"]
		change := func() {
			if _, err := other.Change(r.Context(), "default", store.Term{}, func(s *slots.State) error {
				s.GiveBack("x", time.Now())
				s.Ask(slots.Client{ID: "x", Type: slots.FleetLock}, policy, nil, time.Now())
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
		change()
		b := &busy{Store: r.store}
		c := reboots.New(b, slots.NewGroups(b, ""), &store.Contact{}, nil, make(chan struct{}, 1), oneSlot(t), nil, "s", slog.New(slog.DiscardHandler))
		b.meanwhile = change
		if err := c.Release(r.Context(), "default", "x", "anna", "gone"); !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), "has just received a slot") {
			t.Errorf("Release() = %v, want that the client has another slot", err)
		}
		if n := b.reads.Load(); n != 5 {
			t.Errorf("%d reads, want five attempts", n)
		}
		if s := r.want("after the release", "x"); len(s.Releases) == 0 || s.Releases[0].Cause != slots.GivenBack {
			t.Errorf("releases = %+v, want none by a person", s.Releases)
		}
	})
}

// TestARestoredStore goes back to a moment before n1 got the slot that x had given back.
func TestARestoredStore(t *testing.T) {
	inBubble(t, func(r rig) {
		var silent, busy atomic.Pointer[string] // the host that gives no sign of life, or says that it is amid a reboot
		is := func(p *atomic.Pointer[string], node string) bool { s := p.Load(); return s != nil && *s == node }
		alive := func(node string, _ types.UID, _, _ time.Time) lifecycle.Sign {
			return lifecycle.Sign{Alive: !is(&silent, node), Idle: !is(&silent, node) && !is(&busy, node)}
		}
		c := r.serveAs("s", r.store, oneSlot(t), slog.New(slog.DiscardHandler), func(c *reboots.Controller) { c.Alive = alive })
		r.node("n1", "a", corev1.ConditionTrue, at("r1", controlplane.RebootWanted))
		r.node("n2", "a", corev1.ConditionTrue)
		if why := r.asks(c, "x"); why != "" {
			t.Fatalf("x gets no slot: %s", why)
		}
		before := r.store.Snapshot()
		r.gives(c, "x")
		edit(r.store, "n1", at("r1", controlplane.RebootWaiting))
		r.want("before", "n1")
		edit(r.store, "n1", at("r1", controlplane.RebootRebooting))
		time.Sleep(soon)

		n1, n2 := "n1", "n2"
		silent.Store(&n1)
		r.store.Restore(before)
		r.want("restored", "x")
		if wait, err := c.Request(r.Context(), "default", "x"); err == nil {
			t.Errorf("Request() while n1 may reboot = %+v, want an error", wait)
		}
		silent.Store(&n2)
		if wait, err := c.Request(r.Context(), "default", "x"); err == nil || !strings.HasSuffix(err.Error(), ": n2") {
			t.Errorf("Request() while n2 may reboot = %+v, %v, want an error that names it", wait, err)
		}
		if g := c.Report().Groups[0]; !slices.Equal(g.Awaited, []string{"n2"}) {
			t.Errorf("Report() awaits %q, want n2", g.Awaited)
		}
		silent.Store(nil)
		busy.Store(&n2)
		if wait, err := c.Request(r.Context(), "default", "x"); err == nil || !strings.HasSuffix(err.Error(), ": n2") {
			t.Errorf("Request() while n2 says that it reboots = %+v, %v, want an error that names it", wait, err)
		}
		busy.Store(&n1) // then its Node says that, too
		edit(r.store, "n1", at("r1", controlplane.RebootRebooting))
		r.want("adopted", "x", "n1")
		busy.Store(nil)
		edit(r.store, "n1", at("r1", controlplane.RebootWanted))
		r.want("ended", "x")
		if wait, err := c.Request(r.Context(), "default", "x"); err != nil || wait != nil {
			t.Errorf("Request() while no host reboots = %+v, %v, want the slot", wait, err)
		}
		edit(r.store, "n1", at("r1", controlplane.RebootRebooting)) // it writes that again
		r.want("adopted", "x", "n1")
		if wait, err := c.Request(r.Context(), "default", "x"); err == nil || strings.HasSuffix(err.Error(), ": ") {
			t.Errorf("Request() beside n1 = %+v, %v, want an error", wait, err)
		}
		r.store.Remove(store.Nodes, "n1")
		r.want("without n1", "x")
		if wait, err := c.Request(r.Context(), "default", "x"); err != nil || wait != nil {
			t.Errorf("Request() alone = %+v, %v, want the slot", wait, err)
		}
	})
}

// TestARestoredStoreWaitsForNoHostThatHasItsSlot has a host that reboots with the slot of a FleetLock client of its name.
func TestARestoredStoreWaitsForNoHostThatHasItsSlot(t *testing.T) {
	inBubble(t, func(r rig) {
		alive := func(string, types.UID, time.Time, time.Time) lifecycle.Sign {
			return lifecycle.Sign{Alive: true, Idle: true}
		}
		c := r.serveAs("s", r.store, oneSlot(t), slog.New(slog.DiscardHandler), func(c *reboots.Controller) { c.Alive = alive })
		r.node("n1", "a", corev1.ConditionTrue)
		if why := r.asks(c, "n1"); why != "" {
			t.Fatalf("n1 gets no slot: %s", why)
		}
		edit(r.store, "n1", at("r1", controlplane.RebootRebooting))
		r.store.Restore(r.store.Snapshot())
		time.Sleep(time.Minute)
		if wait, err := c.Request(r.Context(), "default", "n1"); err != nil || wait != nil {
			t.Errorf("Request(n1) = %+v, %v, want its slot", wait, err)
		}
		if why := r.asks(c, "x"); why != slots.Full {
			t.Errorf("x: %q, want %q", why, slots.Full)
		}
	})
}

// TestAHostThatRebootsRightAfterARestoreHasNotReportedIt has a host that gives a last sign of life after the restore.
func TestAHostThatRebootsRightAfterARestoreHasNotReportedIt(t *testing.T) {
	inBubble(t, func(r rig) {
		var heard atomic.Pointer[time.Time]
		heard.Store(new(time.Now()))
		alive := func(_ string, _ types.UID, since, _ time.Time) lifecycle.Sign {
			alive := !heard.Load().Before(since)
			return lifecycle.Sign{Alive: alive, Idle: alive}
		}
		c := r.serveAs("s", r.store, oneSlot(t), slog.New(slog.DiscardHandler), func(c *reboots.Controller) { c.Alive = alive })
		r.node("n1", "a", corev1.ConditionTrue)
		time.Sleep(time.Minute)
		r.store.Restore(r.store.Snapshot())
		time.Sleep(5 * time.Second)
		heard.Store(new(time.Now()))
		time.Sleep(10 * time.Minute)
		if wait, err := c.Request(r.Context(), "default", "x"); err == nil && (wait == nil || wait.Reason != slots.Unseen) {
			t.Errorf("Request() = %+v, want none: n1 may be down for a reboot", wait)
		}
		heard.Store(new(time.Now()))
		if why := r.asks(c, "x"); why != "" {
			t.Errorf("x: %q, want a slot: n1 lives, and has not reported a reboot", why)
		}
	})
}

// TestAHostThatHasJustBootedMayStillReboot has a restored store, and a host that boots: it has not yet said that it
// reboots.
func TestAHostThatHasJustBootedMayStillReboot(t *testing.T) {
	inBubble(t, func(r rig) {
		alive := func(string, types.UID, time.Time, time.Time) lifecycle.Sign {
			return lifecycle.Sign{Alive: true, Idle: true}
		}
		c := r.serveAs("s", r.store, oneSlot(t), slog.New(slog.DiscardHandler), func(c *reboots.Controller) { c.Alive = alive })
		r.node("n1", "a", corev1.ConditionTrue)
		r.store.Restore(r.store.Snapshot())
		time.Sleep(time.Minute)
		edit(r.store, "n1", func(n *corev1.Node) { n.Status.NodeInfo.BootID = "boot-2" })
		time.Sleep(29 * time.Second)
		if why := r.asks(c, "x"); why != slots.Unseen {
			t.Errorf("x: %q, want %q", why, slots.Unseen)
		}
		time.Sleep(2 * time.Second)
		if why := r.asks(c, "x"); why != "" {
			t.Errorf("x: %q, want a slot", why)
		}
	})
}

// TestAHostWithoutASignOfLifeKeepsOthersFromSlotsForFiveMinutes has a host that stays Ready for ever. After that time it
// counts as not ready.
func TestAHostWithoutASignOfLifeKeepsOthersFromSlotsForFiveMinutes(t *testing.T) {
	began := func() func() time.Time { now := time.Now(); return func() time.Time { return now } }
	for name, c := range map[string]struct {
		allowed string
		known   func() time.Time // since when signs of life are known
		then    slots.WaitReason
	}{
		"one may be missing":                {"1", nil, ""},
		"none may be missing":               {"0", nil, slots.Unavailable},
		"signs of life are not known":       {"1", func() time.Time { return time.Time{} }, slots.Unseen},
		"signs of life are known again now": {"1", time.Now, slots.Unseen},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r rig) {
				known := c.known
				if known == nil {
					known = began()
				}
				allowed, err := slots.ParsePart(c.allowed)
				if err != nil {
					t.Fatal(err)
				}
				alive := func(name string, _ types.UID, _, _ time.Time) lifecycle.Sign {
					return lifecycle.Sign{Alive: name != "n1", Known: known()}
				}
				policies := reboots.Policies{"default": {Group: "default", Slots: 1, MaxUnavailable: allowed}}
				s := r.serveAs("s", r.store, policies, slog.New(slog.DiscardHandler), func(c *reboots.Controller) { c.Alive = alive })
				r.node("n1", "a", corev1.ConditionTrue)
				r.node("n2", "a", corev1.ConditionTrue)
				time.Sleep(4 * time.Minute)
				if why := r.asks(s, "x"); why != slots.Unseen {
					t.Errorf("x: %q, want %q", why, slots.Unseen)
				}
				time.Sleep(2 * time.Minute)
				if why := r.asks(s, "x"); why != c.then {
					t.Errorf("x after 5 minutes: %q, want %q", why, c.then)
				}
			})
		})
	}
}

// TestOneRequestAtATimeHoldsTheFacts has several FleetLock clients that ask while the store does not answer a write. The
// facts of a large fleet take much memory.
func TestOneRequestAtATimeHoldsTheFacts(t *testing.T) {
	inBubble(t, func(r rig) {
		var facts atomic.Int64
		server := r.serveAs("server-1", r.store, oneSlot(t), slog.New(slog.DiscardHandler), func(s *reboots.Controller) {
			s.Alive = func(string, types.UID, time.Time, time.Time) lifecycle.Sign {
				facts.Add(1)
				return lifecycle.Sign{Alive: true, Idle: true, Known: time.Now()}
			}
		})
		r.node("n1", "a", corev1.ConditionTrue)
		answers := make(chan struct{})
		r.store.Inject(memory.Any, memory.Fault{Until: answers})
		synctest.Wait()
		before := facts.Load()
		ctx, cancel := context.WithCancel(r.Context())
		var asked sync.WaitGroup
		for i := range 5 {
			asked.Go(func() { _, _ = server.Request(ctx, "default", fmt.Sprint("x", i)) })
		}
		synctest.Wait()
		if got := facts.Load() - before; got != 1 {
			r.Errorf("%d requests hold facts, want 1", got)
		}
		cancel()
		close(answers)
		asked.Wait()
	})
}
