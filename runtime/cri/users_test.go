package cri_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/services/leases/v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

func TestOtherImageUsers(t *testing.T) {
	kind := func(k string) map[string]string { return map[string]string{"io.cri-containerd.kind": k} }
	began := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	expires := func(in time.Duration) map[string]string {
		return map[string]string{"containerd.io/gc.expire": time.Now().Add(in).UTC().Format(time.RFC3339)}
	}
	s := newServer(t, containerd16)
	s.store = store{
		containers: map[string][]*containers.Container{
			"k8s.io": {
				{ID: "c1", Image: "docker.io/library/a:1", Labels: kind("container")},
				{ID: "s1", Image: "registry.k8s.io/pause:3.6", Labels: kind("sandbox")},
				{ID: "builder", Image: "docker.io/library/b:1", Labels: map[string]string{"nerdctl/namespace": "k8s.io"}},
				{ID: "bare"},
			},
			"default": {{ID: "mine", Image: "docker.io/library/own-name:1"}, {ID: "other", Image: "docker.io/library/elsewhere:1"}},
			"moby":    {{ID: "docker-s"}},
		},
		images: map[string][]*images.Image{
			"k8s.io": {
				record("docker.io/library/a:1", "sha256:aa", began, nil),
				record("docker.io/library/c:1", "sha256:cc", began, nil),
				record("docker.io/library/own-name:1", "sha256:dd", began, nil),
			},
			"default": {
				record("docker.io/library/own-name:1", "sha256:cc", began, nil),
				record("docker.io/library/elsewhere:1", "sha256:ee", began, nil),
				record("docker.io/library/unused:1", "sha256:aa", began, nil),
			},
		},
		leases: []*leases.Lease{
			{ID: "pull", CreatedAt: timestamppb.New(began), Labels: expires(time.Hour)},
			{ID: "stale", Labels: expires(-time.Hour)},
			{ID: "ended", Labels: expires(time.Hour)},
			{ID: "sandbox"},
		},
		resources: map[string][]*leases.Resource{
			"pull":    {{ID: "sha256:f1", Type: "content"}, {ID: "extract-1 sha256:f2", Type: "snapshots/overlayfs"}, {ID: "layer-sha256:f3", Type: "ingests"}},
			"stale":   {{ID: "sha256:f4", Type: "content"}},
			"sandbox": {{ID: "sha256:f5", Type: "content"}},
		},
	}
	want := []runtime.ImageUser{
		{Image: "docker.io/library/b:1", By: "container builder, not managed by CRI"},
		{Image: "docker.io/library/c:1", By: "container mine in containerd's namespace default"},
		{Image: "sha256:f1", By: "a pull or a build that started at 2026-11-20T12:00:00Z, lease pull"},
	}
	if got, err := s.client(t, nil).OtherImageUsers(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("OtherImageUsers() = %+v, %v, want %+v", got, err, want)
	}

	// A runtime that cannot list all users must not count as one without users.
	for _, method := range []string{"ListResources", "List"} {
		s.set(func() {
			s.before = func(_ context.Context, called, _ string) error {
				if called == method {
					return errors.New("database is shut")
				}
				return nil
			}
		})
		if got, err := s.client(t, nil).OtherImageUsers(t.Context()); err == nil || !strings.Contains(err.Error(), "database is shut") {
			t.Errorf("OtherImageUsers() where %s fails = %+v, %v, want its error", method, got, err)
		}
	}
}

func TestOtherImageUsersOfOthersThanContainerd(t *testing.T) {
	crio := newServer(t, flavour{name: "cri-o", version: "1.30.0", criEvents: true})
	r := crio.client(t, nil)
	if got, err := r.OtherImageUsers(t.Context()); !errors.Is(err, runtime.ErrUnsupported) {
		t.Errorf("OtherImageUsers() of CRI-O = %+v, %v, want %v", got, err, runtime.ErrUnsupported)
	}
	if _, err := r.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	crio.count()
	if got, err := r.OtherImageUsers(t.Context()); !errors.Is(err, runtime.ErrUnsupported) || len(crio.count()) != 0 {
		t.Errorf("OtherImageUsers() of CRI-O once it is known = %+v, %v, want %v without a call", got, err, runtime.ErrUnsupported)
	}
}

