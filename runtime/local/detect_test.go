package local_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

// downing is a service manager that reports whether the host is shutting down.
type downing bool

func (d downing) StopUnit(context.Context, string, int, func(context.Context, []string) error) (bool, error) {
	return false, nil
}

func (d downing) HoldStop(context.Context, string, time.Duration, func(context.Context, []string) error) (local.Hold, error) {
	return nil, nil
}
func (d downing) MainOf(context.Context, int) (string, error)     { return "", nil }
func (d downing) UnitStops(context.Context, string) (bool, error) { return true, nil }
func (d downing) Units(context.Context, ...string) (map[string]local.Unit, error) {
	return nil, nil
}
func (d downing) Stopping(context.Context) (bool, error) { return bool(d), nil }

// listened returns a listening socket that never answers.
func listened(t *testing.T) (path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "local")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "a.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return path
}

// Starting a service would cancel a shutdown.
func TestDetectStartsNoServiceDuringAShutdown(t *testing.T) {
	path := listened(t)
	for name, c := range map[string]struct {
		holders []int
		wakes   bool
		units   local.Units
		asked   bool
	}{
		"it sleeps, and is meant to be woken":                 {[]int{1}, true, downing(false), true},
		"it sleeps, without a service manager":                {[]int{1}, true, nil, true},
		"it sleeps while the host goes down":                  {[]int{1}, true, downing(true), false},
		"it is awake while the host goes down":                {[]int{1, 12}, true, downing(true), true},
		"it sleeps, and is not meant to be woken":             {[]int{1}, false, downing(false), false},
		"it is a daemon, while the host goes down":            {[]int{12}, false, downing(true), true},
		"it is running, and the state of the host is unknown": {[]int{1, 12}, true, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			asked := false
			found := local.DetectIn(t.Context(), proc(t, path, c.holders...), []local.Candidate{{Path: path, Wakes: c.wakes}}, c.units, func(context.Context, local.Candidate) (string, string, error) {
				asked = true
				return "", "", nil
			})
			if len(found) != 1 || asked != c.asked || found[0].Listens != c.asked || found[0].NotRunning == c.asked || (found[0].Err == nil) != c.asked {
				t.Errorf("Detect() = %+v and asked: %t, want that to be %t, and who is not asked asleep and not connected to", found, asked, c.asked)
			}
		})
	}
}

// A service that starts slowly gets one request, and a later Detect finds it.
func TestALateAnswerIsUsed(t *testing.T) {
	path := listened(t)
	var detector local.Detector
	asked, answer := make(chan struct{}), make(chan error)
	check := func(ctx context.Context) local.Detected {
		t.Helper()
		found := detector.Detect(ctx, []local.Candidate{{Path: path}}, nil, func(context.Context, local.Candidate) (string, string, error) {
			asked <- struct{}{}
			return "slow", "1.0", <-answer
		})
		if len(found) != 1 {
			t.Fatalf("Detect() = %+v, want the socket", found)
		}
		return found[0]
	}
	hasty, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	for range 2 { // the second must not send a request
		if d := check(hasty); !d.NoAnswer() || !errors.Is(d.Err, runtime.ErrUnavailable) {
			t.Errorf("Detect() = %+v before it has answered, want an unresponsive daemon", d)
		}
	}
	answer <- nil
	if d := check(t.Context()); d.Err != nil || d.RuntimeName != "slow" || !d.Listens {
		t.Errorf("Detect() = %+v, want what answered late", d)
	}

	// A known runtime is queried again, and so is one that has failed since.
	hasty, cancel = context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if d := check(hasty); !d.NoAnswer() {
		t.Errorf("Detect() = %+v, want an unresponsive daemon", d)
	}
	answered := detector.Answered(path)
	answer <- runtime.ErrUnavailable
	<-answered
	go func() { <-asked; answer <- nil }()
	if d := check(t.Context()); d.Err != nil {
		t.Errorf("Detect() = %+v after a failure that nobody has waited for, want who answers now", d)
	}
}
