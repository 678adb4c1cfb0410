package cri_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/containerd/containerd/api/services/containers/v1"
	"google.golang.org/grpc/metadata"

	"hostler.io/hostler/runtime"
)

// containerServer is containerd's container service. It does not filter, as if it
// understood the filter otherwise.
type containerServer struct {
	containers.UnimplementedContainersServer
}

func (containerServer) List(ctx context.Context, _ *containers.ListContainersRequest) (*containers.ListContainersResponse, error) {
	if md, _ := metadata.FromIncomingContext(ctx); !slices.Equal(md.Get("containerd-namespace"), []string{"k8s.io"}) {
		return nil, errors.New("namespace is required")
	}
	kind := func(k string) map[string]string { return map[string]string{"io.cri-containerd.kind": k} }
	return &containers.ListContainersResponse{Containers: []*containers.Container{
		{ID: "c1", Image: "docker.io/library/a:1", Labels: kind("container")},
		{ID: "s1", Image: "registry.k8s.io/pause:3.6", Labels: kind("sandbox")},
		{ID: "builder", Image: "docker.io/library/b:1", Labels: map[string]string{"nerdctl/namespace": "k8s.io"}},
		{ID: "bare"},
	}}, nil
}

func TestOtherImageUsers(t *testing.T) {
	s := newServer(t, containerd16)
	want := []runtime.ImageUser{{Image: "docker.io/library/b:1", By: "container builder, which is not CRI's"}}
	if got, err := s.client(t, nil).OtherImageUsers(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("OtherImageUsers() = %+v, %v, want %+v", got, err, want)
	}
	crio := newServer(t, flavour{name: "cri-o", version: "1.30.0", criEvents: true})
	if got, err := crio.client(t, nil).OtherImageUsers(t.Context()); !errors.Is(err, runtime.ErrUnsupported) {
		t.Errorf("OtherImageUsers() of CRI-O = %+v, %v, want %v", got, err, runtime.ErrUnsupported)
	}
}
