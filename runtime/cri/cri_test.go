package cri_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runtimetest"
)

// patience bounds waits for events that must occur.
const patience = 5 * time.Minute

func TestNewRefusesAFaultyEndpoint(t *testing.T) {
	if _, err := cri.New(cri.Options{Endpoint: "tcp://127.0.0.1:2375"}); err == nil || !strings.Contains(err.Error(), "only unix sockets") {
		t.Errorf("New() = %v, want an error that says what an endpoint is", err)
	}
}

func TestNewRefusesNegativeTimeouts(t *testing.T) {
	_, err := cri.New(cri.Options{Endpoint: "/run/x.sock", Timeouts: local.Timeouts{StopMargin: -1}})
	if err == nil || !strings.Contains(err.Error(), "stop margin") {
		t.Errorf("New() = %v, want an error that names the stop margin", err)
	}
}

func TestErrorsHaveAClassAndAHint(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		class   error
		message []string
	}{
		"a service that is not there": {
			status.Error(codes.Unimplemented, "unknown service runtime.v1.ImageService"),
			runtime.ErrUnsupported,
			[]string{"list images", "disabled_plugins"},
		},
		"a runtime that is still starting": {
			status.Error(codes.Unavailable, "server is not initialized yet"),
			runtime.ErrUnavailable,
			[]string{"list images", "not initialized", "is a runtime running at"},
		},
		"a runtime that cannot send so much": {
			status.Error(codes.ResourceExhausted, "grpc: trying to send message larger than max (17000000 vs. 16777216)"),
			runtime.ErrTooLarge,
			[]string{"list images", "17000000", "crictl"},
		},
		"a runtime that cancels by itself": {
			status.Error(codes.Canceled, "shutting down"),
			runtime.ErrUnavailable,
			[]string{"shutting down", "during the call"},
		},
		"a refusal because of use": {
			status.Error(codes.Unknown, "image is in use by a container"),
			runtime.ErrInUse,
			[]string{"in use by a container"},
		},
		"any other error": {
			status.Error(codes.Internal, "snapshotter broke"), nil, []string{"list images", "snapshotter broke", "Internal"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, containerd16)
			s.set(func() { s.before = func(context.Context, string, string) error { return c.err } })
			_, err := s.client(t, nil).Images(t.Context())
			if err == nil || c.class != nil && !errors.Is(err, c.class) {
				t.Fatalf("Images() = %v, want %v", err, c.class)
			}
			for _, class := range []error{runtime.ErrUnavailable, runtime.ErrInUse, runtime.ErrTooLarge, runtime.ErrUnsupported} {
				if class != c.class && errors.Is(err, class) {
					t.Errorf("Images() = %v, want it not to be %q", err, class)
				}
			}
			for _, part := range c.message {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("Images() = %q, want it to say %q", err, part)
				}
			}
		})
	}
}

// Messages of conditions contain such errors, and each change of a message is a write to the
// control plane.
func TestATimeoutIsNamedByItsBound(t *testing.T) {
	s := newServer(t, containerd16)
	// The runtime's copy of the deadline may expire slightly before ours.
	s.set(func() {
		s.before = func(context.Context, string, string) error {
			return status.Error(codes.DeadlineExceeded, "context deadline exceeded")
		}
	})
	r := s.client(t, func(o *cri.Options) { o.Timeouts.Query = 40 * time.Millisecond })
	if _, err := r.Images(t.Context()); err == nil || !strings.Contains(err.Error(), "within 40ms") {
		t.Errorf("Images() = %v, want it to name 40ms, whatever it took", err)
	}
}

func TestAListTooLargeToReceive(t *testing.T) {
	s := newServer(t, containerd16)
	s.set(func() {
		s.answer = func(_ string, resp any) {
			if r, ok := resp.(*criapi.ListImagesResponse); ok {
				r.Images = append(r.Images, &criapi.Image{Id: "big", RepoTags: []string{strings.Repeat("x", cri.MaxAnswerBytes)}})
			}
		}
	})
	r := s.client(t, nil)
	if _, err := r.Images(t.Context()); !errors.Is(err, runtime.ErrTooLarge) {
		t.Errorf("Images() = %v, want %v", err, runtime.ErrTooLarge)
	}
	if _, err := r.Pods(t.Context()); err != nil {
		t.Errorf("Pods() after it = %v", err)
	}
}

