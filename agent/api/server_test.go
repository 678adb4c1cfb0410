package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/gc/runs"
)

// ask sends a request to the handler as if it came over a socket from uid.
func ask(h http.Handler, uid uint32, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	h.ServeHTTP(w, r.WithContext(api.WithUID(r.Context(), uid)))
	return w
}

func TestRoutes(t *testing.T) {
	for route, want := range map[string]string{
		"GET /v1/status":        `"version":"1.2.3"`,
		"GET /v1/pods":          `"name":"web"`,
		"GET /v1/images":        `"id":"i"`,
		"POST /v1/gc/plan":      `"message":"planned"`,
		"POST /v1/gc/run":       `"ended":"all done"`,
		"GET /v1/shutdown/plan": `"name":"regular"`,
		"POST /v1/drain":        `"report":{`,
		"POST /v1/drain/plan":   `"node":"planned"`,
		"POST /v1/cordon":       `"unschedulable":true`,
		"POST /v1/uncordon":     `"unschedulable":false`,
		"GET /v1/nodes":         `"fleet":{"type":"fake"`,
		"GET /v1/nodes/web-1":   `"name":"web-1"`,
		"GET /v1/config":        `"differs":["node.name"]`,
		"POST /v1/reload":       `"changed":["log.level"]`,
		"GET /healthz":          "ok\n",
		"GET /metrics":          "hostler_up 1",
	} {
		method, path, _ := strings.Cut(route, " ")
		for _, m := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
			w := ask(routes(&backend{}), 0, m, path, "{}")
			switch {
			case m == method || m == "HEAD" && method == "GET": // the server omits the body of a HEAD answer
				if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
					t.Errorf("%s %s = %d %s, want 200 with %s", m, path, w.Code, w.Body, want)
				}
			case w.Code != http.StatusMethodNotAllowed || !strings.Contains(w.Body.String(), "no method "+m+" of "+path) || !slices.Contains(strings.Split(w.Header().Get("Allow"), ", "), method):
				t.Errorf("%s %s = %d %s, allowed %q, want 405 that names it and allows %s", m, path, w.Code, w.Body, w.Header().Get("Allow"), method)
			}
		}
	}
}

func TestAnUnknownRouteHasAHint(t *testing.T) {
	for _, path := range []string{"/", "/v2/status", "/v1/status/", "/v1", "/v1/gc"} {
		w := ask(routes(&backend{}), 0, "GET", path, "")
		var e api.Error
		if err := json.Unmarshal(w.Body.Bytes(), &e); w.Code != http.StatusNotFound || err != nil || !strings.Contains(e.Hint, "hostler version") {
			t.Errorf("GET %s = %d %s, want 404 and a hint at the versions", path, w.Code, w.Body)
		}
	}
}

func TestOnlyRootAndTheAgentsOwnUserMayAct(t *testing.T) {
	me, other := uint32(os.Geteuid()), uint32(os.Geteuid()+4711)
	for name, c := range map[string]struct {
		uid  uint32
		path string
		code int
	}{
		"root acts":                  {0, "/v1/gc/run", http.StatusOK},
		"the agent's own user acts":  {me, "/v1/gc/run", http.StatusOK},
		"anybody else does not":      {other, "/v1/gc/run", http.StatusForbidden},
		"anybody else may see plans": {other, "/v1/gc/plan", http.StatusOK},
		"anybody else has not":       {other, "/v1/reload", http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			b := &backend{}
			w := ask(routes(b), c.uid, "POST", c.path, "{}")
			if w.Code != c.code {
				t.Errorf("POST %s as uid %d = %d %s, want %d", c.path, c.uid, w.Code, w.Body, c.code)
			}
			if asked := len(b.requests()); (asked > 0) != (c.code == http.StatusOK) {
				t.Errorf("POST %s as uid %d reached the agent %d times", c.path, c.uid, asked)
			}
		})
	}

	b := &backend{}
	w := httptest.NewRecorder()
	routes(b).ServeHTTP(w, httptest.NewRequest("POST", "/v1/gc/run", strings.NewReader("{}")))
	if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "sudo") || len(b.requests()) > 0 {
		t.Errorf("POST /v1/gc/run by an unknown caller = %d %s, want 403 with a hint", w.Code, w.Body)
	}
}

