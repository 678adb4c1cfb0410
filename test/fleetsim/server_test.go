package fleetsim

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane/controllers/clones"
	"hostler.io/hostler/controlplane/controllers/heartbeats"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	role "hostler.io/hostler/controlplane/server"
	"hostler.io/hostler/controlplane/server/config"
	"hostler.io/hostler/controlplane/server/fleetlock"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// server is a server of the fleet. It outlives its processes.
type server struct {
	w           *world
	name        string
	starts      int
	since       time.Time // when the present process started
	process     *process
	controllers *role.Controllers
	fleetlock   *fleetlock.Server
	policies    []effective // by time; the last one is the present one
	silence     silence
}

// commandSave saves the silence of hosts.
const commandSave memory.Call = "Save"

// keeper keeps the silence of a process of a server.
type keeper struct {
	*silence
	process *process
}

// Save implements server.Silences.
func (k keeper) Save(saved lifecycle.Silence, taken time.Time) error {
	return k.process.Do(k.process.ctx, memory.Request{Call: commandSave, Object: k.process.name}, func() error {
		k.save(saved, taken)
		return nil
	})
}

// silence is what a process of a server has left to the next one.
type silence struct {
	mu    sync.Mutex // guards the fields below
	saved lifecycle.Silence
	taken time.Time
}

func (s *silence) save(saved lifecycle.Silence, taken time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved, s.taken = saved, taken
}

// Load implements server.Silences.
func (s *silence) Load() (lifecycle.Silence, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saved, s.taken, nil
}

func newServer(w *world, name string) *server {
	s := &server{w: w, name: name, process: newProcess(w.carrier, name)}
	s.configure(w.plan.Policy)
	return s
}

// boots starts a process of the server.
// bootsAgain starts the server again after its process has ended, unless another fault has done that.
func (s *server) bootsAgain() {
	if s.process.ctx.Err() != nil {
		s.boots()
	}
}

func (s *server) boots() {
	s.starts++
	s.since = time.Now()
	s.process = newProcess(s.w.carrier, s.name)
	c := config.Default()
	c.Controllers = []string{"*", "-" + clones.Name, "-" + heartbeats.Name}
	c.Reboots.Groups = s.policies[len(s.policies)-1].groups()
	s.controllers = role.NewControllers(role.Options{
		Config: c, Store: s.front(), Version: "1", Log: s.w.journal.logger(s.name), Level: new(slog.LevelVar), Silences: keeper{&s.silence, s.process},
	}, fmt.Sprintf("%s_%d", s.name, s.starts))
	s.fleetlock = fleetlock.New(s.controllers.Reboots(), s.w.journal.logger(s.name))
	ctx, controllers := s.process.ctx, s.controllers
	go controllers.Supervise(ctx)
}

// front returns the store of the present process.
func (s *server) front() store.Store {
	view := s.w.store.Over(s.process)
	f := front{view, s.process}
	if s.w.plan.Engine == etcd {
		return f
	}
	return evicting{f, view.Evicting(s.w.forbids)}
}

// evicting is the front of a store whose pods can be evicted.
type evicting struct {
	front
	memory.Evicting
}

// Kinds implements garbagecollector.Discoverer.
func (evicting) Kinds(context.Context) (kinds []store.Kind, stale func(store.Kind) bool, err error) {
	for _, k := range []store.Kind{store.Nodes, store.Leases, store.Pods(false), tickets} {
		kinds = append(kinds, k.Metadata())
	}
	return kinds, func(store.Kind) bool { return false }, nil
}

// front is the store of a server's process, whose watches faults can end.
type front struct {
	*memory.Store
	process *process
}

// Follow implements store.Store.
func (f front) Follow(ctx context.Context, kind store.Kind, scope store.Scope, to store.Follower) error {
	if _, metadata := kind.New().(*metav1.PartialObjectMetadata); metadata { // another watch may follow the whole objects
		ctx = context.WithValue(ctx, loopName{}, "metadata")
	}
	return f.process.watching(ctx, kind.Name, func(ctx context.Context) error {
		return f.Store.Follow(ctx, kind, scope, follower{to, f.process.clock})
	})
}
