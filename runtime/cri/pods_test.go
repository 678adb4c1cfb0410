package cri_test

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/runtimetest"
)

// dead adds a pod of n dead containers that ended at finished.
func dead(s *server, n int, finished time.Time) runtime.Pod {
	s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{"a:1"}})
	spec := runtimetest.PodSpec{Name: "horse", Namespace: "barn"}
	for range n {
		spec.Containers = append(spec.Containers, runtimetest.ContainerSpec{
			Name: "a", Image: "a:1", State: runtime.Exited, FinishedAt: finished, ExitCode: 3,
		})
	}
	return s.fake.RunPod(spec)
}

func pods(t *testing.T, r *cri.Runtime, n int) []runtime.Pod {
	t.Helper()
	list, err := r.Pods(t.Context())
	if err != nil || len(list) != n {
		t.Fatalf("Pods() = %v, %v, want %d", list, err, n)
	}
	return list
}

func TestDeadContainersAreQueriedOnce(t *testing.T) {
	s := newServer(t, containerd16)
	r := s.client(t, nil)
	finished := time.Unix(1_700_000_000, 123)
	p := dead(s, 10, finished)
	for _, c := range pods(t, r, 1)[0].Containers {
		if !c.FinishedAt.Equal(finished) || c.ExitCode != 3 {
			t.Errorf("Pods() = exit code %d at %v, want 3 at %v", c.ExitCode, c.FinishedAt, finished)
		}
	}
	lists := map[string]int{"ListContainers": 1, "ListPodSandbox": 1}
	want := maps.Clone(lists)
	want["ContainerStatus"] = 10
	if got := s.count(); !maps.Equal(got, want) {
		t.Errorf("first Pods() made calls %v, want %v", got, want)
	}
	if c := pods(t, r, 1)[0].Containers[9]; !c.FinishedAt.Equal(finished) {
		t.Errorf("second Pods() = finished at %v, want %v", c.FinishedAt, finished)
	}
	if got := s.count(); !maps.Equal(got, lists) {
		t.Errorf("second Pods() made calls %v, want %v", got, lists)
	}

	// If a container was missing in a list and returns, it is another one, even with the same ID.
	spec := runtimetest.ContainerSpec{ID: p.Containers[0].ID, Name: "a", Image: "a:1", State: runtime.Exited, FinishedAt: finished.Add(time.Hour)}
	if err := s.fake.RemoveContainer(t.Context(), p.Containers[0]); err != nil {
		t.Fatal(err)
	}
	pods(t, r, 1)
	s.fake.AddContainer(p.ID, spec)
	s.count()
	list := pods(t, r, 1)[0].Containers
	if got := list[len(list)-1]; !got.FinishedAt.Equal(spec.FinishedAt) {
		t.Errorf("Pods() = a new container finished at %v, want %v", got.FinishedAt, spec.FinishedAt)
	}
	if got := s.count()["ContainerStatus"]; got != 1 {
		t.Errorf("Pods() with a new dead container asked %d, want 1", got)
	}
}

func TestOneBrokenContainerDoesNotFailTheList(t *testing.T) {
	s := newServer(t, containerd16)
	r := s.client(t, nil)
	finished := time.Unix(1_700_000_000, 0)
	broken := dead(s, 3, finished).Containers[1].ID
	s.set(func() {
		s.before = func(_ context.Context, method, subject string) error {
			if method == "ContainerStatus" && subject == broken {
				return status.Error(codes.Internal, "shim lost")
			}
			return nil
		}
	})
	known := 0
	for _, c := range pods(t, r, 1)[0].Containers {
		switch {
		case c.ID == broken && (!c.FinishedAt.IsZero() || c.State != runtime.Exited):
			t.Errorf("Pods() = broken container %v, finished at %v, want exited at no time", c.State, c.FinishedAt)
		case c.FinishedAt.Equal(finished):
			known++
		}
	}
	if known != 2 {
		t.Errorf("Pods() = %d containers with a time, want 2", known)
	}
	s.count()
	pods(t, r, 1)
	if got := s.count()["ContainerStatus"]; got != 0 {
		t.Errorf("Pods() at once after a failure asked %d times, want 0", got)
	}
}

