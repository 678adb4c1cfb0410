package local_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/runtime/local"
)

func TestStorageLayers(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"overlay-layers/layers.json":              `[{"id":"base","diff-size":40},{"id":"top","parent":"base","diff-size":2},{"id":"built","parent":"base","diff-size":7},{"id":"rw","parent":"top"}]`,
		"overlay-layers/volatile-layers.json":     `[{"id":"brief","parent":"base"}]`,
		"overlay-images/images.json":              `[{"id":"one","layer":"top"},{"id":"two","layer":"base"}]`,
		"overlay-containers/containers.json":      `[{"id":"dead","layer":"rw"}]`,
		"overlay-containers/volatile-others.json": `nonsense`,
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	layers, err := local.StorageLayers("podman", root, "overlay")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range layers {
		slices.Sort(l.Images)
		slices.Sort(l.Users)
		got = append(got, l.Runtime+" "+strings.Join(l.Images, ",")+" | "+strings.Join(l.Users, ","))
	}
	slices.Sort(got)
	want := []string{"podman one | dead", "podman one,two | dead,layer brief,layer built"}
	if !slices.Equal(got, want) {
		t.Errorf("StorageLayers() = %q, want %q", got, want)
	}
	if layers, err := local.StorageLayers("podman", t.TempDir(), "overlay"); err != nil || len(layers) != 0 {
		t.Errorf("StorageLayers() of an empty store = %v, %v, want none", layers, err)
	}
	if err := os.WriteFile(filepath.Join(root, "overlay-images/images.json"), []byte("["), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := local.StorageLayers("podman", root, "overlay"); err == nil {
		t.Error("StorageLayers() of a damaged store = nil, want an error")
	}
}

// A damaged store may name a layer as its own parent.
func TestLayerTreeSurvivesACycle(t *testing.T) {
	tree := local.NewLayerTree()
	tree.Add("a", "b", 1, 1)
	tree.Add("b", "a", 1, 1)
	tree.HoldByImage("a", "img")
	if layers := tree.List("x"); len(layers) != 2 {
		t.Errorf("List() = %v, want both layers", layers)
	}
}
