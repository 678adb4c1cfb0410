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

// pendingRestarts says what the guard's status has to be started again, and what became of that.
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
		r.expectPending("after the cancellation", "slow-c= web-c=") // and dns was never asked
		// A person who drains the host wants none of it back.
		if _, err := r.guard.Drain(t.Context(), journal.TriggerManual); err != nil {
			t.Fatal(err)
		}
		r.expectPending("after a drain by hand", "slow-c=left web-c=left")
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
		r.logind.cancel() // it is another login manager's life
		r.start()
		r.expectPending("after the boot", "web-c=")
	})
}
