// Package api is the agent's API: HTTP and JSON over a unix socket, and partly over the network if
// that is configured. It has the server of the agent and the client of the commands. It owns the
// routes, their access and the format of the answers. It does not compute answers.
package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/internal/caller"
	"hostler.io/hostler/internal/listen"
)

// Backend answers the API. All methods are safe for concurrent use.
type Backend interface {
	Status(ctx context.Context) (Status, error)
	Pods(ctx context.Context) (PodList, error)
	Images(ctx context.Context) (ImageList, error)
	CollectPlan(ctx context.Context, req CollectRequest) (CollectPlan, error)
	// Collect calls progress while it waits for another collection, and for each object.
	Collect(ctx context.Context, req CollectRequest, progress func(runs.Progress)) (runs.Report, error)
	// CollectHistory returns past collections, also from before a restart.
	CollectHistory(ctx context.Context) (CollectHistory, error)
	ShutdownPlan(ctx context.Context) (ShutdownPlan, error)
	Drainer
	Rebooter
	FleetReader
	LogReader
	// Doctor diagnoses this host, and changes nothing.
	Doctor(ctx context.Context) (doctor.Report, error)
	// Config returns the effective configuration.
	Config(ctx context.Context) (Config, error)
	// Reload applies the configuration files, or refuses all of them.
	Reload(ctx context.Context) (ReloadReport, error)
	// Healthy returns why the agent is not healthy, or nil.
	Healthy() error
}

// access says who may call a route.
type access int

const (
	read access = iota // everyone who can open the socket
	act                // root, or the agent's user
)

// reach says where a route is served.
type reach int

const (
	local   reach = iota // on the socket
	network              // also over the network, for names in api.tls.allowedNames
)

// route is one route of the API, with its handler and its description.
type route struct {
	pattern string
	access  access
	reach   reach
	handler http.HandlerFunc
	summary string // a sentence
	request any    // a value of the body's type; nil for none
	answer  any    // a value of the body's type, or of each of its lines; nil if it is not JSON
	format  string
}

// The formats of answers.
const (
	oneJSON   = "application/json"
	jsonLines = "application/x-ndjson"
	plainText = "text/plain"
	octets    = "application/octet-stream"
)

// table returns all routes.
func table(b Backend, metrics http.Handler) []route {
	get := func(path, summary string, what any, ask func(ctx context.Context) (any, error)) route {
		return route{"GET " + path, read, network, answer(func(r *http.Request) (any, error) { return ask(r.Context()) }), summary, nil, what, oneJSON}
	}
	return slices.Concat([]route{
		get("/v1/status", "The state of the host, as printed by `hostler status -o json`.", Status{}, func(ctx context.Context) (any, error) { return b.Status(ctx) }),
		get("/v1/pods", "The pods of this host.", PodList{}, func(ctx context.Context) (any, error) { return b.Pods(ctx) }),
		get("/v1/images", "The images of this host, and what a collection does with each.", ImageList{}, func(ctx context.Context) (any, error) { return b.Images(ctx) }),
		{"POST /v1/gc/plan", read, network, answerTo(decode, func(ctx context.Context, req CollectRequest) (any, error) { return b.CollectPlan(ctx, req) }), "What a collection would remove now, and why.", CollectRequest{}, CollectPlan{}, oneJSON},
		{"POST /v1/gc/run", act, local, run(b), "Runs a collection now. One line per step; the last line is the report or the error.", CollectRequest{}, CollectLine{}, jsonLines},
		get("/v1/gc/history", "Past collections.", CollectHistory{}, func(ctx context.Context) (any, error) { return b.CollectHistory(ctx) }),
		get("/v1/shutdown/plan", "When each pod would stop in a shutdown, and the delay that logind grants.", ShutdownPlan{}, func(ctx context.Context) (any, error) { return b.ShutdownPlan(ctx) }),
		get("/v1/doctor", "Problems of this host, and how to fix them.", doctor.Report{}, func(ctx context.Context) (any, error) { return b.Doctor(ctx) }),
		get("/v1/config", "The effective configuration.", Config{}, func(ctx context.Context) (any, error) { return b.Config(ctx) }),
		{"POST /v1/reload", act, local, answer(func(r *http.Request) (any, error) { return b.Reload(r.Context()) }), "Reloads the configuration files, or rejects all of them.", nil, ReloadReport{}, oneJSON},
		{"GET /healthz", read, network, health(b), "ok, or status 503 and the loops that make no progress.", nil, nil, plainText},
		metricsRoute(metrics),
	}, drainRoutes(b), rebootRoutes(b), fleetRoutes(b), logRoutes(b), profileRoutes())
}

func metricsRoute(metrics http.Handler) route {
	return route{"GET /metrics", read, network, metrics.ServeHTTP, "Metrics in the Prometheus format.", nil, nil, plainText}
}