func TestAHangDuringQueriesCostsOneDeadline(t *testing.T) {
	t.Parallel()
	s := newServer(t, containerd16)
	var observed atomic.Int32
	r := s.client(t, func(o *cri.Options) {
		o.Timeouts.Query = time.Second
		o.Observe = func(method string, _ time.Duration, _ error) {
			if method == "ContainerStatus" {
				observed.Add(1)
			}
		}
	})
	dead(s, 100, time.Now())
	s.set(func() {
		s.before = func(ctx context.Context, method, _ string) error {
			if method == "ContainerStatus" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
	})
	_, err := r.Pods(t.Context())
	for range 100 { // on a busy machine, the list may be too late
		if !errors.Is(err, runtime.ErrUnavailable) {
			break
		}
		s.count()
		observed.Store(0)
		_, err = r.Pods(t.Context())
	}
	if err != nil {
		t.Fatalf("Pods() of a runtime that hangs for containers = %v", err)
	}
	if got := s.count()["ContainerStatus"]; got > 4 {
		t.Errorf("Pods() asked %d of 100 containers of a runtime that hangs, want a few, at the same time", got)
	}
	if got := observed.Load(); got > 4 { // another container would count as hung
		t.Errorf("Pods() made %d calls to a runtime that hangs, want at most 4", got)
	}
	s.set(func() { s.before = nil })
	for range 100 { // on a busy machine, an answer may be too late
		if list, err := r.Pods(t.Context()); err == nil && len(list) == 1 && !list[0].Containers[0].FinishedAt.IsZero() {
			return
		}
	}
	t.Errorf("Pods() after the hang = no time, want it asked again")
}

func TestContainersThatHangAreAskedLast(t *testing.T) {
	t.Parallel()
	s := newServer(t, containerd16)
	r := s.client(t, func(o *cri.Options) { o.Timeouts.Query = time.Second })
	containers := dead(s, 20, time.Now()).Containers
	s.set(func() {
		s.before = func(ctx context.Context, method, subject string) error {
			if i := slices.IndexFunc(containers, func(c runtime.Container) bool { return c.ID == subject }); method == "ContainerStatus" && i < 8 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
	})
	known := 0
	for range 100 { // on a busy machine, a list completes less
		list, _ := r.Pods(t.Context()) // none if it is too late
		if len(list) == 0 {
			continue
		}
		if known = len(slices.DeleteFunc(list[0].Containers, func(c runtime.Container) bool { return c.FinishedAt.IsZero() })); known == 12 {
			return
		}
	}
	t.Errorf("the end of %d containers is known, want of all 12 that do not hang", known)
}

func TestConcurrentQueriesAreBounded(t *testing.T) {
	s := newServer(t, containerd16)
	r := s.client(t, nil)
	dead(s, 50, time.Now())
	at, most := 0, 0
	two := make(chan struct{}) // closed once two requests run concurrently
	s.set(func() {
		s.before = func(ctx context.Context, method, _ string) error {
			if method != "ContainerStatus" {
				return nil
			}
			s.set(func() {
				if at++; at == 2 && most < 2 {
					close(two)
				}
				most = max(most, at)
			})
			defer s.set(func() { at-- })
			select {
			case <-two:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	pods(t, r, 1)
	if most < 2 || most > 4 {
		t.Errorf("Pods() asked %d containers at a time, want 2 to 4", most)
	}
}

func TestImageIDs(t *testing.T) {
	for name, c := range map[string]struct {
		style imageStyle
		asks  int
	}{
		"image_ref is the ID, as in containerd 1.6":  {refIsID, 0},
		"image_id beside a digest, as in CRI-O 1.30": {idAndDigest, 0},
		"only a digest, as in CRI-O 1.24":            {digestOnly, 1},
		"only a name that is the ID":                 {nameIsID, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, flavour{name: "x", version: "1", images: c.style})
			r := s.client(t, nil)
			img := s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{"a:1"}})
			s.fake.RunPod(runtimetest.PodSpec{Containers: []runtimetest.ContainerSpec{{Name: "a", Image: "a:1"}}})
			for range 2 {
				if got := pods(t, r, 1)[0].Containers[0]; got.ImageID != img.ID {
					t.Errorf("Pods() = image ID %q, want %q", got.ImageID, img.ID)
				}
			}
			if got := s.count()["ImageStatus"]; got != c.asks {
				t.Errorf("two Pods() asked %d times for the image, want %d", got, c.asks)
			}
		})
	}
}

func TestAnImageThatIsGone(t *testing.T) {
	s := newServer(t, flavour{name: "cri-o", version: "1.24.0", images: digestOnly})
	r := s.client(t, nil)
	img := s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{"a:1"}})
	s.fake.RunPod(runtimetest.PodSpec{Containers: []runtimetest.ContainerSpec{
		{Name: "a", Image: "a:1", State: runtime.Exited, FinishedAt: time.Unix(1_700_000_000, 0)},
	}})
	if err := s.fake.RemoveImage(t.Context(), img); err != nil {
		t.Fatal(err)
	}
	c := pods(t, r, 1)[0].Containers[0]
	if c.ImageID != digestOf(img.ID) || c.FinishedAt.IsZero() {
		t.Errorf("Pods() = image ID %q, finished at %v, want %q and a time", c.ImageID, c.FinishedAt, digestOf(img.ID))
	}
}

