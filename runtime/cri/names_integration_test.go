//go:build integration

package cri_test

import (
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/services/snapshots/v1"
	"google.golang.org/protobuf/types/known/anypb"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/test/lab"
)

// named gives an image another name in containerd, like `ctr images tag`, and waits until CRI lists
// it.
func named(t *testing.T, d labDriver, image, name string, labels map[string]string) {
	t.Helper()
	store := images.NewImagesClient(services(t, d))
	here, err := store.Get(in(t.Context(), "k8s.io"), &images.GetImageRequest{Name: image})
	if err != nil {
		t.Fatal(err)
	}
	record := &images.Image{Name: name, Target: here.GetImage().GetTarget(), Labels: labels}
	if _, err := store.Create(in(t.Context(), "k8s.io"), &images.CreateImageRequest{Image: record}); err != nil {
		t.Fatal(err)
	}
	await(t, "CRI lists "+name, func() bool {
		status, err := d.Images.ImageStatus(t.Context(), &criapi.ImageStatusRequest{Image: &criapi.ImageSpec{Image: image}})
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(status.GetImage().GetRepoTags(), func(tag string) bool { return strings.HasSuffix(tag, "/"+name) })
	})
}

// await waits until here returns true.
func await(t *testing.T, what string, here func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !here(); goruntime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in %s", what, patience)
		}
	}
}

// CRI lists names of containerd in full, and cannot find names that are not in full.
func TestAnImageNamedWithoutARegistryIsOneImage(t *testing.T) {
	for _, single := range []bool{true, false} { // whether that is the only name
		r, d := startContainerd(t, lab.ContainerdOptions{})
		if _, err := d.Pull(t.Context(), lab.ImageSpec{Names: []string{"docker.io/library/app-0:1"}}); err != nil {
			t.Fatal(err)
		}
		named(t, d, "docker.io/library/app-0:1", "myapp:1", map[string]string{runtime.LabelKeep: "true"})
		store := images.NewImagesClient(services(t, d))
		find := func(tag string) (runtime.Image, bool) {
			for _, img := range detailed(t, r) {
				if slices.Contains(img.Tags, tag) {
					return img, true
				}
			}
			return runtime.Image{}, false
		}
		if single {
			if _, err := store.Delete(in(t.Context(), "k8s.io"), &images.DeleteImageRequest{Name: "docker.io/library/app-0:1"}); err != nil {
				t.Fatal(err)
			}
			await(t, "CRI takes in that a name is gone", func() bool { _, there := find("docker.io/library/app-0:1"); return !there })
		}
		img, found := find("docker.io/library/myapp:1")
		if !found || img.Labels[runtime.LabelKeep] != "true" {
			t.Fatalf("DetailedImages() has the image as %+v, want the label of its record", img)
		}
		if err := r.RemoveImage(t.Context(), img); err != nil {
			t.Fatalf("RemoveImage() = %v", err)
		}
		left, err := store.List(in(t.Context(), "k8s.io"), &images.ListImagesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if list := detailed(t, r); len(list) > 0 || len(left.GetImages()) > 0 {
			t.Errorf("RemoveImage() left %v in CRI and %v in containerd, want neither (one name: %v)", list, left.GetImages(), single)
		}
	}
}

// A container that is unknown to CRI uses the image on which its snapshot is based, whatever image
// the name refers to now.
func TestContainerdReportsWhoUsesAnImageWhoseNameHasMoved(t *testing.T) {
	r, d := startContainerd(t, lab.ContainerdOptions{})
	layer, err := lab.RandomLayer(1 << 10) // else both images would be one snapshot
	if err != nil {
		t.Fatal(err)
	}
	d.AddImage(t, "docker.io/library/app:1")
	old := detailed(t, r)["docker.io/library/app:1"].ID
	conn := services(t, d)
	config, err := content.NewContentClient(conn).Info(in(t.Context(), "k8s.io"), &content.InfoRequest{Digest: old})
	if err != nil {
		t.Fatal(err)
	}
	_, err = snapshots.NewSnapshotsClient(conn).Prepare(in(t.Context(), "k8s.io"), &snapshots.PrepareSnapshotRequest{
		Snapshotter: d.Snapshotter, Key: "mine", Parent: config.GetInfo().GetLabels()["containerd.io/gc.ref.snapshot."+d.Snapshotter],
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = containers.NewContainersClient(conn).Create(in(t.Context(), "k8s.io"), &containers.CreateContainerRequest{Container: &containers.Container{
		ID: "mine", Image: "docker.io/library/app:1", Snapshotter: d.Snapshotter, SnapshotKey: "mine", Spec: &anypb.Any{TypeUrl: "spec", Value: []byte("{}")},
		Runtime: &containers.Container_Runtime{Name: "io.containerd.runc.v2"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Pull(t.Context(), lab.ImageSpec{Names: []string{"docker.io/library/app:1"}, Layers: []lab.Layer{layer}}); err != nil {
		t.Fatal(err)
	}
	users, err := r.OtherImageUsers(t.Context())
	if err != nil || len(users) != 1 || users[0].Image != old || !strings.Contains(users[0].By, "container mine") {
		t.Errorf("OtherImageUsers() = %+v, %v, want container mine on the old image %s", users, err, old)
	}
}
