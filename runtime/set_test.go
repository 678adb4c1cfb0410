package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

// fake returns a runtime with one pod of one container, with its name.
func fake(t *testing.T, name string) *runtimetest.Fake {
	t.Helper()
	f := runtimetest.NewFake(runtimetest.Options{Name: name})
	f.AddImage(runtimetest.ImageSpec{Tags: []string{name + ":1"}})
	f.RunPod(runtimetest.PodSpec{Name: name, Containers: []runtimetest.ContainerSpec{{Name: name, Image: name + ":1"}}})
	return f
}

func set(t *testing.T, members ...runtime.Runtime) *runtime.Set {
	t.Helper()
	s, err := runtime.NewSet(members...)
	if err != nil {
		t.Fatalf("NewSet() = %v", err)
	}
	return s
}

func names(pods []runtime.Pod) string {
	var list []string
	for _, p := range pods {
		list = append(list, p.Name)
	}
	return strings.Join(list, " ")
}

func TestSetListsAll(t *testing.T) {
	a, b := fake(t, "a"), fake(t, "b")
	s := set(t, b, a)
	pods, err := s.Pods(t.Context())
	if err != nil || names(pods) != "b a" {
		t.Errorf("Pods() = %s, %v, want b a, in order of addition", names(pods), err)
	}
	images, err := s.Images(t.Context())
	if err != nil || len(images) != 2 || images[0].Runtime != "b" || images[1].Runtime != "a" {
		t.Errorf("Images() = %+v, %v, want b's and a's", images, err)
	}
	filesystems, err := s.ImageFilesystems(t.Context())
	if err != nil || len(filesystems) != 2 {
		t.Errorf("ImageFilesystems() = %+v, %v, want 2", filesystems, err)
	}
	if pods, err := set(t).Pods(t.Context()); err != nil || len(pods) != 0 {
		t.Errorf("Pods() of no runtimes = %v, %v, want none", pods, err)
	}
}

func TestSetReturnsPartialLists(t *testing.T) {
	a, b, c := fake(t, "a"), fake(t, "b"), fake(t, "c")
	s := set(t, a, b, c)
	broken := errors.New("broken")
	b.Inject(runtimetest.Every, runtimetest.Fault{Err: broken})
	c.Inject(runtimetest.Pods, runtimetest.Fault{Err: runtime.ErrTooLarge})
	pods, err := s.Pods(t.Context())
	if names(pods) != "a" {
		t.Errorf("Pods() = %s, want a's, which works", names(pods))
	}
	var failed *runtime.SetError
	if !errors.As(err, &failed) || len(failed.Failed) != 2 || failed.Failed[0].Runtime != "b" || failed.Failed[1].Runtime != "c" {
		t.Fatalf("Pods() = %v, want a SetError of b and c", err)
	}
	if !errors.Is(err, broken) || !errors.Is(err, runtime.ErrTooLarge) {
		t.Errorf("Pods() = %v, want both causes in it", err)
	}
	if text := err.Error(); !strings.Contains(text, "runtime b: ") || !strings.Contains(text, "runtime c: ") || strings.Contains(text, "\n") {
		t.Errorf("Pods() = %q, want one line that names b and c", text)
	}
}

func TestSetCallsAllConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := fake(t, "a"), fake(t, "b")
		s := set(t, a, b)
		for _, f := range []*runtimetest.Fake{a, b} {
			f.Inject(runtimetest.Pods, runtimetest.Fault{Delay: time.Second})
		}
		start := time.Now()
		if pods, err := s.Pods(t.Context()); err != nil || names(pods) != "a b" || time.Since(start) != time.Second {
			t.Errorf("Pods() = %s, %v after %v, want a b after 1s", names(pods), err, time.Since(start))
		}
	})
}

func TestSetRoutesByRuntime(t *testing.T) {
	a, b := fake(t, "a"), fake(t, "b")
	s := set(t, a, b)
	pods, err := s.Pods(t.Context())
	if err != nil || len(pods) != 2 {
		t.Fatalf("Pods() = %v, %v", pods, err)
	}
	pod := pods[1]
	img := runtime.Image{Runtime: "b", ID: pod.Containers[0].ImageID}
	for what, err := range map[string]error{
		"StopContainer":   s.StopContainer(t.Context(), pod.Containers[0], 0),
		"StopPod":         s.StopPod(t.Context(), pod),
		"RemoveContainer": s.RemoveContainer(t.Context(), pod.Containers[0]),
		"RemovePod":       s.RemovePod(t.Context(), runtime.Pod{Runtime: "b", ID: "gone"}),
		"RemoveImage":     s.RemoveImage(t.Context(), img),
	} {
		if err != nil {
			t.Errorf("%s() = %v", what, err)
		}
	}
	acts := []runtimetest.Op{runtimetest.StopContainer, runtimetest.StopPod, runtimetest.RemoveContainer, runtimetest.RemovePod, runtimetest.RemoveImage}
	if na, nb := len(a.Calls(acts...)), len(b.Calls(acts...)); na != 0 || nb != 5 {
		t.Errorf("a got %d calls and b %d, want 0 and 5", na, nb)
	}
	stranger := runtime.Container{Runtime: "c", Name: "web"}
	if err := s.StopContainer(t.Context(), stranger, 0); !errors.Is(err, runtime.ErrUnavailable) || !strings.Contains(err.Error(), `"c"`) {
		t.Errorf("StopContainer() of a runtime that is not there = %v, want %v, naming it", err, runtime.ErrUnavailable)
	}
}