// An unpack that is not part of a pull does not name its image: it may be any that has no snapshot
// yet.
func TestOtherImageUsersWhileAnImportIsUnpacked(t *testing.T) {
	s := newServer(t, containerd16)
	done := s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{"docker.io/library/done:1"}})
	s.fake.AddImage(runtimetest.ImageSpec{ID: "sha256:11", Tags: []string{"docker.io/library/begun:1"}})
	s.fake.AddImage(runtimetest.ImageSpec{ID: "sha256:22", Tags: []string{"docker.io/library/elsewhere:1"}})
	s.store = store{
		leases: []*leases.Lease{{
			ID: "unpack", CreatedAt: timestamppb.New(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)),
			Labels: map[string]string{"containerd.io/gc.expire": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)},
		}},
		resources: map[string][]*leases.Resource{"unpack": {{ID: "sha256:f0", Type: "snapshots/overlayfs"}, {ID: "extract-1 sha256:f1", Type: "snapshots/overlayfs"}}},
		content: []*content.Info{
			{Digest: done.ID, Labels: map[string]string{"containerd.io/gc.ref.snapshot.overlayfs": "sha256:f2"}},
			{Digest: "sha256:11"},
			{Digest: "sha256:22", Labels: map[string]string{"containerd.io/gc.ref.snapshot.native": "sha256:f2"}},
		},
	}
	const by = "an unpack that started at 2026-11-20T12:00:00Z, lease unpack"
	want := []runtime.ImageUser{{Image: "sha256:11", By: by}, {Image: "sha256:22", By: by}}
	if got, err := s.client(t, nil).OtherImageUsers(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("OtherImageUsers() = %+v, %v, want %+v", got, err, want)
	}
	s.set(func() { s.store.resources["unpack"] = s.store.resources["unpack"][:1] })
	if got, err := s.client(t, nil).OtherImageUsers(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("OtherImageUsers() of a lease that unpacks nothing = %+v, %v, want none", got, err)
	}
}

// CRI lists a container only after its creation. Until then, a lease holds its snapshot.
func TestOtherImageUsersWhileAContainerIsMade(t *testing.T) {
	s := newServer(t, containerd16)
	expires := map[string]string{"containerd.io/gc.expire": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}
	began := timestamppb.New(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	label := func(chain string) map[string]string {
		return map[string]string{"containerd.io/gc.ref.snapshot.overlayfs": chain}
	}
	s.store = store{
		leases: []*leases.Lease{{ID: "making", CreatedAt: began, Labels: expires}, {ID: "made", CreatedAt: began, Labels: expires}, {ID: "bare", CreatedAt: began, Labels: expires}},
		resources: map[string][]*leases.Resource{
			"making": {{ID: "c1", Type: "snapshots/overlayfs"}},
			"made":   {{ID: "c2", Type: "snapshots/overlayfs"}},
			"bare":   {{ID: "c3", Type: "snapshots/overlayfs"}},
		},
		snapshots: map[string]string{"c1": "sha256:e1", "c3": ""},
		content:   []*content.Info{{Digest: "sha256:11", Labels: label("sha256:e1")}, {Digest: "sha256:22", Labels: label("sha256:e2")}, {Digest: "sha256:33"}},
	}
	want := []runtime.ImageUser{{Image: "sha256:11", By: "a container that started at 2026-11-20T12:00:00Z, lease making"}}
	if got, err := s.client(t, nil).OtherImageUsers(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("OtherImageUsers() = %+v, %v, want %+v", got, err, want)
	}
}
