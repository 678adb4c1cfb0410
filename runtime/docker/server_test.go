package docker_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker"
	"hostler.io/hostler/runtime/local"
)

// server imitates a Docker Engine with one API version. By default it has no containers and images.
type server struct {
	socket string
	http   *http.Server

	mu      sync.Mutex
	api     string // its version
	minimum string // the oldest version that it supports
	answers map[string]any
	calls   []string // "GET /images/json?shared-size=1"
	slow    map[string]time.Duration
}

func newServer(t *testing.T, api string, answers map[string]any) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "docker")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &server{socket: filepath.Join(dir, "d.sock"), api: api, minimum: "1.24", slow: map[string]time.Duration{}, answers: map[string]any{
		"/version": map[string]any{"Version": "26.1.5", "ApiVersion": api, "Components": []any{map[string]any{"Name": "Engine", "Version": "26.1.5"}}},
		"/info":    map[string]any{"DockerRootDir": "/var/lib/docker", "Driver": "overlay2"},
	}}
	for path, answer := range answers {
		s.answers[path] = answer
	}
	s.serve(t)
	t.Cleanup(func() { s.http.Close() })
	return s
}

func (s *server) serve(t *testing.T) {
	t.Helper()
	_ = os.Remove(s.socket)
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	s.http = &http.Server{Handler: s}
	go func() { _ = s.http.Serve(l) }()
}

// set changes an answer.
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

var versioned = regexp.MustCompile(`^/v(1\.\d+)(/.*)$`)

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Api-Version", s.api)
	w.Header().Set("Ostype", "linux")
	if r.URL.Path == "/_ping" {
		return
	}
	parts := versioned.FindStringSubmatch(r.URL.Path)
	if parts == nil {
		http.Error(w, `{"message":"no version"}`, http.StatusBadRequest)
		return
	}
	if minor(parts[1]) < minor(s.minimum) || minor(parts[1]) > minor(s.api) {
		http.Error(w, fmt.Sprintf(`{"message":"client version %s is too old. Minimum supported API version is %s"}`, parts[1], s.minimum), http.StatusBadRequest)
		return
	}
	path := parts[2]
	call := r.Method + " " + path
	if r.URL.RawQuery != "" {
		call += "?" + r.URL.RawQuery
	}
	s.calls = append(s.calls, call)
	answer, found := s.answers[path]
	switch answer := answer.(type) {
	case http.HandlerFunc:
		s.mu.Unlock()
		answer(w, r)
		s.mu.Lock()
	default:
		if !found {
			http.Error(w, `{"message":"No such object"}`, http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}
}

func minor(version string) (n int) {
	_, _ = fmt.Sscanf(version, "1.%d", &n)
	return n
}

// client returns an adapter for the server.
func (s *server) client(t *testing.T, change ...func(*docker.Options)) *docker.Runtime {
	t.Helper()
	o := docker.Options{Endpoint: s.socket, Name: "docker", Timeouts: local.Timeouts{Query: 5 * time.Minute}}
	for _, c := range change {
		c(&o)
	}
	r, err := docker.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// streamOf is an event stream that a nil event ends.
func streamOf(events <-chan any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		for {
			select {
			case e := <-events:
				if e == nil {
					return
				}
				_ = json.NewEncoder(w).Encode(e)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
}

// watch lets r watch a server with a streamOf events, and returns once it does.
func watch(t *testing.T, r *docker.Runtime, events chan<- any) (ended <-chan error) {
	t.Helper()
	got, end := make(chan runtime.Event), make(chan error, 1)
	go func() { end <- r.Watch(t.Context(), got) }()
	events <- object{"Type": "image", "Action": "tag", "Actor": object{"ID": "x"}}
	<-got
	return end
}
