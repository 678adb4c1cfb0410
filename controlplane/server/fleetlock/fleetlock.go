// Package fleetlock is the server of the FleetLock protocol, with which Zincati and other clients
// request reboot slots: https://coreos.github.io/zincati/development/fleetlock/protocol/
//
// It knows only the protocol. Package slots decides who gets a slot.
package fleetlock

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/internal/trust"
)

const (
	maxBody     = 4 << 10
	callTimeout = 25 * time.Second // of an answer: a request for a slot may wait for the confirmation of Nodes
	maxValue    = 2 << 10          // bytes of a message
)

// Kinds of answers, in addition to those of slots.Why. Clients have metrics by kind, so there are
// few.
const (
	kindGranted       = "granted"
	kindReleased      = "released"
	kindNoPath        = "not_found"
	kindMethod        = "method_not_allowed"
	kindHeader        = "missing_header"
	kindBody          = "invalid_request"
	kindPassword      = "wrong_password"
	kindGroup         = "unknown_group"
	kindUnavailable   = "store_unavailable"
	kindRestored      = "store_restored"
	kindInternalError = "internal_error"
)

// Locker gives slots.
type Locker interface {
	// Request requests a slot. If both results are nil, the client has one.
	Request(ctx context.Context, group, id string) (*slots.Wait, error)
	// GiveBack frees the slot of a client, if it has one.
	GiveBack(ctx context.Context, group, id string) error
}

// Server answers clients. It is safe for concurrent use.
type Server struct {
	// PasswordFile has the password of all clients, which they send by HTTP basic authentication with any user name.
	// It is read at each request. Empty serves everybody. Set it before the first request.
	PasswordFile string

	locker Locker
	log    *slog.Logger

	mu      sync.Mutex // guards the fields below
	answers map[string]uint64
	failing bool // the last request for a slot failed
}

// New returns a server.
func New(locker Locker, log *slog.Logger) *Server {
	return &Server{locker: locker, log: log, answers: map[string]uint64{}}
}

// Answers returns the number of answers of each kind since the start.
func (s *Server) Answers() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.answers)
}

// HTTP returns an http.Server for it, with limits.
func (s *Server) HTTP() *http.Server {
	return &http.Server{
		Handler: s, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
}

// reply is an answer, in the form that the protocol uses for errors.
type reply struct {
	status int
	Kind   string `json:"kind"`
	Value  string `json:"value"`
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := s.answer(w, r)
	s.mu.Lock()
	s.answers[a.Kind]++
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(a.status)
	a.Value = sanitize.Text(a.Value, maxValue)
	_ = json.NewEncoder(w).Encode(a) // fails if the client has disconnected
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) reply {
	call := map[string]func(context.Context, params) reply{"/v1/pre-reboot": s.lock, "/v1/steady-state": s.unlock}[r.URL.Path]
	known, err := s.knows(r)
	switch {
	case err != nil:
		s.note(r.Context(), err)
		return fail(err)
	case !known:
		w.Header().Set("WWW-Authenticate", `Basic realm="hostler"`)
		return reply{http.StatusUnauthorized, kindPassword, "send the password of the server by HTTP basic authentication"}
	case call == nil:
		return reply{http.StatusNotFound, kindNoPath, "the paths are /v1/pre-reboot and /v1/steady-state"}
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		return reply{http.StatusMethodNotAllowed, kindMethod, "use POST"}
	case r.Header.Get("fleet-lock-protocol") != "true":
		return reply{http.StatusBadRequest, kindHeader, "the header `fleet-lock-protocol: true` is missing"}
	}
	p, err := read(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		status := http.StatusBadRequest
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			status = http.StatusRequestEntityTooLarge
		}
		return reply{status, kindBody, `the body is not {"client_params": {"id": ID, "group": GROUP}}: ` + err.Error()}
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), callTimeout, controlplane.ErrNoAnswer)
	defer cancel()
	return call(ctx, p)
}

// Fault returns why no client can be served; nil if clients can be.
func (s *Server) Fault() error {
	_, err := s.password()
	return err
}

// password returns the password of clients; empty for none.
func (s *Server) password() (string, error) {
	if s.PasswordFile == "" {
		return "", nil
	}
	password, err := trust.ReadSecret(s.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("reboots.passwordFile: %w", err)
	}
	return password, nil
}

// knows reports whether a client has sent the password.
func (s *Server) knows(r *http.Request) (bool, error) {
	password, err := s.password()
	if s.PasswordFile == "" || err != nil {
		return err == nil, err
	}
	_, sent, _ := r.BasicAuth()
	want, got := sha256.Sum256([]byte(password)), sha256.Sum256([]byte(sent)) // of one length
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1, nil
}

// params are the parameters of a client.
type params struct {
	ID    string `json:"id"`
	Group string `json:"group"`
}

// read decodes a body. It ignores unknown fields of later versions.
func read(body io.Reader) (params, error) {
	var request struct {
		Params *params `json:"client_params"`
	}
	decoder := json.NewDecoder(body)
	if err := decoder.Decode(&request); err != nil {
		return params{}, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return params{}, err
		}
		return params{}, errors.New("something follows the object")
	}
	switch p := request.Params; {
	case p == nil:
		return params{}, errors.New("client_params is missing")
	case p.ID == "":
		return params{}, errors.New("id is missing or empty")
	case p.Group == "":
		return params{}, errors.New("group is missing or empty")
	default:
		return *p, slots.CheckID(p.ID)
	}
}

// note logs when requests start to fail, and when they succeed again. A client that has disconnected, or whose
// group does not exist, shows neither.
func (s *Server) note(ctx context.Context, err error) {
	if errors.Is(ctx.Err(), context.Canceled) || errors.Is(err, reboots.ErrNoGroup) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch fails := err != nil; {
	case fails && !s.failing:
		s.log.Warn("cannot answer clients", "error", err)
	case !fails && s.failing:
		s.log.Info("answering clients again")
	default:
		return
	}
	s.failing = !s.failing
}

// lock answers pre-reboot.
func (s *Server) lock(ctx context.Context, p params) reply {
	wait, err := s.locker.Request(ctx, p.Group, p.ID)
	s.note(ctx, err)
	switch {
	case err != nil:
		return fail(err)
	case wait != nil:
		return reply{http.StatusConflict, string(wait.Reason), wait.Message}
	}
	return reply{http.StatusOK, kindGranted, p.ID + " has a slot of group " + p.Group}
}

// unlock answers steady-state.
func (s *Server) unlock(ctx context.Context, p params) reply {
	err := s.locker.GiveBack(ctx, p.Group, p.ID)
	s.note(ctx, err)
	if err != nil {
		return fail(err)
	}
	return reply{http.StatusOK, kindReleased, p.ID + " has no slot of group " + p.Group}
}

// fail returns the answer for an error.
func fail(err error) reply {
	switch {
	case errors.Is(err, reboots.ErrNoGroup):
		return reply{http.StatusNotFound, kindGroup, err.Error()}
	case errors.Is(err, reboots.ErrRestored): // a person has to know
		return reply{http.StatusServiceUnavailable, kindRestored, err.Error()}
	case errors.Is(err, controlplane.ErrUnavailable), errors.Is(err, controlplane.ErrConflict), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return reply{http.StatusServiceUnavailable, kindUnavailable, "the store is unavailable, try again"}
	}
	return reply{http.StatusInternalServerError, kindInternalError, "the log of the server has the error"}
}