// The routes for root are listed again here, because an error in the table would open them to
// everyone.
func TestWhatIsRootsAlone(t *testing.T) {
	roots := []string{
		"POST /v1/gc/run", "POST /v1/reload", "POST /v1/drain", "POST /v1/cordon", "POST /v1/uncordon", "POST /v1/leave", "POST /v1/leave/undo", "POST /v1/reboot", "POST /v1/reboot/cancel",
		"GET /v1/pods/{namespace}/{name}/containers/{container}/log",
	}
	other, free := uint32(os.Geteuid()+4711), []string{"/v1/gc/plan", "/v1/drain/plan"} // plans change nothing
	for _, r := range api.Describe() {
		profile := strings.HasPrefix(r.Path, "/debug/pprof")
		want := slices.Contains(roots, r.Method+" "+r.Path) || profile
		if !want && r.Method != http.MethodGet && !slices.Contains(free, r.Path) {
			t.Errorf("%s %s may change something, and is not known to be root's", r.Method, r.Path)
		}
		if r.Acts != want {
			t.Errorf("%s %s is root's: %t, want %t", r.Method, r.Path, r.Acts, want)
		}
		if w := ask(routes(&backend{}), other, r.Method, path(r.Path), "{}"); (w.Code == http.StatusForbidden) != want {
			t.Errorf("%s %s by another user = %d %s, want it refused: %t", r.Method, path(r.Path), w.Code, w.Body, want)
		}
		roots = slices.DeleteFunc(roots, func(known string) bool { return known == r.Method+" "+r.Path })
	}
	if len(roots) > 0 {
		t.Errorf("there are no routes %q", roots)
	}
}

func TestInvalidRequestsDoNotReachTheAgent(t *testing.T) {
	for name, body := range map[string]string{
		"nothing":              "",
		"no JSON":              "images=true",
		"half of it":           `{"images": tr`,
		"a list":               "[]",
		"an unknown field":     `{"imagse": true}`,
		"a wrong type":         `{"images": "yes"}`,
		"a negative target":    `{"targetPercent": -1}`,
		"a target above all":   `{"targetPercent": 101}`,
		"more than it may be":  `{"images": true` + strings.Repeat(" ", 8<<10) + "}",
		"something behind it":  `{"images": true} {"images": false}`,
		"a number beyond ints": `{"targetPercent": 99999999999999999999}`,
	} {
		for _, path := range []string{"/v1/gc/plan", "/v1/gc/run"} {
			b := &backend{}
			w := ask(routes(b), 0, "POST", path, body)
			var e api.Error
			if err := json.Unmarshal(w.Body.Bytes(), &e); w.Code != http.StatusBadRequest || err != nil || e.Message == "" {
				t.Errorf("POST %s with %s = %d %s, want 400 and why", path, name, w.Code, w.Body)
			}
			if asked := b.requests(); len(asked) > 0 {
				t.Errorf("POST %s with %s reached the agent as %+v", path, name, asked)
			}
		}
	}
}

func TestRequestsReachTheAgentAsTheyAre(t *testing.T) {
	for body, want := range map[string]api.CollectRequest{
		"{}":                                    {},
		`{"images": true}`:                      {Images: true},
		`{"containers": true}`:                  {Containers: true},
		`{"allUnused": true}`:                   {AllUnused: true},
		`{"images": true, "targetPercent": 70}`: {Images: true, TargetPercent: 70},
	} {
		b := &backend{}
		ask(routes(b), 0, "POST", "/v1/gc/plan", body)
		ask(routes(b), 0, "POST", "/v1/gc/run", body)
		if asked := b.requests(); len(asked) != 2 || asked[0] != want || asked[1] != want {
			t.Errorf("%s reached the agent as %+v, want twice %+v", body, asked, want)
		}
	}
}

func TestAFailureIsAnErrorWithItsHint(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want api.Error
	}{
		"a plain error":                 {errors.New("ask containerd: gone"), api.Error{Message: "ask containerd: gone"}},
		"one with a hint":               {&api.Error{Message: "a", Hint: "b"}, api.Error{Message: "a", Hint: "b"}},
		"one with a hint, wrapped in":   {errors.Join(&api.Error{Message: "a", Hint: "b"}), api.Error{Message: "a", Hint: "b"}},
		"one that the caller is behind": {context.Canceled, api.Error{Message: "context canceled"}},
	} {
		for _, route := range []string{"GET /v1/status", "GET /v1/pods", "GET /v1/images", "POST /v1/gc/plan", "GET /v1/shutdown/plan"} {
			method, path, _ := strings.Cut(route, " ")
			w := ask(routes(&backend{err: c.err}), 0, method, path, "{}")
			var got api.Error
			if err := json.Unmarshal(w.Body.Bytes(), &got); w.Code != http.StatusInternalServerError || err != nil || got != c.want {
				t.Errorf("%s after %s = %d %s, want 500 and %+v", route, name, w.Code, w.Body, c.want)
			}
		}
	}
}

