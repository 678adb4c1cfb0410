//go:build integration

package cri_test

import (
	"slices"
	"testing"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/services/namespaces/v1"

	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/test/lab"
)

func TestContainerdsLayersAreKnown(t *testing.T) {
	r, d := startContainerd(t, lab.ContainerdOptions{})
	layer := func(bytes int64) lab.Layer {
		t.Helper()
		l, err := lab.RandomLayer(bytes)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	shared := layer(4 << 20)
	first, err := d.Pull(t.Context(), lab.ImageSpec{Names: []string{"docker.io/library/first:1"}, Layers: []lab.Layer{shared, layer(2 << 20)}})
	if err != nil {
		t.Fatal(err)
	}
	second, err := d.Pull(t.Context(), lab.ImageSpec{Names: []string{"docker.io/library/second:1"}, Layers: []lab.Layer{shared}})
	if err != nil {
		t.Fatal(err)
	}
	pod, err := d.Containerd.RunPod(t.Context(), lab.PodSpec{Name: "p", Containers: []lab.ContainerSpec{{Name: "dead", Image: "docker.io/library/first:1", Command: lab.ExitWith(0)}}})
	if err != nil {
		t.Fatal(err)
	}
	container := pod.Containers["dead"]
	runtimetest.CheckLayers(t, r, first, second, container)
	runtimetest.CheckOwnedSpace(t, r, container)

	// Another namespace with the image keeps its blobs, but not its snapshots.
	conn := services(t, d)
	here, err := images.NewImagesClient(conn).Get(in(t.Context(), "k8s.io"), &images.GetImageRequest{Name: "docker.io/library/second:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := namespaces.NewNamespacesClient(conn).Create(in(t.Context(), "other"), &namespaces.CreateNamespaceRequest{Namespace: &namespaces.Namespace{Name: "other"}}); err != nil {
		t.Fatal(err)
	}
	digest := here.GetImage().GetTarget().GetDigest()
	blob, err := content.NewContentClient(conn).Read(in(t.Context(), "k8s.io"), &content.ReadContentRequest{Digest: digest})
	if err != nil {
		t.Fatal(err)
	}
	read, err := blob.Recv()
	if err != nil {
		t.Fatal(err)
	}
	stream, err := content.NewContentClient(conn).Write(in(t.Context(), "other"))
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&content.WriteContentRequest{
		Action: content.WriteAction_COMMIT, Ref: "share", Expected: digest, Data: read.GetData(), Total: int64(len(read.GetData())),
		Labels: map[string]string{"containerd.io/gc.root": "yes"},
	})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	layers, err := r.Layers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, l := range layers {
		found = found || slices.Contains(l.Images, second) && slices.Contains(l.Users, "containerd's namespace other")
	}
	if !found {
		t.Errorf("Layers() = %+v, want a blob of %s that another namespace has", layers, second)
	}
}
