package server

import (
	"context"
	"sync"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/clones"
	"hostler.io/hostler/controlplane/controllers/eviction"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/controllers/heartbeats"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
)

// Controllers are all controllers of one server, with their elections and the loops that feed and
// run them. They open no socket, so that a test can run them as a server does.
type Controllers struct {
	o           Options
	candidate   string
	contact     *store.Contact
	nodes       *lifecycle.Controller
	garbage     *garbagecollector.Controller
	heartbeats  *heartbeats.Controller // nil for a store without settings
	reboots     *reboots.Controller
	controllers []*controlled
	events      *controlplane.Recorder // nil if no Events are published
	loops       loop.Set
}

// NewControllers connects the controllers of a candidate with the store. The name of the candidate is
// unique among all servers of the fleet.
func NewControllers(o Options, candidate string) *Controllers {
	s := &Controllers{o: o, candidate: candidate, contact: &store.Contact{}}
	marks, evictions, emptying := loop.NewSignal(), loop.NewSignal(), loop.NewSignal()
	pods := podcache.New(marks, evictions, emptying)
	s.nodes = lifecycle.New(o.Store, s.contact, o.Config.NodeLifecycle.Policy(), o.Config.NodeLifecycle.ZoneLabels, pods, marks, o.Log)
	evicter := eviction.New(o.Store, s.contact, pods, evictions, o.Log)
	if runs, _ := o.Config.Runs(lifecycle.Name); runs {
		evicter.Outages = s.nodes
	}
	copies := clones.New(o.Store, s.contact, o.Log)
	s.garbage = garbagecollector.New(o.Store, s.contact, o.Log)
	groups := slots.NewGroups(o.Store, o.Config.Store.Kubernetes.Namespace)
	s.reboots = reboots.New(o.Store, groups, s.contact, pods, emptying, o.Config.Reboots.Groups.Policies(), o.Config.NodeLifecycle.ZoneLabels, candidate, o.Log)
	s.reboots.Alive = s.nodes.Alive
	s.recordEvents(evicter)
	readsPods := follow{store.Pods(o.Store.EndsLeases()), store.AllChanges, pods.Follower()}
	s.controllers = []*controlled{
		s.control(&controlled{
			name: lifecycle.Name, shared: true, lead: s.nodes.Lead, report: func() report {
				var evictions *eviction.Report
				if runs, _ := o.Config.Runs(eviction.Name); runs {
					evictions = new(evicter.Report())
				}
				return reportOfNodes(s.nodes.Report(), evictions, pods.Unreadable(), !s.o.Store.EndsLeases())
			},
			follows: []follow{{store.Nodes, store.AllChanges, s.nodes.Nodes()}, {store.Leases, store.AllChanges, s.nodes.Leases()}, readsPods},
			loops: []timed{
				{lifecycle.Name, time.Minute + 3*time.Duration(o.Config.NodeLifecycle.MonitorPeriod), s.nodes.Run},
				{"marks of pods", time.Minute, s.nodes.RunMarks},
			},
		}),
		s.control(&controlled{
			name: eviction.Name, shared: true, lead: evicter.Lead, report: func() report { return reportOfEvictions(evicter.Report()) },
			follows: []follow{{store.Nodes, store.AllChanges, evicter.Nodes()}, readsPods},
			loops:   []timed{{eviction.Name, time.Minute, evicter.Run}},
		}),
		s.control(s.controlGarbage()),
		s.control(&controlled{
			name: clones.Name, lead: copies.Lead, report: func() report { return reportOfClones(copies.Report()) },
			follows: []follow{{store.Nodes, store.AllChanges, copies.Nodes()}},
			loops:   []timed{{clones.Name, time.Minute, copies.Run}},
		}),
		s.control(s.controlHeartbeats()),
		s.control(s.controlReboots(readsPods)),
	}
	s.fillLoops()
	return s
}

// Reboots returns the controller of reboot slots, for requests of persons.
func (s *Controllers) Reboots() *reboots.Controller { return s.reboots }

// Supervise runs all loops until ctx ends, and returns when the last one has ended.
func (s *Controllers) Supervise(ctx context.Context) {
	var loops sync.WaitGroup
	for _, l := range s.loops {
		loops.Go(func() { l.Supervise(ctx, s.o.Log) })
	}
	loops.Wait()
}
