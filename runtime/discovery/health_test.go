package discovery

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

func TestRuntimesAreKeptWhenTheyAreDown(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		r := b.runtimes
		check := func(wantErr bool) runtime.Health {
			t.Helper()
			if err := r.Refresh(t.Context()); (err != nil) != wantErr {
				t.Fatalf("Refresh() = %v, want an error: %v", err, wantErr)
			}
			states, asked := r.Current()
			if len(states) != 1 || !asked {
				t.Fatalf("Current() = %+v, %v, want the one runtime", states, asked)
			}
			return states[0]
		}
		first := check(false)
		if !first.Ready || first.Version != "1.0.0" {
			t.Errorf("the runtime = %+v, want it ready", first)
		}
		time.Sleep(time.Minute)
		injection := b.runtime.Inject(runtimetest.Info, runtimetest.Fault{Err: runtime.ErrUnavailable})
		down := check(true)
		if down.Ready || down.Version != "1.0.0" || down.Message == "" || !down.Since.Equal(time.Now()) {
			t.Errorf("the runtime = %+v, want it down since now, with its version of before", down)
		}
		time.Sleep(time.Minute)
		if still := check(true); !still.Since.Equal(down.Since) {
			t.Errorf("the runtime = %+v, want it down since %v", still, down.Since)
		}
		injection.Release()
		if up := check(false); !up.Ready || up.Since.Equal(down.Since) {
			t.Errorf("the runtime = %+v, want it ready again", up)
		}
	})
}

func TestEventStreamsAreOpenedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		events := make(chan runtime.Event, 16)
		ended := make(chan error, 1)
		ctx := t.Context()
		var blind []bool
		go func() {
			ended <- b.runtimes.Watch(ctx, func(e runtime.Event) { events <- e }, func(_ string, now bool) { blind = append(blind, now) })
		}()
		expect := func(what string) {
			t.Helper()
			b.runtime.AddImage(runtimetest.ImageSpec{})
			synctest.Wait()
			found := false
			for len(events) > 0 {
				e := <-events
				found = found || e.Type == runtime.ImageAdded
			}
			if !found {
				t.Errorf("%s: no event of a new image", what)
			}
		}
		time.Sleep(streamSteady)
		synctest.Wait()
		expect("at first")
		b.runtime.EndWatches()
		time.Sleep(Interval + time.Second + streamSteady)
		expect("after the stream broke")
		if n := len(b.runtime.Calls(runtimetest.Watch)); n != 2 {
			t.Errorf("the stream was opened %d times, want twice", n)
		}
		if !slices.Equal(blind, []bool{false, true, false}) {
			t.Errorf("blind was called with %v, want false, true when the stream broke, and false again", blind)
		}
	})
}
