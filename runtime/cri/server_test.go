package cri_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/events/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runtimetest"
)

// flavour has the differences between kinds and versions of runtimes.
type flavour struct {
	name, version string
	config        string // JSON under "config" in a verbose status
	sandboxInfo   string // JSON under "info" in a verbose status of a sandbox
	images        imageStyle
	nativeEvents  bool // containerd's event service
	criEvents     bool // GetContainerEvents
}

// imageStyle is the form of an image in a list of containers.
type imageStyle int

const (
	refIsID     imageStyle = iota // containerd 1.6: image_ref is the ID, no image_id
	idAndDigest                   // CRI-O 1.30: image_id, and image_ref is a digest
	digestOnly                    // CRI-O 1.2x: image_ref is a digest, no image_id
	nameIsID                      // only the image spec, with the ID
)

var containerd16 = flavour{
	name: "containerd", version: "1.6.20~ds1", nativeEvents: true,
	config: `{"containerd":{"snapshotter":"overlayfs"},"sandboxImage":"registry.k8s.io/pause:3.6","maxConcurrentDownloads":3}`,
}

// server serves CRI on its own socket, with a Fake behind it. It is as strict as real runtimes: a
// missing object is NotFound, and RemoveContainer kills a running container.
type server struct {
	criapi.UnimplementedRuntimeServiceServer
	criapi.UnimplementedImageServiceServer
	flavour
	fake   *runtimetest.Fake
	store  store // containerd's own services, if it is one
	socket string
	grpc   *grpc.Server

	mu    sync.Mutex
	calls map[string]int
	stops []*criapi.StopContainerRequest
	// before is called before each call, and answer may change its result.
	before func(ctx context.Context, method, subject string) error
	answer func(method string, resp any)
	gone   map[string]bool // sandboxes that are not listed
}

func newServer(t *testing.T, f flavour) *server {
	t.Helper()
	// t.TempDir may be too long for a socket's path.
	dir, err := os.MkdirTemp("", "cri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &server{
		flavour: f, socket: filepath.Join(dir, "cri.sock"), calls: map[string]int{}, gone: map[string]bool{},
		fake: runtimetest.NewFake(runtimetest.Options{Path: dir}),
	}
	s.serve(t)
	t.Cleanup(func() { s.grpc.Stop(); s.fake.Close() })
	return s
}

func (s *server) serve(t testing.TB) {
	t.Helper()
	os.Remove(s.socket)
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	s.grpc = grpc.NewServer(grpc.UnaryInterceptor(s.intercept), grpc.MaxSendMsgSize(64<<20))
	criapi.RegisterRuntimeServiceServer(s.grpc, s)
	criapi.RegisterImageServiceServer(s.grpc, s)
	if s.nativeEvents {
		events.RegisterEventsServer(s.grpc, eventServer{s: s})
		s.store.register(s.grpc)
	}
	go s.grpc.Serve(l)
}

func (s *server) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	method, subject := filepath.Base(info.FullMethod), ""
	if r, ok := req.(interface{ GetContainerId() string }); ok {
		subject = r.GetContainerId()
	}
	if r, ok := req.(*criapi.ImageStatusRequest); ok {
		subject = r.GetImage().GetImage()
	}
	s.mu.Lock()
	s.calls[method]++
	if r, ok := req.(*criapi.StopContainerRequest); ok {
		s.stops = append(s.stops, r)
	}
	before, answer := s.before, s.answer
	s.mu.Unlock()
	if before != nil {
		if err := before(ctx, method, subject); err != nil {
			return nil, err
		}
	}
	resp, err := handle(ctx, req)
	switch {
	case err != nil && status.Code(err) == codes.Unknown:
		err = toStatus(err)
	case err == nil && answer != nil:
		answer(method, resp)
	}
	return resp, err
}

// set changes the server under its lock.
func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// count returns the number of calls of each method since the last count.
func (s *server) count() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = map[string]int{}
	return calls
}

