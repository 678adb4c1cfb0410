// Package server is the server role. It connects stores, elections and controllers, and answers the
// API.
//
// It changes nothing on the host that it runs on.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/controllers/heartbeats"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/election"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/controlplane/server/config"
	"hostler.io/hostler/controlplane/server/fleetlock"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/systemd/notify"
)

// loopStore is the loop that checks whether the store answers.
const loopStore = "store"

// stopTimeout limits how long loops may take to end; the leadership is resigned in this time.
const stopTimeout = 15 * time.Second

// Options are what a server needs in addition to its configuration.
type Options struct {
	Config   config.Config
	Reload   func() (config.Config, error) // reads the current files
	Read     func() (config.Config, error) // the same, and logs nothing
	Store    store.Store
	Events   Events // nil if no Events are published
	Silences Silences
	Version  string
	Getenv   func(string) string
	Unsetenv func(string) error
	Log      *slog.Logger
	Level    *slog.LevelVar
}

// Server is one replica of the server role: the controllers, and the sockets on which it answers.
type Server struct {
	*Controllers
	fleetlock *fleetlock.Server
	socket    net.Listener
	notifier  *notify.Notifier

	reloads chan chan<- reloaded // requests to reload, with the channel for the result

	scraped shared // of all metrics

	mu     sync.Mutex // guards config
	config config.Config
}

// controlled is a controller and its state on this server.
type controlled struct {
	name     string
	shared   bool   // kube-controller-manager has this controller, too
	foreign  string // why it does not apply to this store; empty if it does
	runs     bool
	yields   *loop.Gate // closed while another program has this job; nil if no other program can
	election *election.Election
	lead     func(context.Context, store.Term) error
	report   func() report
	follows  []follow // the kinds that it reads
	loops    []timed  // its loops
	// discovers are loops that read a store whose kinds are not known in advance. They are paused
	// while the controller yields.
	discovers []timed
}

// follow is a kind of objects, and the Follower that receives them.
type follow struct {
	kind  store.Kind
	scope store.Scope
	to    store.Follower
}

// timed is a loop. It fails if it sends no heartbeat for its patience; 0 for no limit.
type timed struct {
	name     string
	patience time.Duration
	run      func(ctx context.Context, heartbeat func(error)) error
}

// New builds a server and opens its socket.
func New(o Options) (*Server, error) {
	candidate, err := candidateName()
	if err != nil {
		return nil, err
	}
	supervised, notifier := o.Getenv("NOTIFY_SOCKET") != "", notify.New(o.Getenv, o.Unsetenv)
	if o.Silences == nil {
		passed, passing := notify.PassedFiles(o.Getenv, o.Unsetenv)
		var keeping error
		o.Silences, keeping = silencesOf(passed, notifier, supervised, o.Config.API.Socket+".silence")
		if err := errors.Join(passing, keeping); err != nil {
			o.Log.Warn("cannot keep for how long hosts are unreachable until the next start", "error", err)
		}
	}
	s := &Server{Controllers: NewControllers(o, candidate), config: o.Config, reloads: make(chan chan<- reloaded), notifier: notifier}
	s.fleetlock = fleetlock.New(s.reboots, o.Log.With("component", "fleetlock"))
	s.fleetlock.PasswordFile = o.Config.Reboots.PasswordFile
	if o.Config.Reboots.Listen != "" {
		s.add(timed{"fleetlock", time.Minute, s.serveFleetLock})
	}
	if o.Config.Metrics.Listen != "" {
		s.add(timed{"metrics", 0, s.serveMetrics})
	}
	if s.socket, err = listen.Socket(o.Config.API.Socket); err != nil {
		return nil, err
	}
	return s, nil
}

// candidateName returns the name of this process in elections: the host name and a unique part.
func candidateName() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name of this host: %w", err)
	}
	return fmt.Sprintf("%s_%d_%x", host, os.Getpid(), time.Now().UnixNano()&0xffffff), nil
}

