//go:build integration

package collect_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/namespaces/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/test/lab"
)

// Images that differ only in their configuration share one layer. Removing them frees nothing while
// a container uses one of them, and everything after the last one is removed.
func TestARealStoreKeepsImagesThatShareALayerInUse(t *testing.T) {
	s := newRealStore(t, lab.ContainerdOptions{ImageFSBytes: 200 << 20})
	layer, err := lab.RandomLayer(40 << 20)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 11 {
		name := fmt.Sprintf("docker.io/library/app-%d:1", i)
		if _, err := s.Pull(t.Context(), lab.ImageSpec{Names: []string{name}, Layers: []lab.Layer{layer}, Labels: map[string]string{"n": fmt.Sprint(i)}}); err != nil {
			t.Fatal(err)
		}
		s.observe(t)
	}
	pod, err := s.RunPod(t.Context(), lab.PodSpec{Name: "user", Containers: []lab.ContainerSpec{{Name: "main", Image: "docker.io/library/app-10:1", Command: lab.ServeFor(0)}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Root, "data"), make([]byte, 75<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	s.observe(t)
	r, err := s.images.Collect(t.Context(), gc.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Removed) != 0 || r.Kept[gc.FreesNothing] != 10 || len(r.Warnings) != 1 {
		t.Errorf("Collect() removed %d images, freed %d bytes, kept %v, warnings %q, errors %q; want none of ten removed, and why",
			len(r.Removed), r.FreedBytes, r.Kept, r.Warnings, r.Errors)
	}

	if err := s.RemovePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	r, err = s.images.Collect(t.Context(), gc.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Removed) != 11 || r.FreedBytes < 70<<20 || r.Ended != "low threshold reached" || !near(r.FreedBytes, r.EstimatedBytes, 4<<20) {
		t.Errorf("Collect() without the pod removed %d images, freed %d of %d bytes and ended because %q, want all, which free the layer", len(r.Removed), r.FreedBytes, r.EstimatedBytes, r.Ended)
	}
}

// The owners of the used space are named: a container, and another namespace.
func TestARealStoreNamesTheOwnersOfSpace(t *testing.T) {
	s := newRealStore(t, lab.ContainerdOptions{ImageFSBytes: 200 << 20})
	if _, err := s.Pull(t.Context(), lab.ImageSpec{Names: []string{"docker.io/library/app:1"}}); err != nil {
		t.Fatal(err)
	}
	_, err := s.RunPod(t.Context(), lab.PodSpec{Namespace: "shop", Name: "cache", Containers: []lab.ContainerSpec{{
		Name: "main", Image: "docker.io/library/app:1", Ready: "ready",
		Command: []string{"sh", "-c", "dd if=/bin/busybox of=/one; i=0; while [ $i -lt 30 ]; do cat /one /one; i=$((i+1)); done > /data; echo ready; while :; do sleep 1; done"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(s.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "containerd-namespace", "other")
	if _, err := namespaces.NewNamespacesClient(conn).Create(ctx, &namespaces.CreateNamespaceRequest{Namespace: &namespaces.Namespace{Name: "other"}}); err != nil {
		t.Fatal(err)
	}
	stream, err := content.NewContentClient(conn).Write(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const chunk = 1 << 20
	for i := range int64(40) {
		action := content.WriteAction_WRITE
		if i == 39 {
			action = content.WriteAction_COMMIT
		}
		err := stream.Send(&content.WriteContentRequest{
			Action: action, Ref: "blob", Offset: i * chunk, Total: 40 * chunk, Data: make([]byte, chunk), Labels: map[string]string{"containerd.io/gc.root": "yes"},
		})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.fillBytes(t, 90)
	r, err := s.images.Collect(t.Context(), gc.Options{}, nil)
	if err != nil || len(r.Warnings) != 1 {
		t.Fatalf("Collect() warnings = %q, errors %q, %v, want one warning", r.Warnings, r.Errors, err)
	}
	for _, want := range []string{"written by container shop/cache/main", "images in containerd's namespace other (40.0 MiB)", s.Root + "/leftover ("} {
		if !strings.Contains(r.Warnings[0], want) {
			t.Errorf("Collect() warning = %q, want %q in it", r.Warnings[0], want)
		}
	}
}
