package api_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/fleet"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
)

func ignore(api.Step) {}

// calls has every method of the client.
func calls(c *api.Client) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Status": func(ctx context.Context) error { _, err := c.Status(ctx); return err },
		"Fleet": func(ctx context.Context) error {
			_, err := c.Fleet(ctx, func(fleet.Member) error { return nil })
			return err
		},
		"Member":         func(ctx context.Context) error { _, err := c.Member(ctx, "n"); return err },
		"Pods":           func(ctx context.Context) error { _, err := c.Pods(ctx); return err },
		"Images":         func(ctx context.Context) error { _, err := c.Images(ctx); return err },
		"ShutdownPlan":   func(ctx context.Context) error { _, err := c.ShutdownPlan(ctx); return err },
		"CollectHistory": func(ctx context.Context) error { _, err := c.CollectHistory(ctx); return err },
		"CollectPlan":    func(ctx context.Context) error { _, err := c.CollectPlan(ctx, api.CollectRequest{}); return err },
		"Collect":        func(ctx context.Context) error { _, err := c.Collect(ctx, api.CollectRequest{}, ignore); return err },
	}
}

func TestClientGetsWhatTheAgentAnswers(t *testing.T) {
	ctx := context.Background()
	socket, _ := serve(t, routes(&backend{}))
	c := api.NewClient(socket)
	status, err := c.Status(ctx)
	if err != nil || status.Version != "1.2.3" {
		t.Errorf("Status() = %+v, %v, want version 1.2.3", status, err)
	}
	pods, err := c.Pods(ctx)
	if err != nil || len(pods.Pods) != 1 || pods.Pods[0].Name != "web" || pods.Message != "half" {
		t.Errorf("Pods() = %+v, %v, want web", pods, err)
	}
	images, err := c.Images(ctx)
	if err != nil || len(images.Images) != 1 || images.Images[0].ID != "i" {
		t.Errorf("Images() = %+v, %v, want i", images, err)
	}
	p, err := c.ShutdownPlan(ctx)
	if err != nil || len(p.Phases) != 1 || p.Phases[0].Name != "regular" {
		t.Errorf("ShutdownPlan() = %+v, %v, want regular", p, err)
	}
	collection, err := c.CollectPlan(ctx, api.CollectRequest{Images: true})
	if err != nil || collection.Message != "planned" {
		t.Errorf("CollectPlan() = %+v, %v, want planned", collection, err)
	}
	past, err := c.CollectHistory(ctx)
	if err != nil || len(past.Runs) != 1 || past.Runs[0].Kind != "images" {
		t.Errorf("CollectHistory() = %+v, %v, want one run", past, err)
	}
	// Over the socket the kernel identifies the caller: the user that runs the test.
	report, err := c.Collect(ctx, api.CollectRequest{Images: true}, ignore)
	if err != nil || report.Ended != "all done" {
		t.Errorf("Collect() = %+v, %v, want all done", report, err)
	}
}

func TestClientPassesTheAgentsErrorOn(t *testing.T) {
	socket, _ := serve(t, routes(&backend{err: &api.Error{Message: "no", Hint: "try yes"}}))
	for name, call := range calls(api.NewClient(socket)) {
		err := call(context.Background())
		var e *api.Error
		if !errors.As(err, &e) || err.Error() != "no\nhint: try yes" {
			t.Errorf("%s() = %v, want the agent's error with its hint", name, err)
		}
	}
}

func TestCollectReportsEachStep(t *testing.T) {
	removal := runs.Removal{Kind: runs.KindImage, ID: "i", Names: []string{"a"}, Runtime: "containerd", Reason: gc.LRU, SizeBytes: 7}
	socket, _ := serve(t, routes(&backend{steps: []runs.Progress{
		{Waiting: true},
		{Removal: removal, Action: gc.Remove, Done: 1, Total: 2},
		{Removal: removal, Action: gc.Keep, Err: errors.New("busy"), Done: 2, Total: 2},
	}}))
	var got []api.Step
	report, err := api.NewClient(socket).Collect(context.Background(), api.CollectRequest{}, func(s api.Step) { got = append(got, s) })
	want := []api.Step{
		{Waiting: true},
		{Removal: removal, Action: gc.Remove, Done: 1, Total: 2},
		{Removal: removal, Action: gc.Keep, Error: "busy", Done: 2, Total: 2},
	}
	if err != nil || report.Ended != "all done" || !reflect.DeepEqual(got, want) {
		t.Errorf("Collect() = %+v, %v with steps %+v, want %+v", report, err, got, want)
	}
}

// Steps are streamed as they happen, not at the end.
func TestCollectStreams(t *testing.T) {
	seen := make(chan struct{})
	socket, _ := serve(t, routes(&backend{
		steps:  []runs.Progress{{Done: 1, Total: 2}},
		during: func(ctx context.Context) { wait(ctx, seen) },
	}))
	report, err := api.NewClient(socket).Collect(t.Context(), api.CollectRequest{}, func(api.Step) { close(seen) })
	if err != nil || report.Ended != "all done" {
		t.Errorf("Collect() = %+v, %v, want its end after the step was seen", report, err)
	}
}

