//go:build integration

package e2e_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/test/kube"
)

// outage is a kind of outage of a control plane.
type outage struct {
	name       string
	begin, end func(cluster) error
}

func outages() []outage {
	return []outage{
		{
			"a network that drops packets",
			func(c cluster) error { return c.Cut() },
			func(c cluster) error { return c.Restore() },
		},
		{
			"a server that is stopped",
			func(c cluster) error { return c.APIServer.Kill() },
			func(c cluster) error { return errors.Join(c.APIServer.Start(), c.Ready(c.t.Context())) },
		},
		{
			"an etcd that is stalled",
			func(c cluster) error { return c.Etcd.Pause() },
			func(c cluster) error { return c.Etcd.Continue() },
		},
	}
}

// TestHeartbeatsSurviveOutages has outages of 5 s and of a minute. The settings are the defaults: a
// Lease of 40 s, renewed every 10 s.
func TestHeartbeatsSurviveOutages(t *testing.T) {
	t.Parallel()
	for _, o := range outages() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, kube.Options{Apart: true})
			p := patient{outage: o, cluster: c, name: "rack1-node1", settings: c.asNode("rack1-node1", "")}
			p.agent = startAgent(t, p.settings)
			p.awaitReady(corev1.ConditionTrue)
			for _, what := range []string{"patch nodes/status", "update leases", "create events"} {
				c.asked(p.name, what, time.Time{})
			}
			before := p.use(c)
			p.brief()
			during := p.long()
			if during.connections > before.connections+4 || during.goroutines > before.goroutines+20 {
				t.Errorf("at the end of the outage the agent has %v, before it %v, want no more of anything", during, before)
			}
			var after usage
			defer func() { t.Logf("before: %v; at the end of the outage: %v; after it: %v", before, during, after) }()
			// A watch continues over its connection, even if other requests use new ones.
			eventually(t, "the agent uses no more than before", func() bool {
				after = p.use(c)
				return after.connections <= before.connections+1 && after.goroutines <= before.goroutines+8 && after.files <= before.files+4
			})
			if grown := after.memoryBytes - before.memoryBytes; grown > 16<<20 {
				t.Errorf("the agent has grown by %d MiB, want it as before", grown>>20)
			}
			p.stop()
		})
	}
}

// patient is an agent during an outage of its cluster.
type patient struct {
	*agent
	outage   outage
	cluster  cluster
	name     string
	settings string
}

// brief is an outage that is shorter than a Lease.
func (p patient) brief() {
	p.t.Helper()
	check(p.t, p.outage.begin(p.cluster))
	p.short("memoryAvailable: 100%")
	<-time.After(5 * time.Second)
	p.over("5 s")
	p.cluster.awaitEvents(p.name, "NodeHasSufficientMemory", "NodeHasInsufficientMemory")
	p.wantPulse(http.StatusOK, 0, "")
}

// long is an outage that is longer than a Lease. It returns the agent's usage at its end.
func (p patient) long() usage {
	p.t.Helper()
	check(p.t, p.outage.begin(p.cluster))
	minute := time.After(time.Minute)
	p.short("memoryAvailable: 100%, pidAvailable: 100%")
	p.await("PIDs are short", func(s api.Status) bool { return condition(s, corev1.NodePIDPressure).Status == corev1.ConditionTrue })
	p.short("pidAvailable: 100%")
	p.await("there is memory enough", func(s api.Status) bool {
		return condition(s, corev1.NodeMemoryPressure).Status == corev1.ConditionFalse
	})
	p.await("the lease is overdue", func(s api.Status) bool { return s.ControlPlane.Overdue != "" })
	p.wantPulse(http.StatusServiceUnavailable, 1, "EXPIRED")
	<-minute
	used := p.use(p.cluster)
	p.over("60 s")
	p.wantPulse(http.StatusOK, 0, "")
	eventually(p.t, "the cluster sees what has changed", func() bool {
		s := api.Status{Node: p.cluster.node(p.name)}
		return condition(s, corev1.NodePIDPressure).Status == corev1.ConditionTrue && condition(s, corev1.NodeMemoryPressure).Status == corev1.ConditionFalse
	})
	p.cluster.awaitEvents(p.name, "NodeHasSufficientMemory", "NodeHasInsufficientMemory", "NodeHasInsufficientPID", "NodeHasSufficientMemory")
	return used
}

// short causes pressure by setting these thresholds.
func (p patient) short(thresholds string) {
	p.t.Helper()
	p.configure(p.settings + "pressure: {transitionPeriod: 0s, " + thresholds + "}\n")
	p.prints("reload")
}

