//go:build integration

package cri_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/services/leases/v1"
	"github.com/containerd/containerd/api/services/namespaces/v1"
	"github.com/containerd/containerd/api/services/snapshots/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/test/lab"
)

// services connects to containerd's own services, like clients other than CRI.
func services(t *testing.T, d labDriver) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(d.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func in(ctx context.Context, namespace string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
}

func TestContainerdReportsTimesAndLabelsOfImages(t *testing.T) {
	r, d := startContainerd(t, lab.ContainerdOptions{})
	begin := time.Now()
	for name, labels := range map[string]map[string]string{
		"docker.io/library/built-to-stay:1": {runtime.LabelKeep: "true", "maintainer": "me"},
		"docker.io/library/told-to-stay:1":  nil,
		"docker.io/library/told-oddly:1":    nil,
		"docker.io/library/plain:1":         nil,
	} {
		if _, err := d.Pull(t.Context(), lab.ImageSpec{Names: []string{name}, Labels: labels}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Import(t.Context(), lab.ImageSpec{Names: []string{"docker.io/library/imported:1"}}); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"docker.io/library/told-to-stay:1": "true", "docker.io/library/told-oddly:1": "yes"} {
		_, err := images.NewImagesClient(services(t, d)).Update(in(t.Context(), "k8s.io"), &images.UpdateImageRequest{
			Image:      &images.Image{Name: name, Labels: map[string]string{runtime.LabelKeep: value}},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels." + runtime.LabelKeep}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	end := time.Now()
	first := detailed(t, r)
	for name, keep := range map[string]string{
		"docker.io/library/built-to-stay:1": "true", "docker.io/library/told-to-stay:1": "true", "docker.io/library/told-oddly:1": "yes",
		"docker.io/library/plain:1": "", "docker.io/library/imported:1": "",
	} {
		img := first[name]
		if img.CreatedAt.Before(begin) || img.CreatedAt.After(end) || img.LabelsUnknown || img.Labels[runtime.LabelKeep] != keep {
			t.Errorf("DetailedImages() has %s as %+v, want it created from %s to %s, with the label %q", name, img, begin, end, keep)
		}
	}

	// A pull changes the times even if hostler was not connected; a restart of containerd does not.
	if err := d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, img := range detailed(t, r) {
		if !img.CreatedAt.Equal(first[name].CreatedAt) {
			t.Errorf("DetailedImages() after a restart has %s created at %s, want %s as before", name, img.CreatedAt, first[name].CreatedAt)
		}
	}
	again := time.Now()
	if _, err := d.Images.PullImage(t.Context(), &criapi.PullImageRequest{Image: &criapi.ImageSpec{Image: "docker.io/library/plain:1"}}); err != nil {
		t.Fatal(err)
	}
	if img := detailed(t, newAdapter(t, d))["docker.io/library/plain:1"]; img.CreatedAt.Before(again) {
		t.Errorf("DetailedImages() after another pull = %+v, want it created after %s", img, again)
	}
}

func TestContainerdReportsWhoUsesImagesInOtherNamespaces(t *testing.T) {
	r, d := startContainerd(t, lab.ContainerdOptions{})
	d.AddImage(t, "docker.io/library/a:1")
	d.AddImage(t, "docker.io/library/b:1")
	conn := services(t, d)
	store := images.NewImagesClient(conn)
	here, err := store.Get(in(t.Context(), "k8s.io"), &images.GetImageRequest{Name: "docker.io/library/a:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := namespaces.NewNamespacesClient(conn).Create(in(t.Context(), "default"), &namespaces.CreateNamespaceRequest{Namespace: &namespaces.Namespace{Name: "default"}}); err != nil {
		t.Fatal(err)
	}
	// In that namespace, the image has another name.
	if _, err := store.Create(in(t.Context(), "default"), &images.CreateImageRequest{Image: &images.Image{Name: "localhost/mine:1", Target: here.GetImage().GetTarget()}}); err != nil {
		t.Fatal(err)
	}
	if got, err := r.OtherImageUsers(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("OtherImageUsers() of an image that is nobody's yet = %+v, %v, want none", got, err)
	}
	_, err = containers.NewContainersClient(conn).Create(in(t.Context(), "default"), &containers.CreateContainerRequest{Container: &containers.Container{
		ID: "mine", Image: "localhost/mine:1", Spec: &anypb.Any{TypeUrl: "spec", Value: []byte("{}")},
		Runtime: &containers.Container_Runtime{Name: "io.containerd.runc.v2"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.OtherImageUsers(t.Context())
	want := runtime.ImageUser{Image: "docker.io/library/a:1", By: "container mine in containerd's namespace default"}
	if err != nil || !slices.Contains(got, want) {
		t.Errorf("OtherImageUsers() = %+v, %v, want %+v among them", got, err, want)
	}
	for _, user := range got {
		if strings.Contains(user.Image, "library/b") {
			t.Errorf("OtherImageUsers() = %+v, want nobody on b", got)
		}
	}
}

// gate is a registry that does not send layers until it is opened.
type gate struct {
	opened chan struct{}
	once   sync.Once
}

func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }

// gatedRegistry serves a registry through a gate: large blobs wait; small ones, which are
// configurations, do not.
func gatedRegistry(t *testing.T) (*lab.Registry, *gate) {
	t.Helper()
	behind, err := lab.StartRegistry()
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{opened: make(chan struct{})}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: behind.Address})
	proxy.ModifyResponse = func(resp *http.Response) error {
		if resp.Request.Method == http.MethodGet && strings.Contains(resp.Request.URL.Path, "/blobs/") && resp.ContentLength > 100_000 {
			select {
			case <-g.opened:
			case <-resp.Request.Context().Done():
			}
		}
		return nil
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(func() {
		g.open()
		server.Close()
		if err := behind.Close(); err != nil {
			t.Error(err)
		}
	})
	return &lab.Registry{Address: strings.TrimPrefix(server.URL, "http://")}, g
}

// A pull holds the image from its first byte, before a list shows it.
func TestContainerdReportsPullsUnderWay(t *testing.T) {
	registry, gate := gatedRegistry(t)
	r, d := startContainerd(t, lab.ContainerdOptions{Registry: registry})
	pulled := make(chan error, 1)
	var id string
	go func() {
		var err error
		id, err = d.Pull(t.Context(), lab.ImageSpec{Names: []string{"docker.io/library/a:1"}})
		pulled <- err
	}()
	var users []runtime.ImageUser
	for deadline := time.Now().Add(patience); len(users) < 2; goruntime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("OtherImageUsers() = %+v during a pull, want its manifest and its configuration", users)
		}
		var err error
		if users, err = r.OtherImageUsers(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if list := detailed(t, r); len(list) != 0 {
		t.Errorf("DetailedImages() = %v during the pull, want none yet", list)
	}
	gate.open()
	if err := <-pulled; err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(users, func(u runtime.ImageUser) bool { return u.Image == id && strings.Contains(u.By, "a pull or a build") }) {
		t.Errorf("OtherImageUsers() = %+v during the pull, want the image %s among them", users, id)
	}
	if got, err := r.OtherImageUsers(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("OtherImageUsers() = %+v, %v after the pull, want none", got, err)
	}
}

// The image of an unpack, or of a container that is being created, is found through the label of
// every unpacked image.
func TestContainerdReportsImagesOfUnpacksAndNewContainers(t *testing.T) {
	r, d := startContainerd(t, lab.ContainerdOptions{})
	d.AddImage(t, "docker.io/library/pulled:1")
	layer, err := lab.RandomLayer(1 << 10) // else both images would be one snapshot
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Import(t.Context(), lab.ImageSpec{Names: []string{"docker.io/library/imported:1"}, Layers: []lab.Layer{layer}}); err != nil {
		t.Fatal(err)
	}
	conn := services(t, d)
	id := "unpack"
	_, err = leases.NewLeasesClient(conn).Create(in(t.Context(), "k8s.io"), &leases.CreateRequest{
		ID: id, Labels: map[string]string{"containerd.io/gc.expire": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)},
	})
	if err != nil {
		t.Fatal(err)
	}
	leased := metadata.AppendToOutgoingContext(in(t.Context(), "k8s.io"), "containerd-lease", id)
	_, err = snapshots.NewSnapshotsClient(conn).Prepare(leased, &snapshots.PrepareSnapshotRequest{Snapshotter: d.Snapshotter, Key: "extract-1 sha256:f1"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.OtherImageUsers(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("OtherImageUsers() = %+v, %v where all images are unpacked, want none", got, err)
	}
	// The same for a container that is being created.
	var parent, owner string
	for _, info := range contentOf(t, conn) {
		if chain := info.GetLabels()["containerd.io/gc.ref.snapshot."+d.Snapshotter]; chain != "" {
			parent, owner = chain, info.GetDigest()
		}
	}
	_, err = snapshots.NewSnapshotsClient(conn).Prepare(leased, &snapshots.PrepareSnapshotRequest{Snapshotter: d.Snapshotter, Key: "container-1", Parent: parent})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.OtherImageUsers(t.Context()); err != nil || len(got) != 1 || got[0].Image != owner || !strings.Contains(got[0].By, "a container") {
		t.Errorf("OtherImageUsers() = %+v, %v, want the container that is made from %s", got, err, owner)
	}
	if _, err := snapshots.NewSnapshotsClient(conn).Remove(in(t.Context(), "k8s.io"), &snapshots.RemoveSnapshotRequest{Snapshotter: d.Snapshotter, Key: "container-1"}); err != nil {
		t.Fatal(err)
	}

	var config string // of the image whose label is removed
	for _, img := range detailed(t, r) {
		config = img.ID
	}
	_, err = content.NewContentClient(conn).Update(in(t.Context(), "k8s.io"), &content.UpdateRequest{
		Info:       &content.Info{Digest: config},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels.containerd.io/gc.ref.snapshot." + d.Snapshotter}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.OtherImageUsers(t.Context()); err != nil || len(got) != 1 || got[0].Image != config || !strings.Contains(got[0].By, "an unpack") {
		t.Errorf("OtherImageUsers() = %+v, %v, want the unpack of %s", got, err, config)
	}
}

// contentOf lists all content in CRI's namespace.
func contentOf(t *testing.T, conn *grpc.ClientConn) []*content.Info {
	t.Helper()
	stream, err := content.NewContentClient(conn).List(in(t.Context(), "k8s.io"), &content.ListContentRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var all []*content.Info
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, resp.GetInfo()...)
	}
}
