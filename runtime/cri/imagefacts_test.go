package cri_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	goruntime "runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/images/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/runtimetest"
)

// detailed lists the images of r by their first tag.
func detailed(t *testing.T, r *cri.Runtime) map[string]runtime.Image {
	t.Helper()
	list, err := r.DetailedImages(t.Context())
	if err != nil {
		t.Fatalf("DetailedImages() = %v", err)
	}
	byName := map[string]runtime.Image{}
	for _, img := range list {
		byName[img.Names()[0]] = img
	}
	return byName
}

func TestTheStopSignalOfAnImageIsThatOfItsConfiguration(t *testing.T) {
	s := newServer(t, containerd16)
	nginx := s.fake.AddImage(runtimetest.ImageSpec{Labels: map[string]string{labelStopSignal: "SIGQUIT"}})
	plain := s.fake.AddImage(runtimetest.ImageSpec{})
	large := s.fake.AddImage(runtimetest.ImageSpec{Labels: map[string]string{labelStopSignal: strings.Repeat("x", 1<<20)}})
	r := s.client(t, nil)
	if got, err := r.StopSignal(t.Context(), large.ID); len(got) > 256 || err != nil {
		t.Errorf("StopSignal() of a large one = %d bytes, %v, want at most 256", len(got), err)
	}
	for id, want := range map[string]string{nginx.ID: "SIGQUIT", plain.ID: "", "sha256:gone": ""} {
		if got, err := r.StopSignal(t.Context(), id); got != want || err != nil {
			t.Errorf("StopSignal(%s) = %q, %v, want %q", id, got, err, want)
		}
	}
}

func TestDetailedImages(t *testing.T) {
	s := newServer(t, containerd16)
	old, later := time.Now().Add(-48*time.Hour).Round(0), time.Now().Add(-time.Hour).Round(0)
	keep := map[string]string{runtime.LabelKeep: "true"}
	a := s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{"docker.io/library/a:1", "docker.io/library/a:2"}})
	s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{"docker.io/library/b:1"}, Labels: map[string]string{runtime.LabelKeep: "true", "maintainer": "me"}})
	c := s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{"docker.io/library/c:1"}})
	ahead := record("docker.io/library/b:1", "sha256:b", time.Now().Add(time.Hour), nil)
	s.store.images = map[string][]*images.Image{"k8s.io": {
		record(a.ID, "sha256:a", old, nil), record("docker.io/library/a:1", "sha256:a", old, nil), record("docker.io/library/a:2", "sha256:a", later, nil),
		ahead, record(c.ID, "sha256:c", old, nil), record("docker.io/library/c:1", "sha256:c", old, keep),
	}}
	r := s.client(t, nil)
	got := detailed(t, r)
	for _, want := range []struct {
		name    string
		created time.Time
		labels  map[string]string
	}{
		{"docker.io/library/a:1", later, nil},
		{"docker.io/library/b:1", time.Time{}, keep},
		{"docker.io/library/c:1", old, keep},
	} {
		img := got[want.name]
		if !img.CreatedAt.Equal(want.created) || !maps.Equal(img.Labels, want.labels) || img.LabelsUnknown {
			t.Errorf("DetailedImages() has %s as %+v, want it created at %s with labels %v", want.name, img, want.created, want.labels)
		}
	}
	s.count()

	// Facts that cannot have changed are not requested again; the others take one call.
	s.set(func() { s.store.images["k8s.io"][5].Labels = nil })
	got = detailed(t, r)
	if calls, want := s.count(), map[string]int{"ListImages": 1, "List": 1}; !maps.Equal(calls, want) {
		t.Errorf("a second list made the calls %v, want %v", calls, want)
	}
	if img := got["docker.io/library/c:1"]; len(img.Labels) != 0 || !img.CreatedAt.Equal(old) {
		t.Errorf("DetailedImages() has %+v, want it without the label that was taken off, created at %s", img, old)
	}
	if img := got["docker.io/library/b:1"]; !maps.Equal(img.Labels, keep) {
		t.Errorf("DetailedImages() has %+v, want it with its own label still", img)
	}

	// A new image is requested by name; on a new connection, all are.
	s.store.filters = nil
	d := s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{"docker.io/library/d:1"}})
	s.store.images["k8s.io"] = append(s.store.images["k8s.io"], record(d.ID, "sha256:d", later, nil))
	if img := detailed(t, r)["docker.io/library/d:1"]; !img.CreatedAt.Equal(later) {
		t.Errorf("DetailedImages() has %+v, want it created at %s", img, later)
	}
	want := []string{fmt.Sprintf("name==%q", d.ID), `name=="docker.io/library/d:1"`}
	if got := s.store.filters[0]; !slices.Equal(got, want) {
		t.Errorf("DetailedImages() read the records %q, want %q", got, want)
	}
	pulled := time.Now().Add(-time.Minute).Round(0)
	s.grpc.Stop()
	s.store.images["k8s.io"][1] = record("docker.io/library/a:1", "sha256:a", pulled, nil)
	s.serve(t)
	// The client connects again by itself after a while.
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); goruntime.Gosched() {
		if _, err := r.Info(t.Context()); err == nil {
			break
		}
	}
	if img := detailed(t, r)["docker.io/library/a:1"]; !img.CreatedAt.Equal(pulled) {
		t.Errorf("DetailedImages() after a pull that nobody saw has %+v, want it created at %s", img, pulled)
	}
}

