package cri_test

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/services/leases/v1"
	"github.com/containerd/containerd/api/services/namespaces/v1"
	"github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// store implements containerd's own services on the socket of its CRI, by namespace. It ignores
// filters, because results must be correct even if containerd interprets a filter differently.
type store struct {
	containers map[string][]*containers.Container
	images     map[string][]*images.Image
	leases     []*leases.Lease
	resources  map[string][]*leases.Resource // by lease
	content    []*content.Info
	snapshots  map[string]string // parent by key
	filters    [][]string        // of the requests for images
}

func (s *store) register(to *grpc.Server) {
	containers.RegisterContainersServer(to, containerServer{s: s})
	images.RegisterImagesServer(to, imageServer{s: s})
	leases.RegisterLeasesServer(to, leaseServer{s: s})
	namespaces.RegisterNamespacesServer(to, namespaceServer{s: s})
	content.RegisterContentServer(to, contentServer{s: s})
	snapshots.RegisterSnapshotsServer(to, snapshotServer{s: s})
}

// record is a name of an image in containerd's store.
func record(name, digest string, created time.Time, labels map[string]string) *images.Image {
	return &images.Image{Name: name, Target: &types.Descriptor{Digest: digest}, Labels: labels, CreatedAt: timestamppb.New(created), UpdatedAt: timestamppb.New(created)}
}

// labelStopSignal marks images in these tests whose configuration has a stop signal.
const labelStopSignal = "test.stop-signal"

// imageInfo returns the configuration in a verbose image status.
func imageInfo(labels map[string]string) string {
	config := map[string]any{"Labels": labels, "Cmd": []string{"sh"}}
	if signal := labels[labelStopSignal]; signal != "" {
		config["StopSignal"] = signal
	}
	text, err := json.Marshal(map[string]any{"chainID": "sha256:0", "imageSpec": map[string]any{"os": "linux", "config": config}})
	if err != nil {
		panic(err)
	}
	return string(text)
}

func namespaceOf(ctx context.Context) (string, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if names := md.Get("containerd-namespace"); len(names) == 1 {
		return names[0], nil
	}
	return "", errors.New("namespace is required")
}

type containerServer struct {
	containers.UnimplementedContainersServer
	s *store
}

func (c containerServer) List(ctx context.Context, _ *containers.ListContainersRequest) (*containers.ListContainersResponse, error) {
	ns, err := namespaceOf(ctx)
	return &containers.ListContainersResponse{Containers: c.s.containers[ns]}, err
}

type imageServer struct {
	images.UnimplementedImagesServer
	s *store
}

func (i imageServer) List(ctx context.Context, req *images.ListImagesRequest) (*images.ListImagesResponse, error) {
	ns, err := namespaceOf(ctx)
	i.s.filters = append(i.s.filters, req.GetFilters())
	return &images.ListImagesResponse{Images: i.s.images[ns]}, err
}

type leaseServer struct {
	leases.UnimplementedLeasesServer
	s *store
}

func (l leaseServer) List(ctx context.Context, _ *leases.ListRequest) (*leases.ListResponse, error) {
	_, err := namespaceOf(ctx)
	return &leases.ListResponse{Leases: l.s.leases}, err
}

func (l leaseServer) ListResources(_ context.Context, req *leases.ListResourcesRequest) (*leases.ListResourcesResponse, error) {
	held, found := l.s.resources[req.GetID()]
	if !found {
		return nil, status.Errorf(codes.NotFound, "lease %q: not found", req.GetID())
	}
	return &leases.ListResourcesResponse{Resources: held}, nil
}

type namespaceServer struct {
	namespaces.UnimplementedNamespacesServer
	s *store
}

func (n namespaceServer) List(context.Context, *namespaces.ListNamespacesRequest) (*namespaces.ListNamespacesResponse, error) {
	resp := &namespaces.ListNamespacesResponse{Namespaces: []*namespaces.Namespace{{Name: "k8s.io"}, {Name: "default"}, {Name: "moby"}}}
	return resp, nil
}

type contentServer struct {
	content.UnimplementedContentServer
	s *store
}

// List sends several messages, like containerd.
func (c contentServer) List(_ *content.ListContentRequest, stream content.Content_ListServer) error {
	for _, info := range c.s.content {
		if err := stream.Send(&content.ListContentResponse{Info: []*content.Info{info}}); err != nil {
			return err
		}
	}
	return nil
}

type snapshotServer struct {
	snapshots.UnimplementedSnapshotsServer
	s *store
}

func (n snapshotServer) Stat(_ context.Context, req *snapshots.StatSnapshotRequest) (*snapshots.StatSnapshotResponse, error) {
	parent, found := n.s.snapshots[req.GetKey()]
	if !found {
		return nil, status.Errorf(codes.NotFound, "snapshot %s: not found", req.GetKey())
	}
	return &snapshots.StatSnapshotResponse{Info: &snapshots.Info{Name: req.GetKey(), Parent: parent, Kind: snapshots.Kind_ACTIVE}}, nil
}
