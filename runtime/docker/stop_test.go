package docker_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker"
)

// done answers a signal.
func done(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// lists answers lists of all containers. In lists of single containers, they have ended.
func lists(all ...any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("filters") != "" {
			all = []any{}
		}
		_ = json.NewEncoder(w).Encode(all)
	}
}

// started is a container that has run since then.
func started(at time.Time) object {
	return object{"Created": "2026-11-20T10:00:00Z", "State": object{"Running": true, "StartedAt": at.Format(time.RFC3339Nano)}, "Config": object{}}
}

// signals returns the signals that a server was asked to send, in order.
func signals(s *server) (sent []string) {
	for _, call := range s.asked() {
		if name, of, is := strings.Cut(strings.TrimPrefix(call, "POST /containers/"), "/kill?signal="); is {
			sent = append(sent, name+" "+of)
		}
	}
	return sent
}

// A process that does not end must not block the kill of others. Containers that joined the project
// later are not killed.
func TestStopPodKillsWhatItIsGiven(t *testing.T) {
	var all []any
	for _, id := range []string{"stuck", "other", "late"} {
		all = append(all, listed(id, "running", service("shop", id, "")))
	}
	killed := make(chan struct{})
	s := newServer(t, "1.45", object{
		"/containers/json": lists(all...),
		"/containers/stuck/kill": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-killed:
			case <-r.Context().Done():
			}
			fails(500, "did not receive an exit event")(w, r)
		}),
		"/containers/other/kill": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { close(killed); done(w, r) }),
		"/containers/other/wait": object{"StatusCode": 137},
		"/containers/late/kill":  http.HandlerFunc(done), "/containers/late/wait": object{"StatusCode": 137},
	})
	r := s.client(t, func(o *docker.Options) { o.Timeouts.Teardown = 10 * time.Minute })
	err := r.StopPod(t.Context(), runtime.Pod{ID: "compose:shop", Name: "shop", Containers: []runtime.Container{{ID: "stuck"}, {ID: "other"}, {ID: "gone"}}})
	if err == nil || !strings.Contains(err.Error(), `stop pod "shop": container "stuck": did not receive an exit event`) {
		t.Errorf("StopPod() = %v, want that stuck did not end", err)
	}
	sent := signals(s)
	slices.Sort(sent)
	if want := []string{"other SIGKILL", "stuck SIGKILL"}; !slices.Equal(sent, want) {
		t.Errorf("StopPod() sent %v, want %v", sent, want)
	}
}

func TestAFailedWaitIsNotAnEnd(t *testing.T) {
	s := newServer(t, "1.45", object{
		"/containers/json": lists(), "/containers/a/kill": http.HandlerFunc(done), "/containers/a/json": started(time.Now()),
		"/containers/a/wait": object{"StatusCode": -1, "Error": object{"Message": "lost the shim"}},
	})
	for _, grace := range []time.Duration{0, time.Minute} {
		if err := s.client(t).StopContainer(t.Context(), runtime.Container{ID: "a"}, grace); err == nil || !strings.Contains(err.Error(), "lost the shim") {
			t.Errorf("StopContainer() with a grace of %v = %v, want why the wait failed", grace, err)
		}
	}
}

// The author of an image chooses its stop signal.
func TestAStopSignalThatDoesNotExistIsReplaced(t *testing.T) {
	for text, want := range map[string]string{
		"": "SIGTERM", "12345": "SIGTERM", "-9": "SIGTERM", "0": "SIGTERM", "65": "SIGTERM", "33": "SIGTERM", "SIGNONE": "SIGTERM",
		"64": "64", "quit": "quit", "RTMIN+3": "RTMIN+3",
	} {
		now := started(time.Now())
		now["Config"] = object{"StopSignal": text}
		s := newServer(t, "1.45", object{
			"/containers/json": lists(), "/containers/a/kill": http.HandlerFunc(done), "/containers/a/json": now,
			"/containers/a/wait": object{"StatusCode": 0},
		})
		if err := s.client(t).StopContainer(t.Context(), runtime.Container{ID: "a"}, time.Minute); err != nil {
			t.Errorf("StopContainer() with the stop signal %q = %v", text, err)
		}
		if sent := signals(s); !slices.Equal(sent, []string{"a " + url.QueryEscape(want)}) {
			t.Errorf("StopContainer() with the stop signal %q sent %q, want %q", text, sent, want)
		}
	}
}