func TestContainersWithoutSandboxAreNotLost(t *testing.T) {
	s := newServer(t, containerd16)
	s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{"a:1"}})
	labels := map[string]string{
		"io.kubernetes.pod.name": "orphan", "io.kubernetes.pod.namespace": "barn", "io.kubernetes.pod.uid": "u-1",
	}
	p := s.fake.RunPod(runtimetest.PodSpec{Name: "orphan", Namespace: "barn", UID: "u-1", Containers: []runtimetest.ContainerSpec{
		{Name: "a", Image: "a:1", Labels: labels}, {Name: "b", Image: "a:1", Labels: labels},
	}})
	bare := s.fake.RunPod(runtimetest.PodSpec{Containers: []runtimetest.ContainerSpec{{Name: "bare", Image: "a:1"}}})
	s.gone[p.ID], s.gone[bare.ID] = true, true
	list := pods(t, s.client(t, nil), 2)
	got := list[0]
	if got.ID != p.ID || got.Name != "orphan" || got.Namespace != "barn" || got.UID != "u-1" || got.Ready || len(got.Containers) != 2 {
		t.Errorf("Pods() = %+v, want barn/orphan, not ready, with both containers", got)
	}
	if got := list[1]; got.ID != bare.ID || got.Name != "bare" || got.UID != bare.ID || len(got.Containers) != 1 {
		t.Errorf("Pods() = %+v, want a pod named as its only container, bare", got)
	}
	if err := s.client(t, nil).StopPod(t.Context(), runtime.Pod{ID: "none"}); err != nil {
		t.Errorf("StopPod() of a pod without sandbox = %v", err)
	}
}

func TestStatesOfContainers(t *testing.T) {
	for state, want := range map[criapi.ContainerState]runtime.ContainerState{
		criapi.ContainerState_CONTAINER_CREATED: runtime.Created,
		criapi.ContainerState_CONTAINER_RUNNING: runtime.Running,
		criapi.ContainerState_CONTAINER_EXITED:  runtime.Exited,
		criapi.ContainerState_CONTAINER_UNKNOWN: runtime.Unknown,
		99:                                      runtime.Unknown,
	} {
		t.Run(state.String(), func(t *testing.T) {
			s := newServer(t, containerd16)
			s.set(func() {
				s.answer = func(_ string, resp any) {
					if r, ok := resp.(*criapi.ListContainersResponse); ok {
						r.Containers = append(r.Containers, &criapi.Container{Id: "a", State: state})
					}
				}
			})
			c := pods(t, s.client(t, nil), 1)[0].Containers[0]
			if c.State != want || !c.CreatedAt.IsZero() || c.PodID != "a" {
				t.Errorf("Pods() = %v, created at %v, of pod %q, want %v, no time, itself", c.State, c.CreatedAt, c.PodID, want)
			}
		})
	}
}