// controlGarbage builds the controller of all objects with owners.
func (s *Controllers) controlGarbage() *controlled {
	c := &controlled{
		name: garbagecollector.Name, shared: true, lead: s.garbage.Lead, report: func() report { return reportOfGarbage(s.garbage.Report()) },
		loops: []timed{{garbagecollector.Name, time.Minute, s.garbage.Run}},
	}
	if d, able := s.o.Store.(garbagecollector.Discoverer); able {
		c.discovers = append(c.discovers, timed{"kinds of objects", 2 * time.Minute, func(ctx context.Context, heartbeat func(error)) error {
			return s.garbage.RunKinds(ctx, d, heartbeat)
		}})
		return c
	}
	c.loops = append(c.loops, timed{"leases of deleted nodes", time.Minute, s.garbage.RunLookups})
	for _, f := range s.garbage.Follows() {
		c.follows = append(c.follows, follow{f.Kind, f.Scope, f.To})
	}
	return c
}

// controlHeartbeats builds the controller of the setting, if the store has settings.
func (s *Controllers) controlHeartbeats() *controlled {
	settings, able := s.o.Store.(store.Settings)
	if !able {
		return &controlled{
			name: heartbeats.Name, foreign: "does not apply to " + s.o.Store.Type() + ", which has no setting for all hosts",
			report: func() report { return report{actions: func() []answer.Action { return []answer.Action{} }} },
		}
	}
	h := heartbeats.New(settings, s.contact, s.o.Config.Heartbeats.MaxPerSecond, s.o.Log)
	s.heartbeats = h
	return &controlled{
		name: heartbeats.Name, lead: h.Lead, report: func() report { return reportOfHeartbeats(h.Report()) },
		follows: []follow{{store.Nodes, store.AllChanges, h.Nodes()}},
		loops:   []timed{{heartbeats.Name, time.Minute, h.Run}, {"setting " + store.LeaseDuration, time.Minute, h.RunReads}},
	}
}

// control adds the election to a controller that runs here.
func (s *Controllers) control(c *controlled) *controlled {
	runs, named := s.o.Config.Runs(c.name)
	c.runs, c.election = runs && c.foreign == "", election.New(s.o.Store, c.name, s.candidate, s.o.Log)
	if c.runs && c.shared && !named && s.o.Store.Type() == kubernetes.Type {
		c.yields = loop.NewGate("checking for kube-controller-manager")
	}
	return c
}

// fillLoops adds the loops, in the order in which `hostler fleet status` shows them.
func (s *Controllers) fillLoops() {
	s.add(timed{loopStore, 30 * time.Second, func(ctx context.Context, heartbeat func(error)) error {
		return s.contact.Run(ctx, s.o.Store.Ping, heartbeat)
	}})
	if runs, _ := s.o.Config.Runs(lifecycle.Name); runs {
		s.resumeSilence()
		s.add(timed{"silence of hosts", time.Minute, s.keepSilence})
	}
	yields := false
	var running []*controlled
	for _, c := range s.controllers {
		if c.runs {
			running, yields = append(running, c), yields || c.yields != nil
		}
	}
	for _, f := range merged(running) {
		s.loops = append(s.loops, s.follow(f).Eager(store.FollowRetry))
	}
	for _, c := range running {
		for _, l := range c.loops {
			s.add(l)
		}
		for _, l := range append(c.discovers, timed{"election of " + c.name, time.Minute, func(ctx context.Context, heartbeat func(error)) error {
			return c.election.Run(ctx, c.lead, heartbeat)
		}}) {
			s.addGated(l, c.yields)
		}
	}
	if yields {
		s.add(timed{"kube-controller-manager", 0, s.watchOther})
	}
	if s.events != nil {
		s.add(timed{"events", 0, func(ctx context.Context, heartbeat func(error)) error {
			heartbeat(nil)
			return s.events.Run(ctx)
		}})
	}
}

// follow returns the loop of a Follow.
func (s *Controllers) follow(f follow) *loop.Loop {
	return loop.New(f.kind.Name, 0, nil).Do(func(ctx context.Context, l *loop.Loop) error {
		return s.o.Store.Follow(ctx, f.kind, f.scope, listed{f.to, l.Heartbeat})
	})
}

