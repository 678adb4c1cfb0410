package agent

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

// factsOf gathers facts of this machine and of the runtime.
func factsOf(t *testing.T, r runtime.Runtime) *facts {
	t.Helper()
	reader, err := probe.New("/")
	if err != nil {
		t.Fatal(err)
	}
	set, err := runtime.NewSet(r)
	if err != nil {
		t.Fatal(err)
	}
	return &facts{
		reader: reader, nodeFolder: t.TempDir(), machineAt: time.Now(),
		runtimes: &runtimes{set: set, log: slog.New(slog.DiscardHandler), states: map[string]status.Runtime{}},
		guard:    func() shutdown.Status { return shutdown.Status{} },
	}
}

func TestARuntimeThatHangsDoesNotHideTheDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := runtimetest.NewFake(runtimetest.Options{CallTimeout: time.Hour})
		fake.Inject(runtimetest.Images, runtimetest.Fault{Hang: true})
		f := factsOf(t, fake)
		began := time.Now()
		seen := f.now(t.Context(), nil)
		if took := time.Since(began); took > factsTimeout {
			t.Errorf("now() took %v, want it within %v", took, factsTimeout)
		}
		if len(seen.Filesystems) == 0 || seen.Filesystems[0].Problem != "" || seen.Filesystems[0].CapacityBytes == 0 {
			t.Errorf("now() = %+v, want the node's filesystem measured", seen.Filesystems)
		}
	})
}
