package podman_test

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/podman"
)

// object is a JSON object.
type object = map[string]any

// server imitates Podman's service, and records its calls. By default it has no containers and
// images.
type server struct {
	root, run, exits, socket string
	exitCode                 int // of containers for which a caller waits

	mu      sync.Mutex
	answers map[string]any // by path without its version
	calls   []string       // "POST /libpod/containers/a/wait"
	upgrade func()         // lets another Podman listen
}

func newServer(t *testing.T, answers map[string]any) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "podman")
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &server{root: filepath.Join(dir, "root"), run: filepath.Join(dir, "run"), exits: filepath.Join(dir, "exits"), socket: filepath.Join(dir, "s")}
	for _, folder := range []string{s.exits, s.run + "/overlay-containers", s.root + "/overlay-containers", s.root + "/overlay-images"} {
		check(t, os.MkdirAll(folder, 0o755))
	}
	s.answers = map[string]any{
		"/version":                object{"Version": "4.3.1", "Components": []any{object{"Name": "Podman Engine", "Version": "4.3.1"}}},
		"/libpod/info":            object{"store": object{"graphDriverName": "overlay", "graphRoot": s.root, "runRoot": s.run}},
		"/libpod/containers/json": []any{}, "/libpod/pods/json": []any{}, "/libpod/images/json": []any{},
	}
	for path, answer := range answers {
		s.answers[path] = answer
	}
	stop := s.listen(t)
	s.upgrade = func() { stop(); s.listen(t) }
	return s
}

// listen serves the socket until stop is called, or the test ends.
func (s *server) listen(t *testing.T) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", s.socket)
	check(t, err)
	h := &http.Server{Handler: s}
	go func() { _ = h.Serve(l) }()
	t.Cleanup(func() { h.Close() })
	return func() { check(t, h.Close()) }
}

// open returns an adapter for the server.
func (s *server) open(t *testing.T, units local.Units) *podman.Runtime {
	t.Helper()
	return s.openIn(t, "/proc", units)
}

// openIn is open with another proc filesystem.
func (s *server) openIn(t *testing.T, proc string, units local.Units) *podman.Runtime {
	t.Helper()
	return s.openWith(t, podman.Options{Units: units, ProcRoot: proc})
}

func (s *server) openWith(t *testing.T, o podman.Options) *podman.Runtime {
	t.Helper()
	o.Endpoint, o.Name = s.socket, "podman"
	if o.Timeouts.Query == 0 {
		o.Timeouts.Query = patience // for a busy machine
	}
	r, err := podman.New(o)
	check(t, err)
	t.Cleanup(func() { check(t, r.Close()) })
	r.WatchExits(s.exits)
	return r
}

func (s *server) set(path string, answer any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[path] = answer
}

// asked returns the calls since the last asked.
func (s *server) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// ServeHTTP returns the answer that is set; a number is a status, and a function is called.
func (s *server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := req.URL.Path
	if strings.HasPrefix(path, "/v") && path != "/version" {
		path = path[1+strings.Index(path[1:], "/"):]
	}
	if path == "/_ping" {
		w.Header().Set("Api-Version", "1.41")
		return
	}
	call := req.Method + " " + path
	if signal := req.URL.Query().Get("signal"); signal != "" {
		call += " " + signal
	}
	s.mu.Lock()
	s.calls = append(s.calls, call)
	answer, known := s.answers[path]
	s.mu.Unlock()
	if answer, isFunc := answer.(http.HandlerFunc); isFunc {
		answer(w, req)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	status, isStatus := answer.(int)
	switch {
	case !known:
		status, isStatus = http.StatusNotFound, true
		fallthrough
	case isStatus:
		w.WriteHeader(status)
		if status != http.StatusNoContent {
			_ = json.NewEncoder(w).Encode(object{"message": "so it is: " + path, "response": status})
		}
	default:
		_ = json.NewEncoder(w).Encode(answer)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