func TestAContextThatEndsDuringQueries(t *testing.T) {
	s := newServer(t, containerd16)
	r := s.client(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	s.set(func() {
		s.before = func(ctx context.Context, method, _ string) error {
			if method == "ListPodSandbox" {
				cancel()
				<-ctx.Done()
			}
			return nil
		}
	})
	if _, err := r.Pods(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Pods() = %v, want %v", err, context.Canceled)
	}
}

func TestAPodIsRemovedOnlyWhenAllAgree(t *testing.T) {
	tests := []struct {
		name   string
		answer func(method string) error // called before the server's own method
		ready  bool
		want   error // nil: any error
		text   string
	}{
		{name: "its status is not reported", text: "status lost", answer: func(method string) error {
			if method == "PodSandboxStatus" {
				return status.Error(codes.Internal, "status lost")
			}
			return nil
		}},
		{name: "its containers are not reported", text: "list lost", answer: func(method string) error {
			if method == "ListContainers" {
				return status.Error(codes.Internal, "list lost")
			}
			return nil
		}},
		{name: "its network is not given back", text: "cni", answer: func(method string) error {
			if method == "StopPodSandbox" {
				return status.Error(codes.Unknown, "cni")
			}
			return nil
		}},
		{name: "it is ready", ready: true, want: runtime.ErrInUse, text: "stop it first"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, containerd16)
			r := s.client(t, nil)
			p := s.fake.RunPod(runtimetest.PodSpec{Name: "horse", Namespace: "barn"})
			if !tt.ready {
				if err := s.fake.StopPod(t.Context(), p); err != nil {
					t.Fatal(err)
				}
			}
			s.set(func() {
				s.before = func(_ context.Context, method, _ string) error {
					if tt.answer == nil {
						return nil
					}
					return tt.answer(method)
				}
			})
			err := r.RemovePod(t.Context(), p)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("RemovePod() = %v, want %v that says %q", err, tt.want, tt.text)
			}
			if got := s.count()["RemovePodSandbox"]; got != 0 {
				t.Errorf("RemovePod() requested the removal %d times, want 0", got)
			}
		})
	}
}

func TestTheNetworkOfAPodIsReported(t *testing.T) {
	for name, tt := range map[string]struct {
		status *criapi.PodSandboxStatus
		want   runtime.PodNetwork
	}{
		"nothing is known": {&criapi.PodSandboxStatus{}, runtime.PodNetwork{}},
		"two addresses, and nonsense": {&criapi.PodSandboxStatus{Network: &criapi.PodSandboxNetworkStatus{
			Ip: "10.0.0.7", AdditionalIps: []*criapi.PodIP{{Ip: "FD00::7"}, {Ip: "x"}},
		}}, runtime.PodNetwork{IPs: []string{"10.0.0.7", "fd00::7"}}},
		"more than a pod can have": {&criapi.PodSandboxStatus{Network: &criapi.PodSandboxNetworkStatus{
			Ip: "10.0.0.7", AdditionalIps: slices.Repeat([]*criapi.PodIP{{Ip: "10.0.0.8"}}, 1000),
		}}, runtime.PodNetwork{IPs: append([]string{"10.0.0.7"}, slices.Repeat([]string{"10.0.0.8"}, 7)...)}},
		"that of the host": {&criapi.PodSandboxStatus{
			Linux:   &criapi.LinuxPodSandboxStatus{Namespaces: &criapi.Namespace{Options: &criapi.NamespaceOption{Network: criapi.NamespaceMode_NODE}}},
			Network: &criapi.PodSandboxNetworkStatus{Ip: "192.0.2.1"},
		}, runtime.PodNetwork{Host: true}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, containerd16)
			r := s.client(t, nil)
			p := s.fake.RunPod(runtimetest.PodSpec{Name: "horse", Namespace: "barn"})
			s.set(func() {
				s.answer = func(_ string, resp any) {
					if resp, ok := resp.(*criapi.PodSandboxStatusResponse); ok {
						resp.Status = tt.status
					}
				}
			})
			got, err := r.PodNetwork(t.Context(), p)
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("PodNetwork() = %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}