func TestSetStartsContainersOfStarters(t *testing.T) {
	again := runtimetest.NewFake(runtimetest.Options{Name: "again", NoSandboxes: true})
	again.AddImage(runtimetest.ImageSpec{ID: "image"})
	again.RunPod(runtimetest.PodSpec{Containers: []runtimetest.ContainerSpec{{ID: "c", Image: "image", State: runtime.Exited}}})
	s := set(t, again, struct{ runtime.Runtime }{fake(t, "once")}) // an adapter that is not a Starter
	for name, class := range map[string]error{"again": nil, "once": runtime.ErrUnsupported, "none": runtime.ErrUnavailable} {
		err := s.StartContainer(t.Context(), runtime.Container{Runtime: name, ID: "c", Name: "web"})
		if !errors.Is(err, class) || err != nil && !strings.HasPrefix(err.Error(), `start container "web": `) {
			t.Errorf("StartContainer() of runtime %s = %v, want %v", name, err, class)
		}
	}
	if pods, err := again.Pods(t.Context()); err != nil || pods[0].Containers[0].State != runtime.Running {
		t.Errorf("Pods() = %+v, %v, want it running", pods, err)
	}
}

func TestSetChanges(t *testing.T) {
	a, again, b := fake(t, "a"), fake(t, "a"), fake(t, "b")
	s := set(t, a)
	if err := s.Add(again); err == nil || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("Add() of a second a = %v, want an error that names it", err)
	}
	if _, err := runtime.NewSet(a, again); err == nil {
		t.Errorf("NewSet() of two of one name succeeded")
	}
	before := s.Members()
	if old := s.Replace(b); old != nil {
		t.Errorf("Replace() with a new name = %v, want nil", old)
	}
	if old := s.Replace(again); old != runtime.Runtime(a) {
		t.Errorf("Replace() = %v, want the first a", old)
	}
	if m := s.Members(); len(m) != 2 || m[0] != runtime.Runtime(again) || m[1] != runtime.Runtime(b) {
		t.Errorf("Members() = %v, want the second a, then b", m)
	}
	if len(before) != 1 || before[0] != runtime.Runtime(a) {
		t.Errorf("an earlier Members() changed to %v", before)
	}
	if old := s.Remove("a"); old != runtime.Runtime(again) {
		t.Errorf("Remove(a) = %v, want the second a", old)
	}
	if old := s.Remove("a"); old != nil {
		t.Errorf("second Remove(a) = %v, want nil", old)
	}
	if err := s.Close(); err != nil || len(s.Members()) != 0 {
		t.Errorf("Close() = %v with %v left, want nothing left", err, s.Members())
	}
	if _, err := b.Info(t.Context()); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("Info() of a member of a closed set = %v, want it closed too", err)
	}
}

func TestSetIsSafeForConcurrentUse(t *testing.T) {
	s := set(t, fake(t, "a"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for _, name := range []string{"b", "c"} {
		f := fake(t, name)
		wg.Go(func() {
			for range 200 {
				s.Replace(f)
				s.Remove(name)
			}
			cancel()
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			if pods, err := s.Pods(t.Context()); err != nil || !strings.HasPrefix(names(pods), "a") {
				t.Errorf("Pods() = %s, %v, want a's always", names(pods), err)
				return
			}
		}
	})
	wg.Wait()
}

func TestFailedNamesTheRuntimesOfAnError(t *testing.T) {
	down := errors.New("connection refused")
	docker, podman := runtime.MemberError{Runtime: "docker", Err: down}, runtime.MemberError{Runtime: "podman", Err: down}
	for name, c := range map[string]struct {
		err  error
		want []string
	}{
		"no error":           {nil, nil},
		"another error":      {down, nil},
		"one":                {fmt.Errorf("list pods: %w", docker), []string{"docker"}},
		"of a set":           {fmt.Errorf("list pods: %w", &runtime.SetError{Failed: []runtime.MemberError{docker, podman}}), []string{"docker", "podman"}},
		"beside another one": {errors.Join(down, podman), []string{"podman"}},
	} {
		if got := runtime.Failed(c.err); !slices.Equal(got, c.want) {
			t.Errorf("%s: Failed() = %v, want %v", name, got, c.want)
		}
	}
}
