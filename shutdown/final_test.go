package shutdown_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
)

// The regular check of an armed guard, every five minutes, is due shortly after the drain.
func TestTheRegularCheckFollowsNoFinalRelease(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
		r.start()
		time.Sleep(5*time.Minute - 5*time.Second)
		if _, err := r.guard.Drain(t.Context(), journal.TriggerServiceStop); err != nil {
			t.Fatalf("Drain() = %v", err)
		}
		time.Sleep(time.Hour)
		r.expect(shutdown.Released, 0)
		if record := r.guard.Status().Current; record == nil || record.FinishedAt.IsZero() || !record.CancelledAt.IsZero() {
			t.Errorf("Current = %+v, want the drain on record as it ended", record)
		}
		// The second drain reports the same pods.
		again, err := r.guard.Drain(t.Context(), journal.TriggerServiceStop)
		if err != nil || len(again.Pods) != 1 || !again.Graceful {
			t.Errorf("Drain() once more = %+v, %v, want what became of web", again, err)
		}
	})
}

// For any events before, during and after a service stop while systemd shuts down, in any order,
// the release at its end is the last change.
func TestNothingFollowsAFinalRelease(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			onHost(t, func(t *testing.T, r *rig) {
				dice := rand.New(rand.NewPCG(seed, 17))
				deeds := []func(){
					func() { r.logind.shutdown("reboot") },
					func() { r.logind.cancel() },
					func() { r.logind.cancelWithoutSignal() },
					func() { r.logind.restart(time.Duration(dice.IntN(20)) * time.Second) },
					func() { r.logind.loseBus() },
					func() { r.alter() },
					func() { r.guard.Recheck() },
					func() {
						resume := r.logind.hangs([]string{"Inhibit", "Preparing", "RaiseMaxDelay"}[dice.IntN(3)])
						time.AfterFunc(time.Duration(dice.IntN(40))*time.Second, resume)
					},
				}
				lives := func(n int) {
					for range dice.IntN(n) {
						// Often shortly before or after the regular check.
						pauses := []time.Duration{0, time.Second, 15 * time.Second, 5*time.Minute - time.Second, 5 * time.Minute}
						time.Sleep(pauses[dice.IntN(len(pauses))])
						deeds[dice.IntN(len(deeds))]()
					}
				}
				r.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Duration(dice.IntN(8)) * time.Second})
				r.logind.unwatched = true
				r.start()
				lives(6)
				drained := make(chan error, 1)
				go func() {
					_, err := r.guard.Drain(t.Context(), journal.TriggerServiceStop)
					drained <- err
				}()
				lives(4)
				if err := <-drained; err != nil {
					t.Fatalf("Drain() = %v", err)
				}
				synctest.Wait()
				changes := len(r.states())
				lives(10)
				time.Sleep(time.Hour)
				if states := r.states(); len(states) != changes {
					t.Errorf("after the final release observed %v, want nothing", states[changes:])
				}
				r.expect(shutdown.Released, 0)
			})
		})
	}
}

// In a new process, only systemd's descriptor store has the lock until an attempt adopts it. If no
// attempt can adopt it, it must not delay a shutdown.
func TestALockThatNoAttemptTookUpIsReleased(t *testing.T) {
	for name, prepare := range map[string]func(*rig){
		"logind refuses to answer":      func(r *rig) { r.logind.breaks("Inhibit", errBus) },
		"logind hangs":                  func(r *rig) { r.logind.hangs("RaiseMaxDelay") },
		"the attempt took up the lock":  func(*rig) {},
		"logind cannot say what it has": func(r *rig) { r.logind.breaks("Preparing", errBus) },
	} {
		t.Run(name, func(t *testing.T) {
			onHost(t, func(t *testing.T, r *rig) {
				r.logind.inherit()
				prepare(r)
				r.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
				r.start()
				r.logind.shutdown("reboot")
				time.Sleep(3 * time.Second)
				r.expect(shutdown.Released, 0)
			})
		})
	}
}
