package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/shutdown/journal"
)

// drainedPods is a backend that stops two pods.
func drainedPods() *backend {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b := &backend{pods: []journal.PodRecord{{Name: "web", Outcome: journal.Stopped}, {Name: "api", Outcome: journal.Killed}}}
	b.drained = maintenance.DrainReport{Node: "host", Unschedulable: true, Record: journal.Record{StartedAt: began, FinishedAt: began.Add(time.Second), Graceful: true, Pods: b.pods}}
	return b
}

func TestOnlyRootDrainsAndCordons(t *testing.T) {
	other := uint32(os.Geteuid() + 4711)
	for _, path := range []string{"/v1/drain", "/v1/cordon", "/v1/uncordon", "/v1/leave", "/v1/leave/undo"} {
		b := drainedPods()
		w := ask(routes(b), other, "POST", path, "{}")
		if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "sudo") || len(b.drains)+len(b.cordons) > 0 {
			t.Errorf("POST %s by anybody = %d %s, want 403 with a hint, and the agent not asked", path, w.Code, w.Body)
		}
	}
	if w := ask(routes(drainedPods()), other, "POST", "/v1/drain/plan", "{}"); w.Code != http.StatusOK {
		t.Errorf("POST /v1/drain/plan by anybody = %d %s, want 200", w.Code, w.Body)
	}
}

func TestInvalidDrainRequestsDoNotReachTheAgent(t *testing.T) {
	for _, body := range []string{"", "all", `{"all": "yes"}`, `{"everything": true}`, `{} {}`} {
		for _, path := range []string{"/v1/drain", "/v1/drain/plan"} {
			b := drainedPods()
			if w := ask(routes(b), 0, "POST", path, body); w.Code != http.StatusBadRequest || len(b.drains) > 0 {
				t.Errorf("POST %s of %q = %d %s, want 400, and nothing drained", path, body, w.Code, w.Body)
			}
		}
	}
}

func TestADrainOverTheSocket(t *testing.T) {
	refusal := &api.Error{Message: "drain: no", Hint: "later"}
	for name, c := range map[string]struct {
		err     error
		refused bool // before the drain began
		steps   []string
	}{
		"goes well":             {steps: []string{"web stopped", "api killed"}},
		"is refused":            {err: refusal, refused: true},
		"is cut off in the end": {err: refusal, steps: []string{"web stopped", "api killed"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := drainedPods()
			b.err = c.err
			if c.refused {
				b.pods, b.drained = nil, maintenance.DrainReport{Node: "host"}
			}
			socket, _ := serve(t, routes(b))
			var steps []string
			report, err := api.NewClient(socket).Drain(t.Context(), maintenance.DrainRequest{All: true}, func(s maintenance.DrainStep) {
				steps = append(steps, s.Name+" "+string(s.Outcome))
			})
			var reported *api.Error
			if (c.err == nil) != (err == nil) || c.err != nil && (!errors.As(err, &reported) || *reported != *refusal) {
				t.Errorf("Drain() = %v, want %v", err, c.err)
			}
			if report.Graceful == c.refused || !slices.Equal(steps, c.steps) {
				t.Errorf("Drain() = %+v after %q, want the report that was sent after %q", report, steps, c.steps)
			}
			if len(b.drains) != 1 || !b.drains[0].All {
				t.Errorf("the agent received the drain requests %+v, want all", b.drains)
			}
		})
	}
}

func TestADrainEndsWithItsCaller(t *testing.T) {
	b := drainedPods()
	ended := make(chan error, 1)
	b.during = func(ctx context.Context) {
		<-ctx.Done()
		ended <- ctx.Err()
	}
	socket, _ := serve(t, routes(b))
	ctx, cancel := context.WithCancel(t.Context())
	_, err := api.NewClient(socket).Drain(ctx, maintenance.DrainRequest{}, func(s maintenance.DrainStep) {
		if s.Name == "api" {
			cancel() // Ctrl-C
		}
	})
	if err == nil {
		t.Error("Drain() that was interrupted = nil, want an error")
	}
	select {
	case <-ended:
	case <-time.After(5 * time.Minute):
		t.Error("the drain still runs five minutes after its caller has gone")
	}
}

func TestACallerThatStopsReadingDoesNotBlockADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := drainedPods()
		b.pods = slices.Repeat([]journal.PodRecord{{Name: strings.Repeat("n", 1<<10)}}, 100)
		drained := false
		b.during = func(context.Context) { drained = true }
		caller, end := called(b)
		defer end()
		if _, err := io.WriteString(caller, "POST /v1/drain HTTP/1.1\r\nHost: hostler\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if !drained {
			t.Error("the drain still waits for its caller after ten minutes")
		}
		caller.Close()
	})
}

func TestACordonOverTheSocketNamesItsCaller(t *testing.T) {
	b := drainedPods()
	socket, _ := serve(t, routes(b))
	client := api.NewClient(socket)
	for _, want := range []bool{true, false} {
		r, err := client.Cordon(t.Context(), want)
		if err != nil || r.Unschedulable != want {
			t.Errorf("Cordon(%v) = %+v, %v, want it so", want, r, err)
		}
		if r.By != me(t) {
			t.Errorf("it names %q, want %q", r.By, me(t))
		}
	}
	if !slices.Equal(b.cordons, []bool{true, false}) {
		t.Errorf("the agent received the cordon requests %v", b.cordons)
	}
}

// me returns the login user of this test, or its effective user.
func me(t *testing.T) string {
	t.Helper()
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	login, err := os.ReadFile("/proc/self/loginuid")
	if id := strings.TrimSpace(string(login)); err == nil && id != "" && id != "4294967295" {
		if u, err = user.LookupId(id); err != nil {
			return "uid " + id
		}
	}
	return u.Username
}

func TestAnUnknownCallerHasNoName(t *testing.T) {
	if got := api.CallerName(t.Context()); got != "nobody known" {
		t.Errorf("callerName() = %q, want that nobody is known", got)
	}
	if got := api.CallerName(api.WithUID(t.Context(), 4294967294)); got != "uid 4294967294" {
		t.Errorf("callerName() of a user without a name = %q, want the number", got)
	}
}

func TestADrainReportIsOneObject(t *testing.T) {
	data, err := json.Marshal(drainedPods().drained)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{`"node":`, `"unschedulable":true`, `"graceful":true`, `"pods":[`} {
		if !strings.Contains(string(data), key) {
			t.Errorf("a drain's report is %s, want %s in it", data, key)
		}
	}
}
