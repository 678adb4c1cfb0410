package shutdown_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// pendingRestarts returns the restarts in the guard's status, with their results.
func (r *rig) pendingRestarts() string {
	var list []string
	for _, o := range r.guard.Status().Restarts {
		list = append(list, o.ID+"="+string(o.Outcome))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func (r *rig) expectPending(when, want string) {
	r.t.Helper()
	if got := r.pendingRestarts(); got != want {
		r.t.Errorf("%s: to be started again %q, want %q", when, got, want)
	}
}

func TestACancelledShutdownLeavesWhatIsToBeStartedAgain(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second, Restart: runtime.RestartUnlessStopped})
		r.pod("slow", 0, runtimetest.ContainerSpec{IgnoresTERM: true, Restart: runtime.RestartUnlessStopped})
		r.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{Restart: runtime.RestartUnlessStopped})
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(3 * time.Second)
		r.expectPending("while the host goes down", "")
		r.logind.cancel()
		time.Sleep(2 * time.Second)
		r.expect(shutdown.Armed, 1)
		r.expectPending("after the cancellation", "slow-c= web-c=") // the stop of dns was not requested
		// A manual drain means that none of them must be started.
		if _, err := r.guard.Drain(t.Context(), journal.TriggerManual); err != nil {
			t.Fatal(err)
		}
		r.expectPending("after a manual drain", "slow-c=left web-c=left")
	})
}

func TestTheNextBootKnowsWhatIsToBeStartedAgain(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("web", 0, runtimetest.ContainerSpec{Restart: runtime.RestartUnlessStopped})
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(10 * time.Second)
		r.expect(shutdown.Released, 0)
		r.expectPending("while the host goes down", "")
		r.stop()
		r.boot = "another"
		r.logind.cancel() // the fake logind is used again
		r.start()
		r.expectPending("after the boot", "web-c=")
	})
}
