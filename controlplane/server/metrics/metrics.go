// Package metrics serves the state of a server as Prometheus metrics.
package metrics

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"hostler.io/hostler/controlplane/server/answer"
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("hostler_server_"+name, help, labels, nil)
}

// Handler serves the metrics. It calls state for each request.
func Handler(state func() answer.Status) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(&collector{
		state:   state,
		up:      describe("store_up", "1 if the store answers."),
		leading: describe("leading", "1 if this server leads the controller.", "controller"),
		waits:   describe("waits", "1 if the controller waits for objects, or for their confirmation: more may be due than is known.", "controller"),
		due:     describe("due_actions", "Actions that are due and not done.", "controller"),
		oldest:  describe("oldest_due_action_seconds", "Age of the oldest action that is due and not done.", "controller"),
		lag:     describe("watch_lag_seconds", "How long the watch took to report the last change that this server stored.", "controller"),
		pending: describe("pending_actions", "Actions that are due later, or paused.", "controller"),
		failing: describe("failing_objects", "Objects that cannot be written.", "controller"),
		writes:  describe("writes_total", "Writes of the controllers by result: stored, conflict, failed.", "controller", "result"),
		nodes:   describe("nodes", "Nodes by zone, state of the zone and whether they are ready.", "zone", "state", "ready"),
		broken:  describe("ignored_objects", "Objects in the store that cannot be read or are left alone, and machine IDs of several running hosts."),
		slots:   describe("slots", "Reboot slots of the group.", "group"),
		held:    describe("slots_held", "Reboot slots that are held.", "group"),
		holder:  describe("slot_holder", "1 for each Node whose host holds a reboot slot of the group, and may be down for its reboot.", "group", "node"),
		waiting: describe("slots_waiting", "Requests that wait for a reboot slot.", "group"),
		longest: describe("slot_oldest_holder_seconds", "For how long the oldest holder has its reboot slot.", "group"),
		answers: describe("fleetlock_answers_total", "Answers to FleetLock clients by kind.", "kind"),
		build:   describe("build_info", "1; the version of this server.", "version"),
	})
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// collector converts the state into metrics.
type collector struct {
	state                                                                                func() answer.Status
	up, leading, waits, due, oldest, lag, pending, failing, writes, nodes, broken, build *prometheus.Desc
	slots, held, holder, waiting, longest, answers                                       *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(all chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.up, c.leading, c.waits, c.due, c.oldest, c.lag, c.pending, c.failing, c.writes, c.nodes, c.broken, c.build, c.slots, c.held, c.holder, c.waiting, c.longest, c.answers} {
		all <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(all chan<- prometheus.Metric) {
	s := c.state()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		all <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	is := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	gauge(c.up, is(s.Store.Since != nil))
	late := 0 // late holders of slots are problems, and have a metric of their own
	for _, g := range s.Slots {
		gauge(c.slots, float64(g.Slots), g.Name)
		gauge(c.held, float64(len(g.Holders)), g.Name)
		gauge(c.waiting, float64(len(g.Waiting)+g.Unrecorded), g.Name)
		longest := 0.0
		for _, h := range g.Holders {
			longest = max(longest, time.Since(h.Since).Seconds())
			if h.Node != "" {
				gauge(c.holder, 1, g.Name, h.Node)
			}
			if h.Late {
				late++
			}
		}
		gauge(c.longest, longest, g.Name)
	}
	for kind, n := range s.FleetLock {
		all <- prometheus.MustNewConstMetric(c.answers, prometheus.CounterValue, float64(n), kind)
	}
	gauge(c.broken, float64(len(s.Problems)-late))
	gauge(c.build, 1, s.Version)
	for _, controller := range s.Controllers {
		switch controller.State {
		case answer.Yielding, answer.Disabled, answer.NotApplicable:
		default: // one of the servers has to lead it
			gauge(c.leading, is(controller.State == answer.Leading), controller.Name)
		}
		gauge(c.waits, is(controller.Waits != ""), controller.Name)
		gauge(c.due, float64(controller.Due), controller.Name)
		gauge(c.pending, float64(controller.Pending), controller.Name)
		gauge(c.oldest, controller.OldestDueSeconds, controller.Name)
		gauge(c.lag, controller.WatchLagSeconds, controller.Name)
		gauge(c.failing, float64(controller.Failing), controller.Name)
		for result, n := range map[string]uint64{"stored": controller.Stored, "conflict": controller.Conflicts, "failed": controller.Failed} {
			all <- prometheus.MustNewConstMetric(c.writes, prometheus.CounterValue, float64(n), controller.Name, result)
		}
	}
	for _, z := range bounded(s.Zones) {
		gauge(c.nodes, float64(z.Nodes-z.NotReady), z.Name, z.State, "true")
		gauge(c.nodes, float64(z.NotReady), z.Name, z.State, "false")
	}
}

// mostZones is how many zones have series of their own.
const mostZones = 100

// bounded returns the zones that have series of their own, and one that is the sum of all others. Each host chooses its
// zone, so a zone with one Node may be another one each time.
func bounded(zones []answer.Zone) []answer.Zone {
	others := answer.Zone{Name: "(others)"} // no label can have this value
	var own []answer.Zone
	for i, z := range slices.SortedStableFunc(slices.Values(zones), func(a, b answer.Zone) int { return cmp.Compare(b.Nodes, a.Nodes) }) {
		if z.Name == "" || i < mostZones && z.Nodes > 1 {
			own = append(own, z)
			continue
		}
		others.Nodes += z.Nodes
		others.NotReady += z.NotReady
	}
	if others.Nodes > 0 {
		own = append(own, others)
	}
	return own
}
