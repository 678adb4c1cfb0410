package collect_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

// failing is a runtime that removes nothing. Its errors have the form of adapters: operation and
// object, then the cause.
type failing struct{ *runtimetest.Fake }

var errBusy = errors.New("device busy")

func (failing) RemoveImage(_ context.Context, img runtime.Image) error {
	return fmt.Errorf("remove image %q: %w", img.Names()[0], errBusy)
}

func (failing) StopContainer(_ context.Context, c runtime.Container, _ time.Duration) error {
	return fmt.Errorf("stop container %q: %w", c.Name, errBusy)
}

func (failing) RemoveContainer(_ context.Context, c runtime.Container) error {
	return fmt.Errorf("remove container %q: %w", c.Name, errBusy)
}

func (failing) RemovePod(_ context.Context, p runtime.Pod) error {
	return fmt.Errorf("remove pod %q: %w", p.Name, errBusy)
}

func TestErrorsNameTheOperationOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		h.pull("a")
		h.fake.AddImage(runtimetest.ImageSpec{ID: "sha256:b"})
		for _, state := range []runtime.ContainerState{runtime.Exited, runtime.Created} {
			h.fake.RunPod(runtimetest.PodSpec{Name: "shop", Namespace: "default", Containers: []runtimetest.ContainerSpec{
				{ID: state.String(), Name: "web", Image: "sha256:b", State: state},
			}})
		}
		h.fake.SetState("Created", runtime.Unknown)
		dead := h.fake.RunPod(runtimetest.PodSpec{Name: "over", Namespace: "default"})
		if err := h.fake.StopPod(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		h.survey.Runtimes = func() []survey.Runtime { return []survey.Runtime{failing{h.fake}} }
		r, err := h.containers(func(p *gc.ContainerPolicy) { p.MaxPerPodContainer = 0 }).Collect(t.Context(), gc.Options{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := append(r.Errors, h.collect(h.images(), gc.Options{AllUnused: true}).Errors...)
		slices.Sort(got)
		want := []string{
			`pod default/over: remove pod "over": device busy`,
			`pod default/shop: remove container "web": device busy`,
			`pod default/shop: stop container "web": device busy`,
			`remove image "quay.io/org/a:1": device busy`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("errors = %q, want %q", got, want)
		}
	})
}
