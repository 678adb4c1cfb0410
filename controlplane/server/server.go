// Package server is the server role: it wires stores, elections and controllers, and answers the API.
//
// It never touches the host that it runs on.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/election"
	"hostler.io/hostler/controlplane/server/config"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/configfile"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/systemd/notify"
)

// loopStore is the loop that knows whether the store answers.
const loopStore = "store"

// stopTimeout bounds how long loops may take to end: leadership is given up meanwhile.
const stopTimeout = 15 * time.Second

// Options are what a server needs beside its configuration.
type Options struct {
	Config   config.Config
	Reload   func() (config.Config, error)
	Store    store.Store
	Version  string
	Getenv   func(string) string
	Unsetenv func(string) error
	Log      *slog.Logger
	Level    *slog.LevelVar
}

// Server is one replica of the server role.
type Server struct {
	o         Options
	candidate string
	contact   *store.Contact
	lifecycle *controlled
	nodes     *lifecycle.Controller
	loops     loop.Set
	socket    net.Listener
	notifier  *notify.Notifier

	mu     sync.Mutex // guards config
	config config.Config
}

// controlled is a controller on this server.
type controlled struct {
	name     string
	runs     bool
	yields   *loop.Gate // closed while another program does the job; nil where there is none
	election *election.Election
}

// New builds a server, and opens its socket.
func New(o Options) (*Server, error) {
	candidate, err := candidateName()
	if err != nil {
		return nil, err
	}
	s := &Server{
		o: o, candidate: candidate, contact: &store.Contact{}, config: o.Config,
		notifier: notify.New(o.Getenv, o.Unsetenv),
	}
	s.nodes = lifecycle.New(o.Store, s.contact, o.Config.NodeLifecycle.Policy(), o.Config.NodeLifecycle.ZoneLabels, o.Log)
	s.lifecycle = s.control(lifecycle.Name)
	s.fillLoops()
	if s.socket, err = listen.Socket(o.Config.API.Socket); err != nil {
		return nil, err
	}
	return s, nil
}

// candidateName is the name of this process in elections: the host name, and a part that is unique there.
func candidateName() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name of this host: %w", err)
	}
	return fmt.Sprintf("%s_%d_%x", host, os.Getpid(), time.Now().UnixNano()&0xffffff), nil
}

func (s *Server) control(name string) *controlled {
	runs, named := s.o.Config.Runs(name)
	c := &controlled{name: name, runs: runs, election: election.New(s.o.Store, name, s.candidate, s.o.Log)}
	if runs && !named && s.o.Store.Type() == "kubernetes" {
		c.yields = loop.NewGate("checking for kube-controller-manager")
	}
	return c
}

// fillLoops lists the loops in the order in which `hostler fleet status` shows them.
func (s *Server) fillLoops() {
	add := func(name string, patience time.Duration, do func(context.Context, *loop.Loop) error) {
		s.loops = append(s.loops, loop.New(name, patience, nil).Do(do))
	}
	add(loopStore, 30*time.Second, func(ctx context.Context, l *loop.Loop) error {
		return s.contact.Run(ctx, s.o.Store.Ping, l.Heartbeat)
	})
	if s.lifecycle.runs {
		add("nodes", 0, func(ctx context.Context, l *loop.Loop) error { return s.nodes.FollowNodes(ctx, l.Heartbeat) })
		add("leases", 0, func(ctx context.Context, l *loop.Loop) error { return s.nodes.FollowLeases(ctx, l.Heartbeat) })
		add(lifecycle.Name, time.Minute+3*time.Duration(s.o.Config.NodeLifecycle.MonitorPeriod), func(ctx context.Context, l *loop.Loop) error { return s.nodes.Run(ctx, l.Heartbeat) })
		add("election of "+lifecycle.Name, time.Minute, func(ctx context.Context, l *loop.Loop) error {
			elect := func(ctx context.Context) error { return s.lifecycle.election.Run(ctx, s.nodes.Lead, l.Heartbeat) }
			if s.lifecycle.yields == nil {
				return elect(ctx)
			}
			return s.lifecycle.yields.While(ctx, l, elect)
		})
	}
	if s.lifecycle.yields != nil {
		add("kube-controller-manager", 0, s.watchOther)
	}
	if address := s.o.Config.Metrics.Listen; address != "" {
		add("metrics", 0, s.serveMetrics)
	}
}

// Run runs the server until a signal ends it: SIGTERM and SIGINT stop it, SIGHUP reloads the
// configuration. Leadership is given up before it returns.
func (s *Server) Run(signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var loops sync.WaitGroup
	for _, l := range s.loops {
		loops.Go(func() { l.Supervise(ctx, s.o.Log) })
	}
	api := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
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
	if closing := s.o.Store.Close(); closing != nil {
		s.o.Log.Warn("cannot close the store", "error", closing)
	}
	s.o.Log.Info("server stopped")
	return err
}

// await handles signals until one of them, or a failure, ends the server.
func (s *Server) await(signals <-chan os.Signal, failed <-chan error) error {
	for {
		select {
		case err := <-failed:
			return fmt.Errorf("serve the API: %w", err)
		case sig := <-signals:
			if sig != syscall.SIGHUP {
				return nil
			}
			s.reload()
		}
	}
}

// reload takes over a changed configuration, or refuses it as a whole.
func (s *Server) reload() {
	s.notify(s.notifier.Reloading())
	defer func() { s.notify(s.notifier.Ready()) }()
	next, err := s.o.Reload()
	if err != nil {
		s.o.Log.Error("configuration rejected, the old one stays effective", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := configfile.Changed(s.config, next)
	for _, key := range changed {
		if !configfile.Live[config.Config](key) {
			s.o.Log.Error("configuration rejected, the old one stays effective", "error", key+" needs a restart: systemctl restart hostler-server")
			return
		}
	}
	s.config = next
	s.nodes.SetPolicy(next.NodeLifecycle.Policy())
	if err := s.o.Level.UnmarshalText([]byte(next.Log.Level)); err != nil {
		s.o.Log.Warn("log level stays", "error", err)
	}
	s.o.Log.Info("configuration reloaded", "changed", changed)
}

// notify logs that the service manager could not be told something.
func (s *Server) notify(err error) {
	if err != nil {
		s.o.Log.Warn("service manager", "error", err)
	}
}
