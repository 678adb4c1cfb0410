package shutdown_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/shutdown"
)

// alter sends the event that locks or the longest delay have changed.
func (r *rig) alter() {
	r.t.Helper()
	r.logind.change(func() { r.logind.announce(shutdown.Event{Type: shutdown.Altered}) })
	synctest.Wait()
}

func (r *rig) setCeiling(d time.Duration) {
	r.logind.change(func() { r.logind.ceiling = d })
}

// If nothing is granted any more, the guard must not report or use the old delay.
func TestAGuardThatIsGrantedNothingReportsIt(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.start()
		r.expect(shutdown.Armed, 1)
		r.setCeiling(-1)
		r.alter()
		got := r.guard.Status()
		if got.InhibitDelayMax.Duration != 0 || got.InhibitDelayShortage != "zzz.conf says InhibitDelayMaxSec=0s" || got.Reason != "shutdown lock held, but zzz.conf says InhibitDelayMaxSec=0s" {
			t.Errorf("Status() = %+v, want 0s granted", got)
		}
	})
}

func TestAnArmedGuardReportsAtOnceWhatItIsGranted(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.start()
		r.expect(shutdown.Armed, 1)
		if got := r.guard.Status(); got.InhibitDelayShortage != "" || got.InhibitDelayNeeded.Duration != 36*time.Second || got.InhibitDelayMax.Duration != 36*time.Second {
			t.Errorf("Status() = %+v, want 36s needed and granted", got)
		}
		for _, c := range []struct {
			ceiling  time.Duration
			shortage string
			changes  int // number of changes so far
		}{
			{8 * time.Second, "zzz.conf says InhibitDelayMaxSec=8s", 2},
			{8 * time.Second, "zzz.conf says InhibitDelayMaxSec=8s", 2},
			{9 * time.Second, "zzz.conf says InhibitDelayMaxSec=9s", 3},
			{0, "", 4},
			{0, "", 4},
		} {
			r.setCeiling(c.ceiling)
			r.alter()
			got := r.guard.Status()
			if got.State != shutdown.Armed || got.InhibitDelayShortage != c.shortage || !strings.Contains(got.Reason, c.shortage) {
				t.Errorf("with a ceiling of %v Status() = %+v, want Armed with shortage %q", c.ceiling, got, c.shortage)
			}
			if states := r.states(); len(states) != c.changes {
				t.Errorf("with a ceiling of %v the changes are %v, want %d", c.ceiling, states, c.changes)
			}
		}
		r.expect(shutdown.Armed, 1)
	})
}

// yielder is a login manager with YieldMaxDelay.
type yielder struct {
	*rehander
	yields atomic.Int32
}

func (y *yielder) YieldMaxDelay(context.Context) error { y.yields.Add(1); return nil }

func TestANewOwnerIsSeenWhenItTakesItsLock(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		var other atomic.Bool
		y := &yielder{rehander: &rehander{logind: r.logind}}
		r.options.Inhibitor = y
		r.options.Delegated = func(context.Context) (string, bool) { return "kubelet: lock", other.Load() }
		r.start()
		r.expect(shutdown.Armed, 1)
		other.Store(true)
		r.alter()
		r.expect(shutdown.Delegated, 0)
		r.alter() // the other owner has written its own file since
		r.expect(shutdown.Delegated, 0)
		if n := y.yields.Load(); n != 2 {
			t.Errorf("YieldMaxDelay() was called %d times, want once for each check", n)
		}
		other.Store(false)
		r.alter()
		r.expect(shutdown.Armed, 1)
		if time.Since(r.began) != 0 {
			t.Errorf("that took %v, want no time at all", time.Since(r.began))
		}
	})
}

func TestAGuardThatDrainsOrHasDrainedTakesNoLockForAChange(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.usual()
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(time.Second)
		before := r.logind.callCount("Inhibit")
		r.alter()
		r.expect(shutdown.Draining, 1)
		time.Sleep(10 * time.Second)
		r.alter() // hostler's own lock is released, for example
		r.expect(shutdown.Released, 0)
		if n := r.logind.callCount("Inhibit"); n != before {
			t.Errorf("Inhibit() was called %d times during the shutdown, want none", n-before)
		}
	})
}

func TestStatusHasWhatKeepsTheGuardFromBeingArmed(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		denied := errors.New("access denied")
		r.logind.breaks("Inhibit", denied)
		r.build()
		if got := r.guard.Status().Trouble; !errors.Is(got, shutdown.ErrStarting) {
			t.Errorf("Trouble = %v before logind has answered, want %v", got, shutdown.ErrStarting)
		}
		r.start()
		if got := r.guard.Status().Trouble; !errors.Is(got, denied) {
			t.Errorf("Trouble = %v, want %v", got, denied)
		}
		r.logind.breaks("Inhibit", nil)
		time.Sleep(time.Minute)
		r.expect(shutdown.Armed, 1)
		if got := r.guard.Status().Trouble; got != nil {
			t.Errorf("Trouble = %v once armed, want nil", got)
		}
		go r.logind.restart(time.Second)
		synctest.Wait()
		if got := r.guard.Status().Trouble; !errors.Is(got, shutdown.ErrLoginManagerGone) {
			t.Errorf("Trouble = %v, want %v", got, shutdown.ErrLoginManagerGone)
		}
		time.Sleep(time.Minute)
		r.expect(shutdown.Armed, 1)
		if states := r.states(); !slices.Equal(states[len(states)-2:], []shutdown.State{shutdown.Disarmed, shutdown.Armed}) {
			t.Errorf("the changes are %v, want Disarmed and Armed at the end", states)
		}
	})
}
