//go:build integration

package collect_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/test/lab"
)

// Images that differ in their configuration alone hold one layer: removing them frees nothing
// while a container runs from one of them, and all of it once the last is gone.
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
