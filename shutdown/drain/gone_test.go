package drain_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/journal"
)

// Containers that ended while their runtime was stopped are not waited for. Those that still live
// are.
func TestContainersThatEndedWithoutTheirRuntimeAreNotAwaited(t *testing.T) {
	id := func(digit string) string { return strings.Repeat(digit, 64) }
	for name, tt := range map[string]struct {
		living   []string
		fails    error // of every call
		graceful bool
		outcome  journal.Outcome
		took     time.Duration // maximum
	}{
		"all have ended":           {nil, fmt.Errorf("%w: connection refused", runtime.ErrUnavailable), true, "", 2 * time.Second},
		"one lives":                {[]string{id("a")}, fmt.Errorf("%w: connection refused", runtime.ErrUnavailable), false, journal.Left, 0},
		"the runtime is slow":      {nil, fmt.Errorf("%w: %w", runtime.ErrUnavailable, errSlow{}), false, journal.Left, 0},
		"the check for it hangs":   {[]string{"hangs"}, fmt.Errorf("%w: connection refused", runtime.ErrUnavailable), false, journal.Left, 27 * time.Second},
		"its state cannot be read": {[]string{"?"}, fmt.Errorf("%w: connection refused", runtime.ErrUnavailable), false, journal.Left, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.fake.RunPod(runtimetest.PodSpec{ID: "web", Name: "web", Namespace: "test", Containers: []runtimetest.ContainerSpec{{ID: id("a"), Name: "web", Image: "image"}}})
				set, err := runtime.NewSet(w.fake) // its errors name the runtime
				if err != nil {
					t.Fatal(err)
				}
				w.roster.Runtime = set
				w.roster.Living = func() (map[string]bool, error) {
					living := map[string]bool{}
					for _, id := range tt.living {
						switch living[id] = true; id {
						case "?":
							return nil, fmt.Errorf("no processes are shown")
						case "hangs":
							time.Sleep(time.Hour)
						}
					}
					return living, nil
				}
				if _, err := w.roster.List(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.fake.Inject(runtimetest.Every, runtimetest.Fault{Err: tt.fails})
				r, took := w.run(t.Context())
				var outcome journal.Outcome
				for _, p := range r.Pods {
					outcome = p.Outcome
				}
				if r.Graceful != tt.graceful || outcome != tt.outcome && (tt.outcome != "" || outcome != journal.Stopped) {
					t.Errorf("Record() = %+v, want graceful %t and %q", r, tt.graceful, tt.outcome)
				}
				if tt.took > 0 && took > tt.took {
					t.Errorf("Run() took %v, want at most %v", took, tt.took)
				}
				time.Sleep(2 * time.Hour) // for a scan that hangs
			})
		})
	}
}

// errSlow is the error of an answer that did not arrive in time.
type errSlow struct{}

func (errSlow) Error() string        { return "timed out" }
func (errSlow) Is(target error) bool { return target == context.DeadlineExceeded }
