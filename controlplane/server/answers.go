package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/executor"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/hint"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/internal/sanitize"
)

// route answers a request.
type route func(r *http.Request) (any, error)

// routes returns the handler of the API.
func (s *Server) routes() http.Handler {
	o, computing := newReader(s.o.Store), listen.NewTurns()
	mux := http.NewServeMux()
	for pattern, answer := range map[string]route{
		"POST /v1/reload": onlyOwn(s.requestReload), // the path of the agent's API, for hostler reload

		"GET /v1/fleet/status": inTurn(computing, func(*http.Request) (any, error) {
			status := s.status(time.Now())
			status.Configuration = s.compare()
			return status, nil
		}),
		"GET /v1/fleet/plan":         inTurn(computing, func(*http.Request) (any, error) { return s.plan(), nil }),
		"GET /v1/fleet/gc/plan":      inTurn(computing, func(*http.Request) (any, error) { return s.garbagePlan(), nil }),
		"GET /v1/fleet/objects":      o.get,
		"POST /v1/fleet/delete/plan": s.planDeletion(o), // only plans
		"POST /v1/fleet/delete":      onlyOwn(s.requestDeletion(o)),

		"GET /v1/fleet/slots":          inTurn(computing, s.slots),
		"POST /v1/fleet/slots/release": onlyOwn(s.releaseSlot),
	} {
		mux.Handle(pattern, answer)
	}
	mux.HandleFunc("GET /healthz", s.health)
	mux.Handle("GET /metrics", s.metrics())
	return mux
}

// inTurn makes a route wait for the caller's turn: many callers must not keep the controllers from their work.
func inTurn(turns listen.Turns, next route) route {
	return func(r *http.Request) (any, error) {
		ctx, cancel := context.WithTimeoutCause(r.Context(), listTime, controlplane.ErrNoAnswer)
		defer cancel()
		release, err := turns.Take(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
		return next(r)
	}
}

// onlyOwn answers only root and the user of the server.
func onlyOwn(next route) route {
	return func(r *http.Request) (any, error) {
		if !listen.IsOwn(r.Context()) {
			return nil, &hint.Error{Message: "only root may do this", Hint: "run the command with sudo", Status: http.StatusForbidden}
		}
		return next(r)
	}
}

// ServeHTTP implements http.Handler.
func (answer route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	v, err := answer(r)
	if err != nil {
		e, known := errors.AsType[*hint.Error](err)
		if !known {
			e = &hint.Error{Message: clean(err.Error())}
		}
		w.WriteHeader(cmp.Or(e.Status, http.StatusInternalServerError))
		v = e
	}
	_ = json.NewEncoder(w).Encode(v) // fails if the client has disconnected
}

// maxRequest limits the body of a request.
const maxRequest = 4 << 10

// decode reads the body of a request.
func decode(r *http.Request, into any) error {
	decoder := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxRequest))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return refusal(http.StatusBadRequest, "read request: "+err.Error(), "")
	}
	return nil
}

// refusal returns the error for a request that is not executed.
func refusal(status int, message, what string) error {
	return &hint.Error{Message: clean(message), Hint: clean(what), Status: status}
}

// status returns the state of this server.
func (s *Server) status(now time.Time) answer.Status {
	nodes := s.nodes.Report()
	a := answer.Status{
		Version: s.o.Version, Candidate: s.candidate,
		Store:       answer.Store{Type: s.o.Store.Type(), Endpoint: s.o.Store.Endpoint()},
		Controllers: []answer.Controller{}, NotReadyNodes: []string{}, Zones: []answer.Zone{}, Problems: []answer.Problem{}, Loops: []loop.Health{},
	}
	var reports []report
	for _, c := range s.controllers {
		r := c.current()
		a.Controllers = append(a.Controllers, c.answer(r, now))
		reports = append(reports, r)
	}
	a.Slots, a.FleetLock = s.slotGroups(now), s.fleetlock.Answers()
	a.Problems = append(s.problems(reports), slotProblems(a.Slots)...)
	if err := s.fleetlock.Fault(); err != nil {
		a.Problems = append(a.Problems, answer.Problem{Object: "fleetlock", Message: clean(err.Error()), Hint: "no FleetLock client gets a slot until that is corrected; a restart is not needed"})
	}
	since, err := s.contact.Since(now)
	if err == nil {
		at := since.UTC().Truncate(time.Second)
		a.Store.Since = &at
	}
	a.Store.Refused = errors.Is(err, store.ErrRefused)
	for _, l := range s.loops {
		health := l.Health(now)
		health.LastError = clean(health.LastError)
		a.Loops = append(a.Loops, health)
		if l.Name() == loopStore {
			a.Store.Error = health.LastError
		}
	}
	if s.heartbeats != nil {
		a.Heartbeats = heartbeatsOf(s.heartbeats.Report())
	}
	for _, name := range nodes.Decision.NotReady {
		a.NotReadyNodes = append(a.NotReadyNodes, clean(name))
	}
	for _, z := range nodes.Decision.Zones {
		a.Nodes, a.NotReady = a.Nodes+z.Nodes, a.NotReady+z.NotReady
		if nodes.Decision.AllDown {
			z.Paused = lifecycle.NoZoneReady
		}
		a.Zones = append(a.Zones, answer.Zone{Name: clean(z.Name), State: string(z.State), Nodes: z.Nodes, NotReady: z.NotReady, Rate: z.Rate, Paused: z.Paused})
	}
	return a
}