func toStatus(err error) error {
	switch {
	case errors.Is(err, runtime.ErrUnavailable):
		return status.Error(codes.Unavailable, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	return err
}

// client returns the adapter under test; change may be nil.
func (s *server) client(t *testing.T, change func(*cri.Options)) *cri.Runtime {
	t.Helper()
	opts := cri.Options{Endpoint: s.socket, Name: "under-test", Timeouts: local.Timeouts{Query: patience}} // for a busy machine
	if change != nil {
		change(&opts)
	}
	r, err := cri.New(opts)
	if err != nil {
		t.Fatalf("New() = %v", err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func (s *server) Version(context.Context, *criapi.VersionRequest) (*criapi.VersionResponse, error) {
	return &criapi.VersionResponse{Version: "0.1.0", RuntimeName: s.name, RuntimeVersion: s.version, RuntimeApiVersion: "v1"}, nil
}

func (s *server) Status(ctx context.Context, req *criapi.StatusRequest) (*criapi.StatusResponse, error) {
	info, err := s.fake.Info(ctx)
	if err != nil {
		return nil, err
	}
	resp := &criapi.StatusResponse{Status: &criapi.RuntimeStatus{Conditions: []*criapi.RuntimeCondition{
		{Type: criapi.RuntimeReady, Status: info.Ready, Reason: "Why", Message: info.Message},
		{Type: criapi.NetworkReady, Status: info.NetworkReady, Message: info.NetworkMessage},
	}}}
	if req.GetVerbose() {
		resp.Info = map[string]string{"config": s.config, "golang": `"go1.19"`}
	}
	return resp, nil
}

func (s *server) ListPodSandbox(ctx context.Context, _ *criapi.ListPodSandboxRequest) (*criapi.ListPodSandboxResponse, error) {
	pods, err := s.fake.Pods(ctx)
	resp := &criapi.ListPodSandboxResponse{}
	for _, p := range pods {
		if s.gone[p.ID] {
			continue
		}
		state := criapi.PodSandboxState_SANDBOX_NOTREADY
		if p.Ready {
			state = criapi.PodSandboxState_SANDBOX_READY
		}
		resp.Items = append(resp.Items, &criapi.PodSandbox{
			Id: p.ID, Metadata: &criapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: p.UID},
			State: state, CreatedAt: p.CreatedAt.UnixNano(), Labels: p.Labels, Annotations: p.Annotations,
		})
	}
	return resp, err
}

func criState(s runtime.ContainerState) criapi.ContainerState {
	switch s {
	case runtime.Created:
		return criapi.ContainerState_CONTAINER_CREATED
	case runtime.Running:
		return criapi.ContainerState_CONTAINER_RUNNING
	case runtime.Exited:
		return criapi.ContainerState_CONTAINER_EXITED
	}
	return criapi.ContainerState_CONTAINER_UNKNOWN
}

// digestOf returns the server's reference with a digest for an image.
func digestOf(id string) string { return "localhost/by-digest@" + id }

func (s *server) ListContainers(ctx context.Context, req *criapi.ListContainersRequest) (*criapi.ListContainersResponse, error) {
	pods, err := s.fake.Pods(ctx)
	resp := &criapi.ListContainersResponse{}
	for _, p := range pods {
		if only := req.GetFilter().GetPodSandboxId(); only != "" && only != p.ID {
			continue
		}
		for _, c := range p.Containers {
			listed := &criapi.Container{
				Id: c.ID, PodSandboxId: c.PodID, Metadata: &criapi.ContainerMetadata{Name: c.Name},
				Image: &criapi.ImageSpec{Image: c.Image}, State: criState(c.State), CreatedAt: c.CreatedAt.UnixNano(),
				Labels: c.Labels, Annotations: c.Annotations,
			}
			switch s.images {
			case refIsID:
				listed.ImageRef = c.ImageID
			case idAndDigest:
				listed.ImageId, listed.ImageRef = c.ImageID, digestOf(c.ImageID)
			case digestOnly:
				listed.ImageRef = digestOf(c.ImageID)
			case nameIsID:
				listed.Image.Image = c.ImageID
			}
			resp.Containers = append(resp.Containers, listed)
		}
	}
	return resp, err
}

func (s *server) container(ctx context.Context, id string) (runtime.Container, error) {
	pods, err := s.fake.Pods(ctx)
	if err != nil {
		return runtime.Container{}, err
	}
	for _, p := range pods {
		for _, c := range p.Containers {
			if c.ID == id {
				return c, nil
			}
		}
	}
	return runtime.Container{}, status.Errorf(codes.NotFound, "an error occurred when try to find container %q: not found", id)
}

func (s *server) ContainerStatus(ctx context.Context, req *criapi.ContainerStatusRequest) (*criapi.ContainerStatusResponse, error) {
	c, err := s.container(ctx, req.GetContainerId())
	if err != nil {
		return nil, err
	}
	st := &criapi.ContainerStatus{Id: c.ID, State: criState(c.State), CreatedAt: c.CreatedAt.UnixNano(), ExitCode: c.ExitCode}
	if !c.FinishedAt.IsZero() {
		st.FinishedAt = c.FinishedAt.UnixNano()
	}
	return &criapi.ContainerStatusResponse{Status: st}, nil
}

func (s *server) StopContainer(ctx context.Context, req *criapi.StopContainerRequest) (*criapi.StopContainerResponse, error) {
	c, err := s.container(ctx, req.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &criapi.StopContainerResponse{}, s.fake.StopContainer(ctx, c, time.Duration(req.GetTimeout())*time.Second)
}

func (s *server) RemoveContainer(ctx context.Context, req *criapi.RemoveContainerRequest) (*criapi.RemoveContainerResponse, error) {
	c, err := s.container(ctx, req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := s.fake.StopContainer(ctx, c, 0); err != nil {
		return nil, err
	}
	return &criapi.RemoveContainerResponse{}, s.fake.RemoveContainer(ctx, c)
}

func (s *server) sandbox(ctx context.Context, id string) (runtime.Pod, error) {
	pods, err := s.fake.Pods(ctx)
	if err != nil {
		return runtime.Pod{}, err
	}
	for _, p := range pods {
		if p.ID == id {
			return p, nil
		}
	}
	return runtime.Pod{}, status.Errorf(codes.NotFound, "an error occurred when try to find sandbox %q: not found", id)
}

func (s *server) PodSandboxStatus(ctx context.Context, req *criapi.PodSandboxStatusRequest) (*criapi.PodSandboxStatusResponse, error) {
	p, err := s.sandbox(ctx, req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	state := criapi.PodSandboxState_SANDBOX_NOTREADY
	if p.Ready {
		state = criapi.PodSandboxState_SANDBOX_READY
	}
	resp := &criapi.PodSandboxStatusResponse{Status: &criapi.PodSandboxStatus{Id: p.ID, State: state}}
	if req.GetVerbose() {
		resp.Info = map[string]string{"info": s.sandboxInfo}
	}
	return resp, nil
}

func (s *server) StopPodSandbox(ctx context.Context, req *criapi.StopPodSandboxRequest) (*criapi.StopPodSandboxResponse, error) {
	p, err := s.sandbox(ctx, req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	return &criapi.StopPodSandboxResponse{}, s.fake.StopPod(ctx, p)
}

// RemovePodSandbox removes everything in the sandbox, as CRI specifies.
func (s *server) RemovePodSandbox(ctx context.Context, req *criapi.RemovePodSandboxRequest) (*criapi.RemovePodSandboxResponse, error) {
	p, err := s.sandbox(ctx, req.GetPodSandboxId())
	if status.Code(err) == codes.NotFound {
		return &criapi.RemovePodSandboxResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	s.fake.TakePod(p.ID)
	return &criapi.RemovePodSandboxResponse{}, nil
}

func (s *server) ListImages(ctx context.Context, _ *criapi.ListImagesRequest) (*criapi.ListImagesResponse, error) {
	images, err := s.fake.Images(ctx)
	resp := &criapi.ListImagesResponse{}
	for _, i := range images {
		resp.Images = append(resp.Images, &criapi.Image{Id: i.ID, RepoTags: i.Tags, RepoDigests: i.Digests, Size: i.SizeBytes, Pinned: i.Pinned})
	}
	return resp, err
}

func (s *server) ImageStatus(ctx context.Context, req *criapi.ImageStatusRequest) (*criapi.ImageStatusResponse, error) {
	images, err := s.fake.Images(ctx)
	for _, i := range images {
		if ref := req.GetImage().GetImage(); ref == i.ID || ref == digestOf(i.ID) {
			resp := &criapi.ImageStatusResponse{Image: &criapi.Image{Id: i.ID, Size: i.SizeBytes}}
			if req.GetVerbose() {
				resp.Info = map[string]string{"info": imageInfo(i.Labels)}
			}
			return resp, nil
		}
	}
	return &criapi.ImageStatusResponse{}, err
}

func (s *server) RemoveImage(ctx context.Context, req *criapi.RemoveImageRequest) (*criapi.RemoveImageResponse, error) {
	return &criapi.RemoveImageResponse{}, s.fake.RemoveImage(ctx, runtime.Image{ID: req.GetImage().GetImage()})
}

func (s *server) ImageFsInfo(ctx context.Context, _ *criapi.ImageFsInfoRequest) (*criapi.ImageFsInfoResponse, error) {
	list, err := s.fake.ImageFilesystems(ctx)
	resp := &criapi.ImageFsInfoResponse{}
	for _, f := range list {
		resp.ImageFilesystems = append(resp.ImageFilesystems, &criapi.FilesystemUsage{FsId: &criapi.FilesystemIdentifier{Mountpoint: f.Path}})
	}
	return resp, err
}
