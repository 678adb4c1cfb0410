package controlplane_test

import (
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
)

func TestARequestedLaterRetryIsRespected(t *testing.T) {
	for name, check := range map[string]struct{ asked, least, most time.Duration }{
		"for as long as it asks":       {5 * time.Second, 5 * time.Second, 6 * time.Second},
		"not below the usual back-off": {time.Nanosecond, 200 * time.Millisecond, 240 * time.Millisecond},
		"not beyond the longest one":   {time.Hour, 7 * time.Second, 8400 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			busy := controlplanetest.Fault{Err: &controlplane.BusyError{After: check.asked, Err: controlplane.ErrUnavailable}, Times: 1}
			loops := map[controlplanetest.Method]func(*testing.T, *controlplanetest.Fake) func(){
				controlplanetest.RenewLease: func(t *testing.T, fake *controlplanetest.Fake) func() {
					_, stop := keep(t, fake, policy(controlplane.Identity{}), quiet())
					return stop
				},
				controlplanetest.PublishEvent: func(t *testing.T, fake *controlplanetest.Fake) func() {
					recorder := controlplane.NewRecorder(fake, "host", nil, nil, quiet())
					record(recorder, "a")
					return run(t, recorder.Run)
				},
			}
			for method, start := range loops {
				synctest.Test(t, func(t *testing.T) {
					fake := controlplanetest.NewFake(nil)
					fake.Inject(method, busy)
					stop := start(t, fake)
					defer stop()
					time.Sleep(check.least - time.Nanosecond)
					synctest.Wait()
					if calls := fake.Calls(method); calls != 1 {
						t.Errorf("%s calls before %v = %d, want 1", method, check.least, calls)
					}
					time.Sleep(check.most - check.least + time.Millisecond)
					synctest.Wait()
					if calls := fake.Calls(method); calls != 2 {
						t.Errorf("%s calls by %v = %d, want 2", method, check.most, calls)
					}
				})
			}
		})
	}
}