func TestNoSocket(t *testing.T) {
	r, err := cri.New(cri.Options{Endpoint: "unix:///run/hostler-no-such/runtime.sock", Timeouts: local.Timeouts{Query: 2 * patience}})
	if err != nil {
		t.Fatalf("New() = %v", err)
	}
	defer r.Close()
	start := time.Now()
	_, err = r.Info(t.Context())
	if !errors.Is(err, runtime.ErrUnavailable) || !strings.Contains(err.Error(), "no such file or directory") {
		t.Errorf("Info() = %v, want %v with the reason", err, runtime.ErrUnavailable)
	}
	if took := time.Since(start); took > patience {
		t.Errorf("Info() took %v, want the refusal at once", took)
	}
	if r.Name() != "runtime" || r.Endpoint() != "unix:///run/hostler-no-such/runtime.sock" {
		t.Errorf("Name(), Endpoint() = %q, %q", r.Name(), r.Endpoint())
	}
}

func TestInvalidAnswersAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(resp any)
		call  func(context.Context, *cri.Runtime) error
	}{
		"a container without an ID": {
			func(resp any) {
				if r, ok := resp.(*criapi.ListContainersResponse); ok {
					r.Containers = append(r.Containers, &criapi.Container{})
				}
			}, func(ctx context.Context, r *cri.Runtime) error { _, err := r.Pods(ctx); return err },
		},
		"a pod listed twice": {
			func(resp any) {
				if r, ok := resp.(*criapi.ListPodSandboxResponse); ok {
					r.Items = append(r.Items, &criapi.PodSandbox{Id: "a"}, &criapi.PodSandbox{Id: "a"})
				}
			}, func(ctx context.Context, r *cri.Runtime) error { _, err := r.Pods(ctx); return err },
		},
		"an image without an ID": {
			func(resp any) {
				if r, ok := resp.(*criapi.ListImagesResponse); ok {
					r.Images = append(r.Images, &criapi.Image{})
				}
			}, func(ctx context.Context, r *cri.Runtime) error { _, err := r.Images(ctx); return err },
		},
		"no status in a status": {
			func(resp any) {
				if r, ok := resp.(*criapi.StatusResponse); ok {
					r.Status = nil
				}
			}, func(ctx context.Context, r *cri.Runtime) error { _, err := r.Info(ctx); return err },
		},
		"a runtime without a name": {
			func(resp any) {
				if r, ok := resp.(*criapi.VersionResponse); ok {
					r.RuntimeName = ""
				}
			}, func(ctx context.Context, r *cri.Runtime) error { _, err := r.Info(ctx); return err },
		},
		"no image filesystem": {
			func(resp any) {
				if r, ok := resp.(*criapi.ImageFsInfoResponse); ok {
					r.ImageFilesystems = nil
				}
			}, func(ctx context.Context, r *cri.Runtime) error { _, err := r.ImageFilesystems(ctx); return err },
		},
		"an image filesystem at no path": {
			func(resp any) {
				if r, ok := resp.(*criapi.ImageFsInfoResponse); ok {
					r.ImageFilesystems = append(r.ImageFilesystems, &criapi.FilesystemUsage{})
				}
			}, func(ctx context.Context, r *cri.Runtime) error { _, err := r.ImageFilesystems(ctx); return err },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, containerd16)
			s.set(func() { s.answer = func(_ string, resp any) { c.spoil(resp) } })
			if err := c.call(t.Context(), s.client(t, nil)); !errors.Is(err, runtime.ErrInvalidAnswer) {
				t.Errorf("= %v, want %v", err, runtime.ErrInvalidAnswer)
			}
		})
	}
}

func TestObserveSeesEachCall(t *testing.T) {
	s := newServer(t, containerd16)
	var mu sync.Mutex
	var seen []string
	r := s.client(t, func(o *cri.Options) {
		o.Observe = func(method string, took time.Duration, err error) {
			mu.Lock()
			defer mu.Unlock()
			if took <= 0 {
				t.Errorf("Observe(%s) took %v", method, took)
			}
			seen = append(seen, fmt.Sprintf("%s %t", method, err == nil))
		}
	})
	r.Pods(t.Context())
	s.set(func() {
		s.before = func(context.Context, string, string) error { return status.Error(codes.Internal, "broken") }
	})
	r.Images(t.Context())
	mu.Lock()
	defer mu.Unlock()
	if got, want := strings.Join(seen, ", "), "ListContainers true, ListPodSandbox true, ListImages false"; got != want {
		t.Errorf("observed %s, want %s", got, want)
	}
}

