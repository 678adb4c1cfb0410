package runtimetest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

func TestFakeConforms(t *testing.T) {
	for name, o := range map[string]runtimetest.Options{
		"as containerd": {SandboxImage: "registry.k8s.io/pause:3.9"},
		"as Docker":     {NoSandboxes: true, RefusesInUse: true},
	} {
		t.Run(name, func(t *testing.T) {
			runtimetest.RunInBubble(t, func(t *testing.T) (runtime.Runtime, runtimetest.Driver) {
				f := runtimetest.NewFake(o)
				runtimetest.CloseAtEnd(t, f)
				return f, runtimetest.FakeDriver{Fake: f}
			})
		})
	}
}

// inBubble runs a test of a Fake in a synctest bubble.
func inBubble(t *testing.T, opts runtimetest.Options, test func(t *testing.T, f *runtimetest.Fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := runtimetest.NewFake(opts)
		test(t, f)
		if err := f.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
}

func TestSharedLayersAreFreedWithTheirLastUser(t *testing.T) {
	inBubble(t, runtimetest.Options{CapacityBytes: 1000, OtherBytes: 100, Inodes: 50}, func(t *testing.T, f *runtimetest.Fake) {
		base := runtimetest.Layer{ID: "base", Bytes: 200, Inodes: 10}
		a := f.AddImage(runtimetest.ImageSpec{Tags: []string{"a:1"}, Layers: []runtimetest.Layer{base, {ID: "a", Bytes: 50, Inodes: 1}}})
		b := f.AddImage(runtimetest.ImageSpec{Tags: []string{"b:1"}, Layers: []runtimetest.Layer{base, {ID: "b", Bytes: 70, Inodes: 2}}})
		free := func(bytes, inodes uint64) {
			t.Helper()
			if u := f.Usage(); u.AvailableBytes != bytes || u.InodesFree != inodes || u.CapacityBytes != 1000 || u.Inodes != 50 {
				t.Errorf("Usage() = %+v, want %d bytes and %d inodes free of 1000 and 50", u, bytes, inodes)
			}
		}
		if a.SizeBytes != 250 {
			t.Errorf("AddImage() = %d bytes, want 250, shared layers counted", a.SizeBytes)
		}
		free(580, 37)
		c := f.RunPod(runtimetest.PodSpec{Containers: []runtimetest.ContainerSpec{{Name: "c", Image: "b:1", WritableBytes: 30}}}).Containers[0]
		free(550, 37)
		remove := func(i runtime.Image) {
			t.Helper()
			if err := f.RemoveImage(t.Context(), i); err != nil {
				t.Errorf("RemoveImage() = %v", err)
			}
		}
		remove(a)
		free(600, 38)
		remove(b) // the container's snapshot still uses its layers
		free(600, 38)
		if got := f.RemovedInUse(); len(got) != 1 || got[0] != b.ID {
			t.Errorf("RemovedInUse() = %v, want b", got)
		}
		f.Exit(c.ID, 0)
		if err := f.RemoveContainer(t.Context(), c); err != nil {
			t.Errorf("RemoveContainer() = %v", err)
		}
		free(900, 50)
		f.SetOtherBytes(2000)
		free(0, 50)
	})
}

func TestFreedBytesShowLater(t *testing.T) {
	inBubble(t, runtimetest.Options{CapacityBytes: 1000, FreesAfter: time.Minute}, func(t *testing.T, f *runtimetest.Fake) {
		i := f.AddImage(runtimetest.ImageSpec{Layers: []runtimetest.Layer{{ID: "a", Bytes: 400, Inodes: 1}}})
		if err := f.RemoveImage(t.Context(), i); err != nil {
			t.Errorf("RemoveImage() = %v", err)
		}
		for after, want := range []uint64{600, 1000} {
			if got := f.Usage().AvailableBytes; got != want {
				t.Errorf("Usage() = %d bytes free after %d min, want %d", got, after, want)
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestStopTakesTheTimeThatTheContainerTakes(t *testing.T) {
	inBubble(t, runtimetest.Options{}, func(t *testing.T, f *runtimetest.Fake) {
		f.AddImage(runtimetest.ImageSpec{Tags: []string{"a:1"}})
		p := f.RunPod(runtimetest.PodSpec{Containers: []runtimetest.ContainerSpec{
			{Name: "slow", Image: "a:1", EndsAfter: 3 * time.Second},
			{Name: "deaf", Image: "a:1", IgnoresTERM: true},
			{Name: "left", Image: "a:1", EndsAfter: 3 * time.Second},
			{Name: "stuck", Image: "a:1", Unkillable: true},
		}})
		stop := func(i int, wait, want time.Duration, wantErr error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			start := time.Now()
			if err := f.StopContainer(ctx, p.Containers[i], 5*time.Second); !errors.Is(err, wantErr) || time.Since(start) != want {
				t.Errorf("StopContainer(%s) = %v after %v, want %v after %v", p.Containers[i].Name, err, time.Since(start), wantErr, want)
			}
		}
		stop(0, time.Hour, 3*time.Second, nil)
		stop(1, time.Hour, 5*time.Second, nil)
		stop(2, time.Second, time.Second, context.DeadlineExceeded)
		stop(3, time.Hour, 15*time.Second, runtime.ErrUnavailable)

		pods, err := f.Pods(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// It got TERM, and ended although nobody waited any more.
		if c := pods[0].Containers[2]; c.State != runtime.Exited || c.FinishedAt.Sub(f.Calls(runtimetest.StopContainer)[2].Start) != 3*time.Second {
			t.Errorf("container left is %v, ended at %v, want it ended 3s after TERM", c.State, c.FinishedAt)
		}
		var got []string
		for _, s := range f.Signals() {
			got = append(got, s.Name)
		}
		if want := []string{"TERM", "TERM", "KILL", "TERM", "TERM", "KILL"}; !slices.Equal(got, want) {
			t.Errorf("Signals() = %v, want %v", got, want)
		}
	})
}

func TestFaults(t *testing.T) {
	broken := errors.New("broken")
	inBubble(t, runtimetest.Options{}, func(t *testing.T, f *runtimetest.Fake) {
		images := func() error { _, err := f.Images(t.Context()); return err }
		start := time.Now()
		i := f.Inject(runtimetest.Images, runtimetest.Fault{Delay: time.Second, Err: broken, Times: 1})
		if err := images(); !errors.Is(err, broken) || time.Since(start) != time.Second {
			t.Errorf("Images() = %v after %v, want %v after 1s", err, time.Since(start), broken)
		}
		<-i.Reached()
		if err := images(); err != nil {
			t.Errorf("Images() after a fault for one call = %v", err)
		}

		start = time.Now()
		i = f.Inject(runtimetest.Every, runtimetest.Fault{Hang: true})
		if err := images(); !errors.Is(err, runtime.ErrUnavailable) || time.Since(start) != 10*time.Second {
			t.Errorf("Images() of a hung runtime = %v after %v, want %v after 10s", err, time.Since(start), runtime.ErrUnavailable)
		}
		go func() {
			time.Sleep(time.Second)
			i.Release()
		}()
		start = time.Now()
		if err := images(); err != nil || time.Since(start) != time.Second {
			t.Errorf("Images() released from a hang = %v after %v, want success after 1s", err, time.Since(start))
		}

		f.AddImage(runtimetest.ImageSpec{Tags: []string{"a:1"}})
		a := f.RunPod(runtimetest.PodSpec{Containers: []runtimetest.ContainerSpec{{Name: "a", Image: "a:1"}, {Name: "b", Image: "a:1"}}})
		f.Inject(runtimetest.StopContainer, runtimetest.Fault{Err: broken, LosesReply: true, Subject: a.Containers[0].ID})
		if err := f.StopContainer(t.Context(), a.Containers[0], 0); !errors.Is(err, broken) {
			t.Errorf("StopContainer() with a lost reply = %v, want %v", err, broken)
		}
		if err := f.StopContainer(t.Context(), a.Containers[1], 0); err != nil {
			t.Errorf("StopContainer() of another subject = %v", err)
		}
		pods, err := f.Pods(t.Context())
		if err != nil || pods[0].Containers[0].State != runtime.Exited {
			t.Errorf("Pods() = %v, %v, want the container stopped although the reply was lost", pods, err)
		}

		i = f.Inject(runtimetest.Every, runtimetest.Fault{InvalidAnswers: true})
		pods, _ = f.Pods(t.Context())
		info, _ := f.Info(t.Context())
		list, _ := f.Images(t.Context())
		if len(pods) != 2 || pods[1].Containers[0].ImageID != "" || info.Name != "" || list[0].SizeBytes != 1<<64-1 {
			t.Errorf("nonsense is %+v, %+v, %+v, want it senseless", pods, info, list)
		}
		i.Release()
		calls := f.Calls(runtimetest.Images)
		if len(calls) != 5 || calls[2].End.Sub(calls[2].Start) != 10*time.Second || calls[2].Err == nil {
			t.Errorf("Calls(Images) = %+v, want 5, the third of 10s and failed", calls)
		}
	})
}

func TestAContainerStartsInsideTheWindowOfARemoval(t *testing.T) {
	inBubble(t, runtimetest.Options{RefusesInUse: true}, func(t *testing.T, f *runtimetest.Fake) {
		img := f.AddImage(runtimetest.ImageSpec{Tags: []string{"a:1"}})
		window := f.Inject(runtimetest.RemoveImageWindow, runtimetest.Fault{Hang: true})
		done := make(chan error)
		go func() { done <- f.RemoveImage(t.Context(), img) }()
		<-window.Reached()
		p := f.RunPod(runtimetest.PodSpec{Containers: []runtimetest.ContainerSpec{{Name: "a", Image: "a:1"}}})
		window.Release()
		if err := <-done; err != nil {
			t.Errorf("RemoveImage() = %v", err)
		}
		if got := f.RemovedInUse(); len(got) != 1 || got[0] != img.ID {
			t.Errorf("RemovedInUse() = %v, want %s", got, img.ID)
		}
		// Outside that window, the Fake refuses as configured.
		other := f.AddImage(runtimetest.ImageSpec{Tags: []string{"b:1"}})
		f.AddContainer(p.ID, runtimetest.ContainerSpec{Name: "b", Image: "b:1", State: runtime.Exited})
		if err := f.RemoveImage(t.Context(), other); !errors.Is(err, runtime.ErrInUse) {
			t.Errorf("RemoveImage() of a dead container's image = %v, want %v", err, runtime.ErrInUse)
		}
	})
}

func TestWatchesEndWithTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := runtimetest.NewFake(runtimetest.Options{})
		end := make(chan error)
		watch := func() { end <- f.Watch(t.Context(), make(chan runtime.Event)) }
		go watch()
		synctest.Wait()
		f.EndWatches()
		if err := <-end; !errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("Watch() = %v, want %v", err, runtime.ErrUnavailable)
		}
		go watch()
		synctest.Wait()
		f.AddImage(runtimetest.ImageSpec{}) // nobody receives the event
		if err := f.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
		if err := <-end; !errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("Watch() = %v, want %v", err, runtime.ErrUnavailable)
		}
		if _, err := f.Pods(t.Context()); !errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("Pods() after Close() = %v, want %v", err, runtime.ErrUnavailable)
		}
	})
}
