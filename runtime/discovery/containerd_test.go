package discovery

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerd is a runtime behind its own socket.
type containerd struct {
	criapi.UnimplementedRuntimeServiceServer
	criapi.UnimplementedImageServiceServer
	socket    string
	server    *grpc.Server
	hangs     atomic.Bool
	starts    atomic.Bool // it is not ready yet, as containerd 1.x reports it
	sandboxes []*criapi.PodSandbox
}

func newContainerd(t *testing.T) *containerd {
	t.Helper()
	dir := folder(t)
	s := &containerd{socket: filepath.Join(dir, "containerd.sock")}
	listener, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	s.server = grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if s.hangs.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		if s.starts.Load() {
			return nil, errors.New("server is not initialized yet")
		}
		return handle(ctx, req)
	}))
	criapi.RegisterRuntimeServiceServer(s.server, s)
	criapi.RegisterImageServiceServer(s.server, s)
	go s.server.Serve(listener)
	t.Cleanup(s.server.Stop)
	return s
}

func (s *containerd) Version(context.Context, *criapi.VersionRequest) (*criapi.VersionResponse, error) {
	return &criapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v1.7.0"}, nil
}

func (s *containerd) Status(context.Context, *criapi.StatusRequest) (*criapi.StatusResponse, error) {
	return &criapi.StatusResponse{Status: &criapi.RuntimeStatus{Conditions: []*criapi.RuntimeCondition{
		{Type: criapi.RuntimeReady, Status: true}, {Type: criapi.NetworkReady, Status: true},
	}}}, nil
}

func (s *containerd) ListPodSandbox(context.Context, *criapi.ListPodSandboxRequest) (*criapi.ListPodSandboxResponse, error) {
	return &criapi.ListPodSandboxResponse{Items: s.sandboxes}, nil
}

func (s *containerd) ListContainers(context.Context, *criapi.ListContainersRequest) (*criapi.ListContainersResponse, error) {
	return &criapi.ListContainersResponse{}, nil
}

func (s *containerd) ListImages(context.Context, *criapi.ListImagesRequest) (*criapi.ListImagesResponse, error) {
	return &criapi.ListImagesResponse{Images: []*criapi.Image{{Id: "sha256:" + filepath.Base(filepath.Dir(s.socket)), Size: 1}}}, nil
}
