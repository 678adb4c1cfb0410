package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/internal/sanitize"
)

// routes answers the API.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, get := range map[string]func() any{
		"GET /v1/fleet/status": func() any { return s.status(time.Now()) },
		"GET /v1/fleet/plan":   func() any { return s.plan() },
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(get()) // the caller has gone
		})
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.loops.Healthy(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", s.metrics())
	return mux
}

// status is the state of this server.
func (s *Server) status(now time.Time) answer.Status {
	report := s.nodes.Report()
	a := answer.Status{
		Version: s.o.Version, Candidate: s.candidate,
		Store:         answer.Store{Type: s.o.Store.Type(), Endpoint: s.o.Store.Endpoint()},
		Controllers:   []answer.Controller{s.controller(s.lifecycle, report)},
		NotReadyNodes: []string{}, Zones: []answer.Zone{}, Problems: problems(report), Loops: []loop.Health{},
	}
	if since, ok := s.contact.Since(now); ok {
		at := since.UTC().Truncate(time.Second)
		a.Store.Since = &at
	}
	for _, l := range s.loops {
		health := l.Health(now)
		health.LastError = clean(health.LastError)
		a.Loops = append(a.Loops, health)
		if l.Name() == loopStore {
			a.Store.Error = health.LastError
		}
	}
	for _, name := range report.Decision.NotReady {
		a.NotReadyNodes = append(a.NotReadyNodes, clean(name))
	}
	for _, z := range report.Decision.Zones {
		a.Nodes, a.NotReady = a.Nodes+z.Nodes, a.NotReady+z.NotReady
		a.Zones = append(a.Zones, answer.Zone{Name: clean(z.Name), State: string(z.State), Nodes: z.Nodes, NotReady: z.NotReady, Rate: z.Rate, Paused: z.Paused})
	}
	return a
}

// controller is the state of one controller.
func (s *Server) controller(c *controlled, report lifecycle.Report) answer.Controller {
	a := answer.Controller{Name: c.name, State: c.state(), Due: len(report.Decision.Now), Pending: len(report.Decision.Pending), Failing: len(report.Failing), Stored: report.Writes.Stored}
	status := c.election.Status()
	switch a.State {
	case answer.Disabled:
		a.Message = "not in controllers of the configuration"
		return a
	case answer.Yielding:
		a.Message = clean(c.yields.Reason())
	default:
		a.Paused = clean(report.Paused)
	}
	if a.Leader = clean(status.Leader.Candidate); a.Leader != "" {
		since := status.Leader.Since.UTC().Truncate(time.Second)
		a.Since = &since
	}
	if status.Err != nil {
		a.Message = clean("election: " + status.Err.Error())
	}
	return a
}

// state is what a controller is doing on this server.
func (c *controlled) state() string {
	status := c.election.Status()
	switch {
	case !c.runs:
		return answer.Disabled
	case c.yields != nil && c.yields.Reason() != "":
		return answer.Yielding
	case status.Leading:
		return answer.Leading
	case status.Leader.Candidate != "":
		return answer.Standby
	}
	return answer.Starting
}

// problems are the objects that are left alone.
func problems(report lifecycle.Report) []answer.Problem {
	list := []answer.Problem{}
	for _, object := range slices.Sorted(maps.Keys(report.Unreadable)) {
		list = append(list, answer.Problem{Object: clean(object), Message: clean("cannot be read: " + report.Unreadable[object].Error()), Hint: "fix or delete it in the store"})
	}
	for _, node := range slices.Sorted(maps.Keys(report.Failing)) {
		list = append(list, answer.Problem{Object: clean("nodes/" + node), Message: clean("cannot be written: " + report.Failing[node].Error()), Hint: "the server tries again"})
	}
	for _, i := range report.Decision.Ignored {
		list = append(list, answer.Problem{Object: clean("nodes/" + i.Node), Message: clean(i.Message), Hint: "remove it yourself if nobody needs it"})
	}
	return list
}

// plan is what the controllers do now and later.
func (s *Server) plan() answer.Plan {
	report := s.nodes.Report()
	p := answer.ControllerPlan{Name: lifecycle.Name, State: s.lifecycle.state(), Paused: report.Paused, Actions: []answer.Action{}}
	if !report.At.IsZero() {
		p.At = report.At.UTC().Format(time.RFC3339)
	}
	if next := report.Decision.Next.UTC(); !report.Decision.Next.IsZero() {
		p.Next = &next
	}
	for _, zone := range report.Decision.Zones {
		p.Nodes += zone.Nodes
	}
	at := report.At.UTC()
	for _, c := range report.Decision.Now {
		for _, step := range c.Steps {
			p.Actions = append(p.Actions, answer.Action{Object: clean("nodes/" + c.Node), Zone: clean(c.Zone), Action: clean(step.Action), Reason: clean(step.Reason), Due: &at})
		}
	}
	for _, w := range report.Decision.Pending {
		a := answer.Action{
			Object: clean("nodes/" + w.Node), Zone: clean(w.Zone), Reason: clean(w.Reason),
			Action: fmt.Sprintf("add taint %s:%s", w.Taint, corev1.TaintEffectNoExecute),
		}
		if !w.Due.IsZero() {
			due := w.Due.UTC()
			a.Due = &due
		}
		p.Actions = append(p.Actions, a)
	}
	slices.SortStableFunc(p.Actions, byDue)
	return answer.Plan{Controllers: []answer.ControllerPlan{p}}
}

// byDue puts paused actions last.
func byDue(a, b answer.Action) int {
	switch {
	case a.Due == nil && b.Due == nil:
		return strings.Compare(a.Object, b.Object)
	case a.Due == nil:
		return 1
	case b.Due == nil:
		return -1
	}
	return a.Due.Compare(*b.Due)
}

// clean is a text that others have written, as a terminal may show it.
func clean(text string) string { return sanitize.Text(text, sanitize.MaxText) }
