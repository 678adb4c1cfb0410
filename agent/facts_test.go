package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
)

func TestListsAreAskedForSeldom(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		added := runtime.Event{Runtime: "containerd", Type: runtime.ImageAdded}
		for _, step := range []struct {
			what   string
			pass   time.Duration
			events []runtime.Event
			guard  shutdown.State
			lists  int // so far
		}{
			{"at first", 0, nil, shutdown.Armed, 1},
			{"at once again", 0, nil, shutdown.Armed, 1},
			{"while nothing happens", 4 * time.Minute, nil, shutdown.Armed, 1},
			{"after five minutes", time.Minute, nil, shutdown.Armed, 2},
			{"at the first of a pull's many events", time.Second, []runtime.Event{added, added}, shutdown.Armed, 2},
			{"when the pull's events have settled", 10 * time.Second, nil, shutdown.Armed, 3},
			{"after the end of a container", time.Minute, []runtime.Event{{Type: runtime.ContainerExited}}, shutdown.Armed, 3},
			{"after an image went", 0, []runtime.Event{{Type: runtime.ImageRemoved}}, shutdown.Armed, 4},
			{"in a drain, which must not wait", time.Hour, []runtime.Event{added}, shutdown.Draining, 4},
			{"after it was cancelled", 0, nil, shutdown.Armed, 5},
		} {
			time.Sleep(step.pass)
			for _, e := range step.events {
				d.facts.notice(e)
			}
			d.guard.State = step.guard
			d.facts.now(t.Context(), nil)
			if got := len(d.runtime.Calls(runtimetest.Images)); got != step.lists {
				t.Errorf("%s: images were listed %d times, want %d", step.what, got, step.lists)
			}
		}
	})
}

func TestWhatARuntimeLastListedStands(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.runtime.AddImage(runtimetest.ImageSpec{Tags: []string{"example.net/a:1"}})
		before := d.facts.now(t.Context(), nil)
		if len(before.Images) != 1 || len(before.Filesystems) != 2 {
			t.Fatalf("now() = %d images, %d filesystems, want 1 and 2", len(before.Images), len(before.Filesystems))
		}
		injection := d.runtime.Inject(runtimetest.Every, runtimetest.Fault{Err: errors.New("gone")})
		for range 5 {
			time.Sleep(10 * time.Minute)
			f := d.facts.now(t.Context(), nil)
			if len(f.Images) != 1 || len(f.Filesystems) != 2 || f.Filesystems[1].Role != status.RoleImage {
				t.Errorf("now() without the runtime = %d images, %d filesystems, want the last ones", len(f.Images), len(f.Filesystems))
			}
		}
		before10 := len(d.runtime.Calls(runtimetest.Images))
		for range 60 {
			time.Sleep(10 * time.Second)
			d.facts.now(t.Context(), nil)
		}
		if tries := len(d.runtime.Calls(runtimetest.Images)) - before10; tries < 9 || tries > 11 {
			t.Errorf("lists were tried %d times in 10 minutes without the runtime, want about one a minute", tries)
		}
		injection.Release()
		time.Sleep(maxListPause)
		d.runtime.AddImage(runtimetest.ImageSpec{Tags: []string{"example.net/b:1"}})
		if f := d.facts.now(t.Context(), nil); len(f.Images) != 2 {
			t.Errorf("now() with the runtime back = %d images, want 2", len(f.Images))
		}
	})
}

func TestALookAtTheHostIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.runtime.Inject(runtimetest.Every, runtimetest.Fault{Hang: true})
		began := time.Now()
		f := d.facts.now(t.Context(), nil)
		if took := time.Since(began); took > factsTimeout {
			t.Errorf("now() with a runtime that hangs took %v, want at most %v", took, factsTimeout)
		}
		if f.Machine.MachineID == "" || f.Shutdown.State != "Armed" {
			t.Errorf("now() = %+v, want the rest of the facts", f)
		}
	})
}

func TestRuntimesAreKeptWhenTheyAreDown(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		r := d.facts.runtimes
		look := func(wantErr bool) status.Runtime {
			t.Helper()
			if err := r.look(t.Context()); (err != nil) != wantErr {
				t.Fatalf("look() = %v, want an error: %v", err, wantErr)
			}
			states, asked := r.current()
			if len(states) != 1 || !asked {
				t.Fatalf("current() = %+v, %v, want the one runtime", states, asked)
			}
			return states[0]
		}
		first := look(false)
		if !first.Ready || first.Version != "1.0.0" {
			t.Errorf("the runtime = %+v, want it ready", first)
		}
		time.Sleep(time.Minute)
		injection := d.runtime.Inject(runtimetest.Info, runtimetest.Fault{Err: runtime.ErrUnavailable})
		down := look(true)
		if down.Ready || down.Version != "1.0.0" || down.Message == "" || !down.Since.Equal(time.Now()) {
			t.Errorf("the runtime = %+v, want it down since now, with its version of before", down)
		}
		time.Sleep(time.Minute)
		if still := look(true); !still.Since.Equal(down.Since) {
			t.Errorf("the runtime = %+v, want it down since %v", still, down.Since)
		}
		injection.Release()
		if up := look(false); !up.Ready || up.Since.Equal(down.Since) {
			t.Errorf("the runtime = %+v, want it ready again", up)
		}
	})
}

func TestEventStreamsAreOpenedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		events := make(chan runtime.Event, 16)
		ended := make(chan error, 1)
		ctx := t.Context()
		var blind []bool
		go func() {
			ended <- d.facts.runtimes.watch(ctx, func(e runtime.Event) { events <- e }, func(_ string, now bool) { blind = append(blind, now) })
		}()
		expect := func(what string) {
			t.Helper()
			d.runtime.AddImage(runtimetest.ImageSpec{})
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
		synctest.Wait()
		expect("at first")
		d.runtime.EndWatches()
		time.Sleep(runtimesInterval + time.Second)
		expect("after the stream broke")
		if n := len(d.runtime.Calls(runtimetest.Watch)); n != 2 {
			t.Errorf("the stream was opened %d times, want twice", n)
		}
		if !slices.Equal(blind, []bool{false, true, false}) {
			t.Errorf("blind was told %v, want false, true when the stream broke, and false again", blind)
		}
	})
}

func TestTheNodeFilesystemIsKnownWithoutAStateFolder(t *testing.T) {
	file := filepath.Join(folder(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	r.cfg.State.Directory = filepath.Join(file, "state") // which root cannot make either
	a := r.build(t)
	facts := a.facts.now(t.Context(), nil)
	if fs := facts.Filesystems[0]; fs.Role != status.RoleNode || fs.Problem != "" {
		t.Errorf("now() = node filesystem %+v, want it measured", fs)
	}
}

// What a Node does not list is not worth its memory.
func TestFactsKeepTheImagesThatANodeLists(t *testing.T) {
	images := func(limit int) []string {
		d := newDesk(t)
		for _, size := range []uint64{10, 30, 20} {
			d.runtime.AddImage(runtimetest.ImageSpec{ID: fmt.Sprint("sha256:", size), ReportedBytes: size})
		}
		d.facts.maxImages = func() int { return limit }
		list, _ := d.facts.lists(t.Context(), false)
		var ids []string
		for _, img := range list {
			ids = append(ids, img.ID)
		}
		return ids
	}
	if got, want := images(2), []string{"sha256:30", "sha256:20"}; !slices.Equal(got, want) {
		t.Errorf("lists() = %v with two listed, want the largest, %v", got, want)
	}
	if got := images(-1); len(got) != 3 {
		t.Errorf("lists() = %v with all listed, want three", got)
	}
}