func TestALabelOnARecordAddsToTheImagesOwn(t *testing.T) {
	tests := []struct{ name, image, record, want string }{
		{"it is set", "", "true", "true"},
		{"it is neither true nor false, which is not hostler's to judge here", "", "yes", "yes"},
		{"it says no, and so does nobody else", "", "false", ""},
		{"it says no, and the image itself yes", "true", "false", "true"},
		{"it says yes, and the image itself no", "false", "true", "true"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			const name = "docker.io/library/a:1"
			s := newServer(t, containerd16)
			own := map[string]string{}
			if tt.image != "" {
				own[runtime.LabelKeep] = tt.image
			}
			s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{name}, Labels: own})
			s.store.images = map[string][]*images.Image{"k8s.io": {record(name, "sha256:a", time.Now(), map[string]string{runtime.LabelKeep: tt.record})}}
			if got := detailed(t, s.client(t, nil))[name].Labels[runtime.LabelKeep]; got != tt.want {
				t.Errorf("DetailedImages() has %s with the label %q, want %q", name, got, tt.want)
			}
			want := []string{fmt.Sprintf("labels.%q", runtime.LabelKeep), `labels."io.cri-containerd.pinned"`}
			if !slices.ContainsFunc(s.store.filters, func(got []string) bool { return slices.Equal(got, want) }) {
				t.Errorf("DetailedImages() read the records %q, want %q among them", s.store.filters, want)
			}
		})
	}
}

// CRI of containerd 1.6 does not report that an image is pinned.
func TestALabelOnARecordPinsTheImage(t *testing.T) {
	for value, want := range map[string]bool{"pinned": true, "": false, "no": false} {
		const name, other = "docker.io/library/a:1", "docker.io/library/b:1"
		s := newServer(t, containerd16)
		s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{name}})
		s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{other}})
		s.store.images = map[string][]*images.Image{"k8s.io": {
			record(name, "sha256:a", time.Now(), nil), record(other, "sha256:b", time.Now(), nil),
			record("docker.io/library/second-name:1", "sha256:a", time.Now(), map[string]string{"io.cri-containerd.pinned": value}),
		}}
		got := detailed(t, s.client(t, nil))
		if got[name].Pinned != want || got[other].Pinned {
			t.Errorf("DetailedImages() with the value %q has %s pinned %t and %s pinned %t, want %t and false", value, name, got[name].Pinned, other, got[other].Pinned, want)
		}
	}
}

func TestDetailsOfManyImagesAreOneList(t *testing.T) {
	s := newServer(t, containerd16)
	for i := range 100 {
		s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{fmt.Sprintf("docker.io/library/i%d:1", i)}})
	}
	detailed(t, s.client(t, nil))
	if got, want := s.store.filters[0], []string{`name~="/[^@/]*$"`, `name~="^sha256:"`}; !slices.Equal(got, want) {
		t.Errorf("DetailedImages() read the records %q, want %q", got, want)
	}
}