// Lists may be outdated; a container that was started again must be distinguished from that.
func TestAContainerThatRunsAgainIsNotStopped(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		now   object
		error string
	}{
		"it runs":   {started(time.Now()), "it was started again"},
		"it is not": {inspected("2026-11-20T10:00:00Z", time.Now(), object{}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, "1.45", object{
				"/containers/json": []any{listed("a", "running", nil)}, "/containers/a/kill": http.HandlerFunc(done),
				"/containers/a/wait": object{"StatusCode": 0}, "/containers/a/json": tt.now,
			})
			err := s.client(t).StopContainer(t.Context(), runtime.Container{ID: "a"}, time.Minute)
			if (err == nil) != (tt.error == "") || err != nil && !strings.Contains(err.Error(), tt.error) {
				t.Errorf("StopContainer() = %v, want %q", err, tt.error)
			}
		})
	}
}

// dockerd stops while a container is stopping, and restarts.
func TestASignalIsSentOnceToAProcess(t *testing.T) {
	for name, tt := range map[string]struct {
		since time.Time
		want  []string
	}{
		"one that lived on":                  {time.Now().Add(-time.Hour), []string{"a SIGQUIT"}},
		"a container that was started again": {time.Now().Add(time.Hour), []string{"a SIGQUIT", "a SIGQUIT"}},
	} {
		t.Run(name, func(t *testing.T) {
			now := started(tt.since)
			now["Config"] = object{"StopSignal": "SIGQUIT"}
			waits := 0
			s := newServer(t, "1.45", object{
				"/containers/json": lists(), "/containers/a/kill": http.HandlerFunc(done), "/containers/a/json": now,
				"/containers/a/wait": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if waits++; waits == 1 {
						if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
							conn.Close()
						}
						return
					}
					_ = json.NewEncoder(w).Encode(object{"StatusCode": 0})
				}),
			})
			if err := s.client(t).StopContainer(t.Context(), runtime.Container{ID: "a"}, time.Minute); err != nil {
				t.Errorf("StopContainer() = %v", err)
			}
			if sent := signals(s); waits != 2 || !slices.Equal(sent, tt.want) {
				t.Errorf("StopContainer() waited %d times and sent %v, want 2 and %v", waits, sent, tt.want)
			}
		})
	}
}

// A container whose start hangs cannot be inspected; others can.
func TestAContainerThatHangsHidesNoOther(t *testing.T) {
	t.Parallel()
	s := newServer(t, "1.45", object{
		"/containers/json":   []any{listed("a", "created", nil), listed("b", "running", nil)},
		"/containers/a/json": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
		"/containers/b/json": inspected("2026-11-20T10:00:00.5Z", time.Time{}, object{"StopTimeout": 90}),
	})
	r := s.client(t, func(o *docker.Options) { o.Timeouts.Query = time.Second })
	unknown := func(p runtime.Pod) bool { return p.Name == "b" && p.Containers[0].StopTimeout == nil }
	for _, asks := range []bool{true, false} {
		pods, err := r.Pods(t.Context())
		for tries := 0; (err != nil || slices.ContainsFunc(pods, unknown)) && tries < 100; tries++ { // on a busy machine, an answer may be too late
			pods, err = r.Pods(t.Context())
		}
		if err != nil || len(pods) != 2 || slices.ContainsFunc(pods, unknown) {
			t.Fatalf("Pods() = %+v, %v, want both containers, and what b was created with", pods, err)
		}
		if asked := slices.Contains(s.asked(), "GET /containers/a/json"); asked != asks {
			t.Errorf("a was asked of itself: %t, want %t", asked, asks)
		}
	}
}