func TestANodeThatIsNotThereIsNotFound(t *testing.T) {
	w := ask(routes(&backend{err: &api.Error{Message: "there is no node xx", Status: http.StatusNotFound}}), 0, "GET", "/v1/nodes/xx", "")
	if w.Code != http.StatusNotFound || w.Body.String() != `{"error":"there is no node xx"}`+"\n" {
		t.Errorf("GET /v1/nodes/xx = %d %s, want 404 and why", w.Code, w.Body)
	}
}

func TestHealthzNamesWhatIsStuck(t *testing.T) {
	w := ask(routes(&backend{healthy: errors.New("no progress: lease")}), 0, "GET", "/healthz", "")
	if w.Code != http.StatusServiceUnavailable || w.Body.String() != "no progress: lease\n" {
		t.Errorf("GET /healthz = %d %q, want 503 and the loop", w.Code, w.Body)
	}
}

// pipe is a listener with one connection, in memory.
type pipe chan net.Conn

func (p pipe) Accept() (net.Conn, error) {
	c, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (pipe) Close() error   { return nil }
func (pipe) Addr() net.Addr { return &net.UnixAddr{} }

// called is a server to which root is connected.
func called(b *backend) (caller net.Conn, end func()) {
	routes := routes(b)
	server := api.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		routes.ServeHTTP(w, r.WithContext(api.WithUID(r.Context(), 0)))
	}))
	caller, conn := net.Pipe()
	listener := make(pipe, 1)
	listener <- conn
	go server.Serve(listener)
	return caller, func() {
		close(listener)
		server.Close()
	}
}

// A pager that is not scrolled blocks the command, so that it no longer reads.
func TestACallerThatStopsReadingBlocksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := slices.Repeat([]runs.Progress{{Removal: runs.Removal{ID: strings.Repeat("i", 1<<10)}}}, 100)
		collected := false
		caller, end := called(&backend{steps: steps, during: func(context.Context) { collected = true }})
		defer end()
		if _, err := io.WriteString(caller, "POST /v1/gc/run HTTP/1.1\r\nHost: hostler\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if !collected {
			t.Error("the collection still waits for its caller after ten minutes")
		}
		caller.Close()
	})
}

// The server closes the connection of a caller that stops in the middle of a request.
func TestACallerThatStopsSendingIsLeft(t *testing.T) {
	for name, tt := range map[string]struct {
		sends  string
		after  time.Duration
		answer string
	}{
		"before it says anything":    {"", 30 * time.Second, ""},
		"in the middle of a header":  {"GET /v1/status HTTP/1.1\r\nHost: hos", 30 * time.Second, ""},
		"in the middle of a body":    {"POST /v1/gc/plan HTTP/1.1\r\nHost: hostler\r\nContent-Length: 100\r\n\r\n{", 30 * time.Second, "400 Bad Request"},
		"after a request":            {"GET /v1/status HTTP/1.1\r\nHost: hostler\r\n\r\n", time.Minute, "200 OK"},
		"after a header without end": {"GET /v1/status HTTP/1.1\r\nHost: hostler\r\nX: " + strings.Repeat("x", 64<<10), 500 * time.Millisecond, "431 Request Header Fields Too Large"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caller, end := called(&backend{})
				defer end()
				began := time.Now()
				go io.WriteString(caller, tt.sends) // the server may not read all
				answer, err := io.ReadAll(caller)
				if took := time.Since(began); err != nil || took != tt.after {
					t.Errorf("the connection ended after %v, %v, want after %v", took, err, tt.after)
				}
				if first, _, _ := strings.Cut(string(answer), "\r\n"); strings.TrimPrefix(first, "HTTP/1.1 ") != tt.answer {
					t.Errorf("answer = %q, want %q", first, tt.answer)
				}
			})
		})
	}
}

// Whatever a caller sends, the agent gets only valid requests.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"images":true,"containers":false,"allUnused":true,"targetPercent":80}`, `{"targetPercent":-0}`, "[[[[", "\x00", `{"images":null}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b := &backend{}
		w := ask(routes(b), 0, "POST", "/v1/gc/plan", string(body))
		asked := b.requests()
		switch {
		case w.Code == http.StatusBadRequest && len(asked) == 0:
			var e api.Error
			if json.Unmarshal(w.Body.Bytes(), &e) != nil || e.Message == "" {
				t.Errorf("%q was refused with %q, want an error that says why", body, w.Body)
			}
		case w.Code == http.StatusOK && len(asked) == 1:
			if p := asked[0].TargetPercent; p < 0 || p > 100 || len(body) > 8<<10 || !json.Valid(bytes.TrimSpace(body)) {
				t.Errorf("%q reached the agent as %+v", body, asked[0])
			}
		default:
			t.Errorf("%q = %d, and reached the agent %d times", body, w.Code, len(asked))
		}
	})
}