// over ends the outage, and waits until Lease and status are written again. A server may serve
// before it reports that it is ready.
func (p patient) over(what string) {
	p.t.Helper()
	ending := time.Now()
	check(p.t, p.outage.end(p.cluster))
	ended := time.Now()
	after := func(how string) time.Duration {
		return max(0, p.cluster.asked(p.name, how, ending).Answered.Sub(ended)).Round(100 * time.Millisecond)
	}
	p.t.Logf("after %s: lease renewed in %v, status written in %v", what, after("update leases"), after("patch nodes/status"))
}

// asked waits until a request of the node, such as "update leases", was answered after a time, and
// returns the first one.
func (c cluster) asked(node, what string, since time.Time) kube.Request {
	c.t.Helper()
	var found kube.Request
	eventually(c.t, fmt.Sprintf("the node has done %q since %v", what, since), func() bool {
		requests, err := c.Requests()
		check(c.t, err)
		i := slices.IndexFunc(requests, func(r kube.Request) bool {
			return r.User == "system:node:"+node && strings.HasPrefix(r.String(), what+" ") && !r.Answered.Before(since) && r.Code/100 == 2
		})
		if i >= 0 {
			found = requests[i]
		}
		return i >= 0
	})
	return found
}

// awaitEvents waits until the cluster has as many Events with these reasons. It checks that they
// were published in this order, and all Events of the node in the order in which they happened.
func (c cluster) awaitEvents(node string, reasons ...string) {
	c.t.Helper()
	var reported []string
	eventually(c.t, fmt.Sprintf("the cluster has Events %v", reasons), func() bool {
		var events corev1.EventList
		check(c.t, json.Unmarshal([]byte(c.kubectl("get", "events", "-o", "json")), &events))
		slices.SortFunc(events.Items, func(a, b corev1.Event) int {
			return cmp.Compare(number(c.t, a.ResourceVersion), number(c.t, b.ResourceVersion))
		})
		last := ""
		reported = nil
		for _, e := range events.Items {
			if e.InvolvedObject.Name != node {
				continue
			}
			if slices.Contains(reasons, e.Reason) {
				reported = append(reported, e.Reason)
			}
			if e.Count > 1 { // it was repeated
				continue
			}
			// Names end in an increasing number.
			if e.Name < last {
				c.t.Errorf("event %s %q came after %s, want Events in the order in which they happened", e.Name, e.Reason, last)
			}
			last = e.Name
		}
		return len(reported) >= len(reasons)
	})
	if !slices.Equal(reported, reasons) {
		c.t.Errorf("Events came as %q, want %q", reported, reasons)
	}
}

func number(t testing.TB, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	check(t, err)
	return n
}

// wantPulse waits until /healthz returns a code and `hostler status` agrees. On a slow machine, a short Lease can end between the
// two.
func (a *agent) wantPulse(code, exit int, screen string) {
	a.t.Helper()
	eventually(a.t, fmt.Sprintf("/healthz answers %d, and hostler status returns %d with %q", code, exit, screen), func() bool {
		resp, err := a.onSocket().Get("http://hostler/healthz")
		check(a.t, err)
		check(a.t, resp.Body.Close())
		r := a.hostler("status")
		return resp.StatusCode == code && r.code == exit && strings.Contains(r.out, screen)
	})
}

// usage is the usage of an agent.
type usage struct {
	connections, goroutines, files int
	memoryBytes                    int64 // anonymous
}

func (u usage) String() string {
	return fmt.Sprintf("%d connections to the server, %d goroutines, %d files, %.1f MiB", u.connections, u.goroutines, u.files, float64(u.memoryBytes)/(1<<20))
}

// use measures the agent.
func (a *agent) use(c cluster) (u usage) {
	a.t.Helper()
	u.goroutines = int(number(a.t, metricNames(a.t, a.onSocket(), "http://hostler/metrics")["go_goroutines"]))
	proc := fmt.Sprintf("/proc/%d", a.process.PID)
	text, err := os.ReadFile(proc + "/status")
	check(a.t, err)
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "RssAnon:"); found {
			u.memoryBytes = number(a.t, strings.Fields(value)[0]) << 10
		}
	}
	links, err := filepath.Glob(proc + "/fd/*")
	check(a.t, err)
	sockets := map[string]bool{}
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil {
			continue // closed meanwhile
		}
		u.files++
		if inode, found := strings.CutPrefix(to, "socket:["); found {
			sockets[strings.TrimSuffix(inode, "]")] = true
		}
	}
	_, port, found := strings.Cut(strings.TrimPrefix(c.Server, "https://"), ":")
	if !found {
		a.t.Fatalf("server %q has no port", c.Server)
	}
	text, err = os.ReadFile(proc + "/net/tcp")
	check(a.t, err)
	remote := fmt.Sprintf(":%04X", number(a.t, port))
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 9 && strings.HasSuffix(f[2], remote) && sockets[f[9]] {
			u.connections++
		}
	}
	return u
}
