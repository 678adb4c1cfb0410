package heartbeats_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/controllertest"
	"hostler.io/hostler/controlplane/controllers/heartbeats"
	"hostler.io/hostler/controlplane/election"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// rig is a fleet in a store, in a bubble of synctest.
type rig struct {
	*testing.T
	store *memory.Store
	hosts int
}

func inBubble(t *testing.T, test func(*rig)) {
	synctest.Test(t, func(t *testing.T) { test(&rig{T: t, store: memory.New(memory.Options{EndsLeases: true})}) })
}

// grow stores or deletes Nodes until there are that many.
func (r *rig) grow(hosts int) {
	for ; r.hosts < hosts; r.hosts++ {
		r.store.Put(store.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", r.hosts)}})
	}
	for ; r.hosts > hosts; r.hosts-- {
		r.store.Remove(store.Nodes, fmt.Sprintf("n%d", r.hosts-1))
	}
}

// want checks the setting.
func (r *rig) want(value string, own bool) {
	r.Helper()
	synctest.Wait()
	if s := r.setting(); s.Value != value || s.Own != own {
		r.Errorf("setting = %+v, want %q, own %t", s, value, own)
	}
}

func (r *rig) setting() store.Setting {
	r.Helper()
	s, err := r.store.Setting(context.Background(), store.LeaseDuration)
	if err != nil {
		r.Fatal(err)
	}
	return s
}

// fleetStore is a store with settings.
type fleetStore interface {
	store.Store
	store.Settings
}

// replica is one server.
type replica struct {
	*heartbeats.Controller
	election *election.Election
	stop     func()
}

// serve starts a server on a store. The end of the test stops it.
func (r *rig) serve(name string, s fleetStore, most float64) *replica {
	log, contact := slog.New(slog.DiscardHandler), &store.Contact{}
	c := &replica{Controller: heartbeats.New(s, contact, most, log), election: election.New(s, heartbeats.Name, name, log)}
	ignore := func(error) {}
	c.stop = controllertest.Run(r,
		func(ctx context.Context) error { return contact.Run(ctx, s.Ping, ignore) },
		func(ctx context.Context) error { return s.Follow(ctx, store.Nodes, store.AllChanges, c.Nodes()) },
		func(ctx context.Context) error { return c.Run(ctx, ignore) },
		func(ctx context.Context) error { return c.RunReads(ctx, ignore) },
		func(ctx context.Context) error { return c.election.Run(ctx, c.Lead, ignore) },
	)
	return c
}

// slack is how late a change may be, because there is a pause between decisions.
const slack = 200 * time.Millisecond

func TestAFleetThatGrowsAndShrinks(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.grow(30)
		s := r.serve("s", r.store, 3)
		time.Sleep(10 * time.Second)
		r.want("", false)
		r.grow(31)
		time.Sleep(slack)
		r.want("50s", true)
		r.grow(30)
		time.Sleep(time.Minute)
		r.want("50s", true)
		r.grow(100)
		time.Sleep(slack)
		r.want("2m20s", true)
		if d := s.Report().Decision; d.Hosts != 100 {
			t.Errorf("decision = %+v, want one of 100 hosts", d)
		}
		r.grow(10)
		time.Sleep(slack)
		r.want("", false)
		time.Sleep(time.Minute)
		if w := s.Report().Writes; w.Stored != 3 || w.Failed+w.Conflict != 0 {
			t.Errorf("writes = %+v, want three that were stored", w)
		}
	})
}

func TestWhatAPersonSetsStays(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.store.PutSetting(store.LeaseDuration, "1m")
		r.grow(100)
		s := r.serve("s", r.store, 3)
		time.Sleep(time.Minute)
		r.want("1m", false)
		// The person's value is removed, so the server chooses again.
		r.store.PutSetting(store.LeaseDuration, "")
		time.Sleep(11 * time.Second)
		r.want("2m20s", true)
		// A person sets the same value, and the fleet changes before the server has read it.
		r.store.PutSetting(store.LeaseDuration, "2m20s")
		r.grow(1000)
		time.Sleep(time.Minute)
		r.want("2m20s", false)
		s.SetMax(1000)
		time.Sleep(time.Minute)
		r.want("2m20s", false)
		if reason := s.Report().Decision.Reason; reason != `a person has set lease-duration to "2m20s"` {
			t.Errorf("reason = %q", reason)
		}
	})
}

func TestSwitchedOffItChangesNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.grow(100)
		s := r.serve("s", r.store, 3)
		time.Sleep(10 * time.Second)
		r.want("2m20s", true)
		s.SetMax(0)
		r.grow(10)
		time.Sleep(time.Minute)
		r.want("2m20s", true)
		s.SetMax(300)
		time.Sleep(slack)
		r.want("", false)
	})
}

func TestFaultsOfTheStore(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.grow(100)
		r.store.Inject(memory.Setting, memory.Fault{Err: controlplane.ErrForbidden})
		s := r.serve("s", r.store, 3)
		time.Sleep(time.Minute)
		if p := s.Report().Paused; p != "reading the setting" {
			t.Errorf("paused = %q", p)
		}
		r.store.Heal()
		r.store.Inject(memory.Set, memory.Fault{LoseAnswer: true, Times: 1})
		time.Sleep(20 * time.Second)
		r.want("2m20s", true)
		r.store.Inject(memory.Set, memory.Fault{Err: controlplane.ErrForbidden})
		r.grow(200)
		time.Sleep(10 * time.Second)
		r.want("2m20s", true)
		if failing := s.Report().Failing["settings/lease-duration"]; !errors.Is(failing, controlplane.ErrForbidden) {
			t.Errorf("failing = %v, want %v", failing, controlplane.ErrForbidden)
		}
		r.store.Heal()
		time.Sleep(2 * time.Minute)
		r.want("4m30s", true)
		// Without the store, the server does not decide.
		r.store.Inject(memory.Ping, memory.Fault{Err: controlplane.ErrUnavailable})
		time.Sleep(10 * time.Second)
		r.grow(1000)
		time.Sleep(time.Minute)
		r.want("4m30s", true)
		r.store.Heal()
		time.Sleep(5 * time.Second)
		r.want("22m20s", true)
	})
}

// TestServersThatAreKilledKeepTheRateAndWhatPeopleSet kills leaders while the fleet changes and a
// person sometimes sets values.
func TestServersThatAreKilledKeepTheRateAndWhatPeopleSet(t *testing.T) {
	rounds := uint64(4)
	if os.Getenv("HOSTLER_TEST_LONG") != "" {
		rounds = 40
	}
	for seed := range rounds {
		inBubble(t, func(r *rig) { killServers(r, seed) })
	}
}

func killServers(r *rig, seed uint64) {
	const most = 3
	random := rand.New(rand.NewPCG(seed, 5))
	start := func() (*replica, *memory.Process) {
		m := r.store.Process()
		return r.serve(fmt.Sprint("s", random.Uint64()), m, most), m
	}
	first, firstStore := start()
	second, secondStore := start()
	for range 30 {
		r.grow(random.IntN(400))
		persons := ""
		if random.IntN(4) == 0 {
			persons = fmt.Sprintf("%dm", 1+random.IntN(50))
		}
		if persons != "" || !r.setting().Own {
			r.store.PutSetting(store.LeaseDuration, persons)
		}
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
		if first.election.Status().Leading {
			first, second, firstStore, secondStore = second, first, secondStore, firstStore
		}
		secondStore.Kill()
		second.stop()
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
		second, secondStore = start()
		time.Sleep(15*time.Second + 3*slack) // until the next leader acts
		if persons != "" {
			r.want(persons, false)
			continue
		}
		// The server may need one more read to see that a person has removed a value.
		time.Sleep(10*time.Second + slack)
		d := heartbeats.Decide(heartbeats.Facts{Hosts: r.hosts, Setting: r.setting(), MaxPerSecond: most})
		if len(d.Now) > 0 || d.PerSecond > most {
			r.Fatalf("seed %d: %d hosts have Leases of %v, want %+v: %+v", seed, r.hosts, d.Lease, d.Now, first.Report())
		}
	}
}