func wait(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func TestACollectionThatBreaksOffIsAnError(t *testing.T) {
	b := &backend{steps: []runs.Progress{{Done: 1, Total: 2}}}
	b.during = func(ctx context.Context) { <-ctx.Done() }
	socket, server := serve(t, routes(b))
	_, err := api.NewClient(socket).Collect(t.Context(), api.CollectRequest{}, func(api.Step) { _ = server.Close() })
	var unreachable *api.UnreachableError
	if !errors.As(err, &unreachable) || !strings.Contains(err.Error(), "the collection's answer broke off") {
		t.Errorf("Collect() from an agent that ended = %v, want that it broke off", err)
	}
}

func TestTheCollectionLearnsThatItsCallerLeft(t *testing.T) {
	left := make(chan struct{})
	socket, _ := serve(t, routes(&backend{
		steps:  []runs.Progress{{Done: 1, Total: 2}},
		during: func(ctx context.Context) { <-ctx.Done(); close(left) },
	}))
	ctx, leave := context.WithCancel(t.Context())
	if _, err := api.NewClient(socket).Collect(ctx, api.CollectRequest{}, func(api.Step) { leave() }); err == nil {
		t.Error("Collect() of a caller that left = nil, want an error")
	}
	select {
	case <-left:
	case <-time.After(5 * time.Minute):
		t.Error("the collection continues after its caller has disconnected")
	}
}

func TestAnUnreachableAgentComesWithAHint(t *testing.T) {
	dir := folder(t)
	dead := filepath.Join(dir, "dead")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	for name, c := range map[string]struct {
		socket string
		hint   string
	}{
		"nothing there":         {filepath.Join(dir, "none"), "hint: run `hostler doctor` as root, or see `systemctl status hostler`"},
		"a socket of the dead":  {dead, "hint: the agent was killed; run `hostler doctor` as root, or see `journalctl -u hostler`"},
		"a path that is no use": {filepath.Join(dir, strings.Repeat("x", 200)), "hint: "},
	} {
		for call, do := range calls(api.NewClient(c.socket)) {
			err := do(context.Background())
			var unreachable *api.UnreachableError
			if !errors.As(err, &unreachable) || unreachable.Socket != c.socket || !strings.Contains(err.Error(), c.hint) || strings.Contains(err.Error(), "http://") {
				t.Errorf("%s() with %s = %v, want %q", call, name, err, c.hint)
			}
		}
	}
}

func TestAnAgentThatDoesNotAnswerInTime(t *testing.T) {
	socket, _ := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := api.NewClient(socket).Status(ctx)
	want := "no agent answers at " + socket + ": context deadline exceeded\nhint: the agent runs but does not answer; run `hostler doctor` as root, or see `journalctl -u hostler`"
	if err == nil || err.Error() != want {
		t.Errorf("Status() = %v, want %s", err, want)
	}
}

func TestHintsOfAnUnreachableAgent(t *testing.T) {
	for name, c := range map[string]struct {
		cause error
		want  string
	}{
		"no permission":   {&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", os.ErrPermission)}, "ask the agent at /s: dial: connect: permission denied\nhint: run it with sudo, or join group hostler"},
		"no answer":       {context.DeadlineExceeded, "hint: the agent runs but does not answer; run `hostler doctor` as root, or see `journalctl -u hostler`"},
		"a read too long": {os.ErrDeadlineExceeded, "hint: the agent runs but does not answer; run `hostler doctor` as root, or see `journalctl -u hostler`"},
	} {
		err := &api.UnreachableError{Socket: "/s", Cause: c.cause}
		if !strings.Contains(err.Error(), c.want) || !errors.Is(err, c.cause) {
			t.Errorf("the error with %s = %v, want %q", name, err, c.want)
		}
	}
}

// Another program may serve the socket.
func TestAnAnswerOfAnotherProgram(t *testing.T) {
	for name, c := range map[string]struct {
		code int
		body string
		want string
	}{
		"no JSON":              {http.StatusOK, "<html>", "read the answer"},
		"a failure in prose":   {http.StatusBadGateway, "sorry", "the agent answered 502 Bad Gateway"},
		"a failure in silence": {http.StatusInternalServerError, "{}", "the agent answered 500 Internal Server Error"},
	} {
		socket, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.code)
			_, _ = w.Write([]byte(c.body))
		}))
		if _, err := api.NewClient(socket).Status(context.Background()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Status() with %s = %v, want %q", name, err, c.want)
		}
	}
}

// Connections that the agent has not accepted fill the queue of its socket.
func TestAClientWaitsForAPlaceInTheQueue(t *testing.T) {
	for tries := 1; ; tries++ {
		began := time.Now()
		err := waitsForAPlace(t)
		if err == nil {
			return
		}
		if took := time.Since(began); took < 2*time.Second || tries == 5 { // it waits for 2 s, which pass on a busy machine
			t.Fatalf("Status() = %v after %v, want the answer once there is a place", err, took)
		}
	}
}

// waitsForAPlace makes a place free in a full queue, and returns the error of a request that waits for it.
func waitsForAPlace(t *testing.T) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	for {
		c, err := net.Dial("unix", path)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	answered := make(chan error, 1)
	go func() {
		_, err := api.NewClient(path).Status(t.Context())
		answered <- err
	}()
	select {
	case err := <-answered:
		return fmt.Errorf("it has not waited: %w", err)
	case <-time.After(100 * time.Millisecond): // enough for several attempts
	}
	l, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	server := api.NewServer(routes(&backend{}))
	defer server.Close()
	go func() { _ = server.Serve(l) }()
	return <-answered
}