// merged returns one follow for each kind that controllers read, with all their Followers, and all changes if one of
// them needs those.
func merged(controllers []*controlled) []follow {
	var all []follow
	receivers := map[string]store.Followers{}
	for _, c := range controllers {
		for _, f := range c.follows {
			known := receivers[f.kind.Name]
			i := slices.IndexFunc(all, func(other follow) bool { return other.kind.Name == f.kind.Name })
			switch {
			case i < 0:
				all = append(all, f)
			case f.scope == store.AllChanges:
				all[i].scope = f.scope
			}
			if !slices.Contains(known, f.to) {
				receivers[f.kind.Name] = append(known, f.to)
			}
		}
	}
	for i, f := range all {
		all[i].to = receivers[f.kind.Name]
	}
	return all
}

func (s *Controllers) add(t timed) {
	s.loops = append(s.loops, loop.New(t.name, t.patience, nil).Do(func(ctx context.Context, l *loop.Loop) error { return t.run(ctx, l.Heartbeat) }))
}

// addGated adds a loop that is paused while a gate is closed; a nil gate never closes.
func (s *Controllers) addGated(t timed, gate *loop.Gate) {
	if gate == nil {
		s.add(t)
		return
	}
	s.loops = append(s.loops, loop.New(t.name, t.patience, nil).Do(func(ctx context.Context, l *loop.Loop) error {
		return gate.While(ctx, l, func(ctx context.Context) error { return t.run(ctx, l.Heartbeat) })
	}))
}

// listed is a Tracker that sends a heartbeat after each list.
type listed struct {
	store.Follower
	heartbeat func(error)
}

// Synced implements store.Follower.
func (l listed) Synced() {
	l.Follower.Synced()
	l.heartbeat(nil)
}

// Confirmed implements store.Confirmer.
func (l listed) Confirmed(at time.Time) { store.Confirmed(l.Follower, at) }

// Reached implements store.Tracker.
func (l listed) Reached(version string) { store.Reached(l.Follower, version) }

// Run runs the server until a signal stops it: SIGTERM and SIGINT stop it, SIGHUP reloads the
// configuration. It resigns leadership before it returns.
func (s *Server) Run(signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var loops sync.WaitGroup
	loops.Go(func() { s.Supervise(ctx) })
	api := &http.Server{Handler: s.routes(), ConnContext: listen.WithPeer, ReadHeaderTimeout: 30 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	failed := make(chan error, 1)
	loops.Go(func() {
		if err := api.Serve(listen.Users(s.socket, s.o.Log)); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	})
	loops.Go(func() {
		s.loops.Feed(ctx, s.notifier.WatchdogInterval(), func() { s.notify(s.notifier.Watchdog()) }, s.o.Log)
	})
	s.notify(s.notifier.Ready())
	s.o.Log.Info("server started", "version", s.o.Version, "candidate", s.candidate, "store", s.o.Store.Type(), "endpoint", s.o.Store.Endpoint(), "socket", s.o.Config.API.Socket)
	err := s.await(signals, failed)
	s.notify(s.notifier.Stopping())
	cancel()
	_ = api.Close()
	ended := make(chan struct{})
	go func() {
		loops.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(stopTimeout):
		err = errors.Join(err, fmt.Errorf("loops did not stop within %s", stopTimeout))
	}
	closing := s.o.Store.Close()
	if s.o.Events != nil {
		closing = errors.Join(closing, s.o.Events.Close())
	}
	if closing != nil {
		s.o.Log.Warn("cannot close the store", "error", closing)
	}
	s.o.Log.Info("server stopped")
	return err
}

// await handles signals until a signal or a failure ends the server.
func (s *Server) await(signals <-chan os.Signal, failed <-chan error) error {
	for {
		select {
		case err := <-failed:
			return fmt.Errorf("serve the API: %w", err)
		case result := <-s.reloads:
			result <- s.reload()
		case sig := <-signals:
			if sig != syscall.SIGHUP {
				return nil
			}
			s.reload()
		}
	}
}

// notify logs that a notification to the service manager failed.
func (s *Server) notify(err error) {
	if err != nil {
		s.o.Log.Warn("service manager", "error", err)
	}
}