// A list shares the labels that stay in memory, unless they are too large and have to be cut again
// for each list.
func TestLabelsOfImagesAreBoundedInMemory(t *testing.T) {
	const name = "docker.io/library/a:1"
	s := newServer(t, containerd16)
	labels := map[string]string{runtime.LabelKeep: "true", "hostler.io/large": strings.Repeat("x", 1<<20)}
	for i := range 10_000 {
		labels[fmt.Sprintf("hostler.io/%d", i)] = "x"
	}
	s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{name}, Labels: labels})
	r := s.client(t, nil)
	first, second := detailed(t, r)[name].Labels, detailed(t, r)[name].Labels
	if first[runtime.LabelKeep] != "true" || len(first) > 9_000 {
		t.Errorf("DetailedImages() has %d labels, with %s=%q, want fewer, with true", len(first), runtime.LabelKeep, first[runtime.LabelKeep])
	}
	if reflect.ValueOf(first).Pointer() != reflect.ValueOf(second).Pointer() {
		t.Error("DetailedImages() cuts the labels of an image for each list, want the cut ones to be kept in memory")
	}
}

func TestLabelsThatTakeTooLongStayUnknown(t *testing.T) {
	t.Parallel()
	s := newServer(t, containerd16)
	for i := range 40 {
		s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{fmt.Sprintf("docker.io/library/i%d:1", i)}, Labels: map[string]string{runtime.LabelKeep: "true"}})
	}
	slow := func(ctx context.Context, method, _ string) error {
		if method == "ImageStatus" {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	s.set(func() { s.before = slow })
	var observed atomic.Int32
	r := s.client(t, func(o *cri.Options) {
		o.Timeouts.Query = time.Second
		o.Observe = func(method string, _ time.Duration, _ error) {
			if method == "ImageStatus" {
				observed.Add(1)
			}
		}
	})
	list, err := r.DetailedImages(t.Context())
	for range 100 { // on a busy machine, the list may be too late
		if !errors.Is(err, runtime.ErrUnavailable) {
			break
		}
		observed.Store(0)
		list, err = r.DetailedImages(t.Context())
	}
	if err != nil || len(list) != 40 || slices.ContainsFunc(list, func(img runtime.Image) bool { return !img.LabelsUnknown }) {
		t.Errorf("DetailedImages() of a slow runtime = %+v, %v, want 40 images whose labels are unknown", list, err)
	}
	if got := observed.Load(); got > 4 { // another image would count as hung
		t.Errorf("DetailedImages() made %d calls to a slow runtime, want at most 4", got)
	}
	s.set(func() { s.before = nil })
	r = s.client(t, nil)
	for name, img := range detailed(t, r) {
		if img.LabelsUnknown || img.Labels[runtime.LabelKeep] != "true" {
			t.Errorf("DetailedImages() has %s as %+v, want its labels", name, img)
		}
	}
}

// An image whose configuration is missing or damaged must not stay forever. An image that could not
// be read once must not lose its label forever.
func TestAnUnreadableImageEndsUpWithoutLabels(t *testing.T) {
	s := newServer(t, flavour{name: "cri-o", version: "1.30.0", images: idAndDigest, criEvents: true})
	s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{"docker.io/library/a:1"}})
	s.set(func() {
		s.before = func(_ context.Context, method, _ string) error {
			if method == "ImageStatus" {
				return status.Error(codes.Unknown, "no such blob")
			}
			return nil
		}
	})
	r := s.client(t, nil)
	for i := range 9 {
		if img := detailed(t, r)["docker.io/library/a:1"]; !img.LabelsUnknown {
			t.Fatalf("DetailedImages() the %dth time = %+v, want its labels unknown", i+1, img)
		}
	}
	if img := detailed(t, r)["docker.io/library/a:1"]; img.LabelsUnknown || img.Labels != nil || !img.CreatedAt.IsZero() {
		t.Errorf("DetailedImages() the tenth time = %+v, want it without labels", img)
	}
}

func TestImagesThatHangAreAskedLast(t *testing.T) {
	t.Parallel()
	s := newServer(t, containerd16)
	hang := map[string]bool{}
	for i := range 20 {
		img := s.fake.AddImage(runtimetest.ImageSpec{})
		hang[img.ID] = i < 8
	}
	r := s.client(t, func(o *cri.Options) { o.Timeouts.Query = time.Second })
	s.set(func() {
		s.before = func(ctx context.Context, method, subject string) error {
			if method == "ImageStatus" && hang[subject] {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
	})
	known := 0
	for range 100 { // on a busy machine, a list completes less
		list, _ := r.DetailedImages(t.Context()) // none if it is too late
		if known = len(slices.DeleteFunc(list, func(img runtime.Image) bool { return img.LabelsUnknown })); known == 12 {
			return
		}
	}
	t.Errorf("the labels of %d images are known, want of all 12 that do not hang", known)
}