func TestStopSeconds(t *testing.T) {
	s := newServer(t, containerd16)
	r := s.client(t, nil)
	s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{"a:1"}})
	p := s.fake.RunPod(runtimetest.PodSpec{Containers: []runtimetest.ContainerSpec{{Name: "a", Image: "a:1"}}})
	for name, c := range map[string]struct {
		grace time.Duration
		want  int64
	}{
		"nothing kills at once":            {0, 0},
		"less than nothing kills at once":  {-time.Second, 0},
		"part of a second is a second":     {time.Nanosecond, 1},
		"whole seconds stay":               {30 * time.Second, 30},
		"and a bit is one more":            {30*time.Second + time.Millisecond, 31},
		"an age does not overflow to none": {1<<63 - 1, 1<<31 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			if err := r.StopContainer(t.Context(), p.Containers[0], c.grace); err != nil {
				t.Fatalf("StopContainer() = %v", err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if got := s.stops[len(s.stops)-1].GetTimeout(); got != c.want {
				t.Errorf("StopContainer(%v) requested %d s, want %d", c.grace, got, c.want)
			}
		})
	}
}

func TestStopHasADeadlineBeyondTheGrace(t *testing.T) {
	t.Parallel()
	s := newServer(t, containerd16)
	r := s.client(t, func(o *cri.Options) { o.Timeouts.StopMargin = 100 * time.Millisecond })
	s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{"a:1"}})
	p := s.fake.RunPod(runtimetest.PodSpec{Containers: []runtimetest.ContainerSpec{{Name: "stuck", Image: "a:1", Unkillable: true}}})
	start := time.Now()
	err := r.StopContainer(t.Context(), p.Containers[0], time.Second)
	if took := time.Since(start); took < 1100*time.Millisecond || took > patience {
		t.Errorf("StopContainer() took %v, want grace and margin, 1.1s", took)
	}
	if !errors.Is(err, runtime.ErrUnavailable) || !strings.Contains(err.Error(), `stop container "stuck"`) {
		t.Errorf("StopContainer() = %v, want %v, naming the container", err, runtime.ErrUnavailable)
	}
}

func TestObjectsWithoutIDAreRefused(t *testing.T) {
	s := newServer(t, containerd16)
	r := s.client(t, nil)
	// For some runtimes' lookups by prefix, an empty ID matches any object.
	for what, err := range map[string]error{
		"StopContainer":   r.StopContainer(t.Context(), runtime.Container{}, 0),
		"StopPod":         r.StopPod(t.Context(), runtime.Pod{}),
		"RemoveContainer": r.RemoveContainer(t.Context(), runtime.Container{}),
		"RemoveImage":     r.RemoveImage(t.Context(), runtime.Image{}),
	} {
		if err == nil {
			t.Errorf("%s() of nothing succeeded", what)
		}
	}
	if calls := s.count(); len(calls) != 0 {
		t.Errorf("calls %v, want none", calls)
	}
}

func TestRemoveContainerOfUnknownState(t *testing.T) {
	s := newServer(t, containerd16)
	r := s.client(t, nil)
	s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{"a:1"}})
	c := s.fake.RunPod(runtimetest.PodSpec{Containers: []runtimetest.ContainerSpec{{Name: "a", Image: "a:1"}}}).Containers[0]
	s.fake.SetState(c.ID, runtime.Unknown)
	if err := r.RemoveContainer(t.Context(), c); !errors.Is(err, runtime.ErrInUse) {
		t.Errorf("RemoveContainer() = %v, want %v", err, runtime.ErrInUse)
	}
	if err := r.StopContainer(t.Context(), c, 0); err != nil {
		t.Errorf("StopContainer() = %v", err)
	}
	if err := r.RemoveContainer(t.Context(), c); err != nil {
		t.Errorf("RemoveContainer() after the stop = %v", err)
	}
}

func TestImagesOmitMissingNames(t *testing.T) {
	s := newServer(t, containerd16)
	s.fake.AddImage(runtimetest.ImageSpec{ID: "a", Tags: []string{"<none>:<none>"}, Digests: []string{"b@<none>"}, Pinned: true})
	images, err := s.client(t, nil).Images(t.Context())
	if err != nil || len(images) != 1 {
		t.Fatalf("Images() = %v, %v, want 1", images, err)
	}
	if i := images[0]; len(i.Tags)+len(i.Digests) != 0 || !i.Pinned || i.Runtime != "under-test" {
		t.Errorf("Images() = %+v, want no names, pinned, of under-test", i)
	}
}