// current returns the report of a controller. Without a decision, nothing is known to be due.
func (c *controlled) current() report {
	r := c.report()
	if r.paused {
		r.due, r.pending, r.settled = 0, 0, nil
		r.actions = func() []answer.Action { return []answer.Action{} }
	}
	r.waits = c.waits(r.waits)
	return r
}

// waits returns for what a controller waits; empty if its decisions do not count.
func (c *controlled) waits(facts string) string {
	switch c.state() {
	case answer.NotApplicable, answer.Disabled, answer.Yielding:
		return ""
	}
	return clean(facts)
}

// answer returns the state of one controller.
func (c *controlled) answer(r report, now time.Time) answer.Controller {
	a := answer.Controller{
		Name: c.name, State: c.state(), Due: r.due, Pending: r.pending, Failing: len(r.failing),
		Stored: r.writes.Stored, Conflicts: r.writes.Conflict, Failed: r.writes.Failed,
	}
	a.Waits, a.WatchLagSeconds = r.waits, r.lag.Seconds()
	if !r.oldestDue.IsZero() {
		a.OldestDueSeconds = now.Sub(r.oldestDue).Seconds()
	}
	status := c.election.Status()
	switch a.State {
	case answer.NotApplicable:
		a.Message = clean(c.foreign)
		return a
	case answer.Disabled:
		a.Message = "not in controllers of the configuration"
		return a
	case answer.Yielding:
		a.Message = clean(c.yields.Reason())
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

// stateOf returns the state of a controller by its name.
func (s *Server) stateOf(name string) string { return s.controllerNamed(name).state() }

func (s *Server) controllerNamed(name string) *controlled {
	return s.controllers[slices.IndexFunc(s.controllers, func(c *controlled) bool { return c.name == name })]
}

// state returns what the controller does on this server.
func (c *controlled) state() string {
	status := c.election.Status()
	switch {
	case c.foreign != "":
		return answer.NotApplicable
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

// problems returns the objects that controllers do not change; hosts and namespaces take turns. reports has one for
// each controller.
func (s *Server) problems(reports []report) []answer.Problem {
	list, unreadable := []answer.Problem{}, map[string]error{}
	for _, r := range reports {
		maps.Copy(unreadable, r.unreadable)
	}
	for _, object := range slices.Sorted(maps.Keys(unreadable)) {
		list = append(list, answer.Problem{Object: clean(object), Message: clean("cannot be read: " + whyUnreadable(unreadable[object])), Hint: hintUnreadable})
	}
	for i, r := range reports {
		for _, object := range slices.Sorted(maps.Keys(r.failing)) {
			err := r.failing[object]
			list = append(list, answer.Problem{Object: clean(object), Message: clean("cannot be written: " + err.Error()), Hint: s.hintUnwritten(s.controllers[i].name, err)})
		}
	}
	for _, r := range reports {
		list = append(list, r.problems...)
	}
	return executor.InTurn(list, func(p answer.Problem) string { return partOf(p.Object) })
}

// plan returns what the controllers do now and later.
func (s *Server) plan() answer.Plan {
	p := answer.Plan{Controllers: []answer.ControllerPlan{}}
	for _, c := range s.controllers {
		r := c.current()
		cp := answer.ControllerPlan{Name: c.name, State: c.state(), Waits: r.waits, Watches: r.watches, Actions: r.actions()}
		if r.settled != nil {
			cp.Settled = r.settled()
		}
		if !r.at.IsZero() {
			cp.At = r.at.UTC().Format(time.RFC3339)
		}
		if !r.next.IsZero() {
			next := r.next.UTC()
			cp.Next = &next
		}
		slices.SortStableFunc(cp.Actions, byDue)
		p.Controllers = append(p.Controllers, cp)
	}
	return p
}

// byDue sorts actions by time, paused ones last.
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

// clean makes a text of other writers safe for a terminal.
func clean(text string) string { return sanitize.Text(text, sanitize.MaxText) }
