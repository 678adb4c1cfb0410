package docker_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The author of an image chooses the text and the size of its configuration.
func TestTheConfigurationOfAnImageHidesNoOther(t *testing.T) {
	root := t.TempDir()
	var images []any
	for id, config := range map[string]string{
		"plain": `{"rootfs":{"diff_ids":["sha256:plain"]}}`,
		"large": `{"rootfs":{"diff_ids":["sha256:large"]}}` + strings.Repeat(" ", 8<<20),
		"none":  "?",
	} {
		for path, text := range map[string]string{"imagedb/content/sha256/" + id: config, "layerdb/sha256/" + id + "/size": "7"} {
			path = filepath.Join(root, "image/overlay2", path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		images = append(images, object{"Id": "sha256:" + id})
	}
	s := newServer(t, "1.45", object{"/images/json": images, "/info": object{"DockerRootDir": root, "Driver": "overlay2"}})
	layers, err := s.client(t).Layers(t.Context())
	if err != nil || len(layers) != 1 || len(layers[0].Images) != 1 || layers[0].Images[0] != "sha256:plain" || layers[0].Bytes != 7 {
		t.Errorf("Layers() = %+v, %v, want that of the plain image", layers, err)
	}
}
