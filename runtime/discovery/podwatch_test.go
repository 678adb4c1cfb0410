package discovery

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

func TestWhenPodsAreListed(t *testing.T) {
	for name, tt := range map[string]struct {
		takes  time.Duration // duration of a list
		err    error
		steps  func(*PodWatch)
		within time.Duration // time from the story's end until the next list
	}{
		"soon after a container started":                              {steps: func(w *PodWatch) { w.Notice(runtime.Event{Type: runtime.ContainerStarted}) }, within: time.Second},
		"once for a swarm":                                            {steps: func(w *PodWatch) { swarm(w, 100) }, within: time.Second},
		"when one ended":                                              {steps: func(w *PodWatch) { w.Notice(runtime.Event{Type: runtime.ContainerExited}) }, within: time.Second},
		"when one was removed":                                        {steps: func(w *PodWatch) { w.Notice(runtime.Event{Type: runtime.ContainerRemoved}) }, within: time.Second},
		"when nobody says what changed":                               {steps: func(w *PodWatch) { w.Notice(runtime.Event{Type: runtime.Changed}) }, within: time.Second},
		"not for a container that is made":                            {steps: func(w *PodWatch) { w.Notice(runtime.Event{Type: runtime.ContainerCreated}) }, within: time.Minute + time.Second},
		"now and then where nothing happens":                          {steps: func(*PodWatch) {}, within: time.Minute + time.Second},
		"no sooner for an image":                                      {steps: func(w *PodWatch) { w.Notice(runtime.Event{Type: runtime.ImageAdded}) }, within: time.Minute + time.Second},
		"more often if a runtime sends no events":                     {steps: func(w *PodWatch) { w.SetBlind("crio", true); settle() }, within: Interval + time.Second},
		"soon after a first stream opened":                            {steps: func(w *PodWatch) { w.SetBlind("docker", false) }, within: time.Second},
		"as usual once it sends events again":                         {steps: func(w *PodWatch) { w.SetBlind("crio", true); settle(); w.SetBlind("crio", false); settle() }, within: time.Minute + time.Second},
		"after a rest where a list takes long":                        {takes: time.Second, steps: func(w *PodWatch) { swarm(w, 1) }, within: 11 * time.Second},
		"again soon if a runtime did not answer, and sends no events": {err: errors.New("down"), steps: func(*PodWatch) {}, within: Interval + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listed, seen := make(chan time.Time, 100), 0
				w := NewPodWatch(func(context.Context) ([]runtime.Pod, error) {
					time.Sleep(tt.takes)
					listed <- time.Now()
					return nil, tt.err
				}, func([]runtime.Pod) { seen++ }, func() {})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- w.Run(ctx) }()
				<-listed
				synctest.Wait()
				tt.steps(w)
				for len(listed) > 0 {
					<-listed
				}
				reported := time.Now()
				if got := (<-listed).Sub(reported); got != tt.within {
					t.Errorf("pods are listed after %v, want %v", got, tt.within)
				}
				cancel()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Errorf("Run() = %v, want %v", err, context.Canceled)
				}
				if reported := seen > 0; reported != (tt.err == nil) {
					t.Errorf("observed: %v, want it of lists that are whole", reported)
				}
			})
		})
	}
}

func TestOutdatedListsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reported := make(chan string, 100)
		w := NewPodWatch(func(context.Context) ([]runtime.Pod, error) {
			time.Sleep(time.Second)
			return nil, nil
		}, func([]runtime.Pod) { reported <- "list" }, func() { reported <- "change" })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		for _, at := range []time.Duration{500 * time.Millisecond, 20 * time.Second} { // during a list, and between two lists
			time.AfterFunc(at, func() { swarm(w, 1) })
		}
		time.Sleep(21 * time.Second)
		cancel()
		<-ended
		synctest.Wait() // for the events
		close(reported)
		var all []string
		for what := range reported {
			all = append(all, what)
		}
		if want := []string{"change", "list", "change", "list", "change"}; !slices.Equal(all, want) {
			t.Errorf("reported %q, want %q", all, want)
		}
	})
}

func swarm(w *PodWatch, n int) {
	for range n {
		w.Notice(runtime.Event{Type: runtime.ContainerExited})
	}
}

// settle waits until a requested list is complete.
func settle() {
	time.Sleep(podsGather)
	synctest.Wait()
}

func TestAFailingRuntimeDoesNotCauseMoreLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := 0
		down := errors.New("down")
		w := NewPodWatch(func(context.Context) ([]runtime.Pod, error) {
			lists++
			return nil, down
		}, func([]runtime.Pod) {}, func() {})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		for range 60 { // its stream fails repeatedly
			time.Sleep(Interval)
			w.SetBlind("crio", true)
		}
		if lists > 13 {
			t.Errorf("in ten minutes pods were listed %d times, want once a minute, and a few times at first", lists)
		}
		before := lists
		down = nil
		w.SetBlind("crio", false)
		time.Sleep(podsGather + podsGather)
		synctest.Wait()
		if lists != before+1 {
			t.Errorf("pods were listed %d times when the runtime was back, want once", lists-before)
		}
		cancel()
		<-ended
	})
}

func TestAStreamThatEndsAtOnceWasNotOpen(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		b.runtime.Inject(runtimetest.Watch, runtimetest.Fault{Err: runtime.ErrUnavailable})
		var reported []bool
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = b.runtimes.Watch(ctx, func(runtime.Event) {}, func(_ string, blind bool) { reported = append(reported, blind) })
		if slices.Contains(reported, false) || len(reported) == 0 {
			t.Errorf("blind was called with %v, want never false", reported)
		}
	})
}