// Routes returns the handler of the socket. metrics serves /metrics.
func Routes(b Backend, metrics http.Handler, log *slog.Logger) http.Handler {
	return logged(routed(table(b, metrics)), log)
}

// routed serves each route to the callers that may use it.
func routed(routes []route) *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.Handle(r.pattern, guarded(r.access, r.handler))
	}
	mux.HandleFunc("/", unrouted(mux))
	return mux
}

// unrouted answers requests that match no route. If another method would match, it lists the
// allowed methods.
func unrouted(mux *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} { // the methods in the table
			if _, pattern := mux.Handler(&http.Request{Method: method, URL: r.URL, Host: r.Host}); pattern != "/" {
				allowed = append(allowed, method)
			}
		}
		if len(allowed) > 0 {
			methods := strings.Join(allowed, ", ")
			w.Header().Set("Allow", methods)
			fail(w, http.StatusMethodNotAllowed, &Error{Message: "no method " + r.Method + " of " + r.URL.Path, Hint: "it takes " + methods})
			return
		}
		fail(w, http.StatusNotFound, &Error{Message: "no route " + r.Method + " " + r.URL.Path, Hint: "is this command of the same version as the agent? see `hostler version`"})
	}
}

// writeTime bounds how long a caller may take to read an answer, or one step of a collection. A
// caller that waits in a pager must not delay the collectors.
const writeTime = time.Minute

// readTime bounds how long a caller may take to send a request: a command of a person on a machine that is busy must not fail.
const readTime = 30 * time.Second

// NewServer returns a server for the handler, with limits on time and size.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ConnContext:       listen.WithPeer,
		ReadHeaderTimeout: readTime,
		ReadTimeout:       readTime,
		WriteTimeout:      writeTime, // extended for each step of a collection
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,

		DisableGeneralOptionsHandler: true, // it would answer OPTIONS * before the caller is identified
	}
}

// guarded calls next only for callers with access.
func guarded(a access, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a == act {
			if refusal := refuses(r.Context()); refusal != nil {
				fail(w, http.StatusForbidden, refusal)
				return
			}
			r = r.WithContext(caller.With(r.Context(), callerName(r.Context())))
		}
		next(w, r)
	})
}

func logged(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := time.Now()
		next.ServeHTTP(w, r)
		log.Debug("api request", "method", r.Method, "path", r.URL.Path, "duration", time.Since(started))
	})
}

// answer encodes the result of f or its error.
func answer(f func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			failed(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // fails only if the caller has disconnected
	}
}

// answerTo decodes the request body, calls f with it, and encodes the result or the error.
func answerTo[Q any](decode func(*http.Request) (Q, error), f func(context.Context, Q) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req, err := decode(r)
		if err != nil {
			fail(w, http.StatusBadRequest, asError(err))
			return
		}
		answer(func(r *http.Request) (any, error) { return f(r.Context(), req) })(w, r)
	}
}

// run streams a line for each step, and the report at the end. If a caller stops reading, the
// collection continues without it.
func run(b Backend) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req, err := decode(r)
		if err != nil {
			fail(w, http.StatusBadRequest, asError(err))
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		enc, stream := json.NewEncoder(w), http.NewResponseController(w)
		send := func(line CollectLine) {
			_ = stream.SetWriteDeadline(time.Now().Add(writeTime))
			_ = enc.Encode(line) // the request's context ends if the caller disconnects
			_ = stream.Flush()
		}
		report, err := b.Collect(r.Context(), req, func(p runs.Progress) { send(CollectLine{Step: step(p)}) })
		if err != nil {
			send(CollectLine{Error: asError(err)})
			return
		}
		send(CollectLine{Report: &report})
	}
}

func step(p runs.Progress) *Step {
	s := &Step{Waiting: p.Waiting, Removal: p.Removal, Action: p.Action, Done: p.Done, Total: p.Total}
	if p.Err != nil {
		s.Error = p.Err.Error()
	}
	return s
}

func health(b Backend) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := b.Healthy(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	}
}

// decode reads the request of a collection.
func decode(r *http.Request) (CollectRequest, error) {
	req, err := decodeAny[CollectRequest](r)
	if err != nil {
		return req, err
	}
	if req.TargetPercent < 0 || req.TargetPercent > 100 {
		return req, &Error{Message: "the target is not a percentage from 0 to 100"}
	}
	return req, nil
}

func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Message: err.Error()}
}

// failed writes the error of a request.
func failed(w http.ResponseWriter, err error) {
	e := asError(err)
	fail(w, cmp.Or(e.Status, http.StatusInternalServerError), e)
}

func fail(w http.ResponseWriter, code int, e *Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(e) // as in answer
}
