//go:build integration

package collect_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/collect"
	"hostler.io/hostler/gc/lastused"
	disk "hostler.io/hostler/gc/meter"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/test/lab"
)

const (
	realImages = 24
	ownBytes   = 2 << 20 // of each image; containerd keeps it packed and unpacked
	baseBytes  = 6 << 20 // two layers that all images share
)

// realStore is a containerd on its own filesystem, with a collector.
type realStore struct {
	*lab.Containerd
	tracker *lastused.Tracker
	runtime *cri.Runtime
	images  *collect.Images
	log     *logBuffer
	names   []string // names of images, in the order of their pulls
}

func newRealStore(t *testing.T, o lab.ContainerdOptions) *realStore {
	t.Helper()
	s := &realStore{Containerd: lab.ContainerdFor(t, o), log: &logBuffer{}}
	var err error
	if s.runtime, err = cri.New(cri.Options{Endpoint: s.Endpoint, Name: "containerd", Timeouts: local.Timeouts{Query: 5 * time.Minute}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.runtime.Close() })
	log := slog.New(slog.NewTextHandler(s.log, nil))
	s.tracker, err = lastused.New(lastused.Options{
		Store: store{}, Runtimes: func() []lastused.Runtime { return []lastused.Runtime{s.runtime} }, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	policy := gc.DefaultPolicy().Images
	policy.MinimumAge = 0
	if policy.Keep, err = gc.ParsePatterns([]string{"docker.io/library/image-2:1"}); err != nil {
		t.Fatal(err)
	}
	s.images, err = collect.NewImages(policy, collect.First{}, runs.Options{
		Survey: &survey.Survey{
			Runtimes: func() []survey.Runtime { return []survey.Runtime{s.runtime} }, Meter: &disk.Statfs{}, Uses: s.tracker,
		},
		Interval: time.Hour, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stock pulls images that share two base layers, and have files of their own. A running container
// uses the first image, a dead one the second.
func (s *realStore) stock(t *testing.T, files int) {
	t.Helper()
	layer := func(l lab.Layer, err error) lab.Layer {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	bases := []lab.Layer{layer(lab.RandomLayer(baseBytes)), layer(lab.RandomLayer(baseBytes))}
	for i := range realImages {
		layers := []lab.Layer{bases[i%2], layer(lab.RandomLayer(ownBytes))}
		if files > 0 {
			layers = append(layers, layer(lab.FilesLayer(files)))
		}
		name := fmt.Sprintf("docker.io/library/image-%d:1", i)
		if _, err := s.Pull(t.Context(), lab.ImageSpec{Names: []string{name}, Layers: layers}); err != nil {
			t.Fatal(err)
		}
		s.names = append(s.names, name)
		s.observe(t)
	}
	for i, command := range [][]string{lab.ServeFor(0), lab.ExitWith(0)} {
		_, err := s.RunPod(t.Context(), lab.PodSpec{Name: fmt.Sprint("user-", i), Containers: []lab.ContainerSpec{{Name: "main", Image: s.names[i], Command: command}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.observe(t)
}

func (s *realStore) observe(t *testing.T) {
	t.Helper()
	images, err := s.runtime.Images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pods, err := s.runtime.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.tracker.Observe("containerd", pods, images)
}

// left returns the names of the remaining images.
func (s *realStore) left(t *testing.T) []string {
	t.Helper()
	images, err := s.runtime.Images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, img := range images {
		names = append(names, img.Tags...)
	}
	return names
}

// statfs calls statfs(2) after pending work of the filesystem.
func (s *realStore) statfs(t *testing.T) (st unix.Statfs_t) {
	t.Helper()
	dir, err := os.Open(s.Root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		t.Fatal(err)
	}
	if err := unix.Statfs(s.Root, &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// fillBytes writes other data until this percentage is used.
func (s *realStore) fillBytes(t *testing.T, percent uint64) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(s.Root, "leftover"), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(s.Root, "leftover", "dump"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	chunk := make([]byte, 1<<20)
	for range 1000 {
		if st := s.statfs(t); (st.Blocks-st.Bavail)*100 >= st.Blocks*percent {
			return
		}
		if _, err := f.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("the filesystem does not become %d%% full", percent)
}

// fillInodes creates empty files until this percentage of inodes is used.
func (s *realStore) fillInodes(t *testing.T, percent uint64) {
	t.Helper()
	dir := filepath.Join(s.Root, "leftover")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 100_000 {
		if i%50 == 0 {
			var st unix.Statfs_t
			if err := unix.Statfs(s.Root, &st); err != nil {
				t.Fatal(err)
			}
			if (st.Files-st.Ffree)*100 >= st.Files*percent {
				return
			}
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("the filesystem does not become %d%% full of inodes", percent)
}

func TestRealFilesystemsComeDownToTheLowThreshold(t *testing.T) {
	tests := []struct {
		name    string
		options lab.ContainerdOptions
		inodes  bool
	}{
		{"ext4, bytes", lab.ContainerdOptions{ImageFSBytes: 256 << 20}, false},
		{"tmpfs, inodes", lab.ContainerdOptions{ImageFSBytes: 256 << 20, ImageFSInodes: 12_000, ImageFSTmpfs: true}, true},
		{"ext4, inodes", lab.ContainerdOptions{ImageFSBytes: 256 << 20, ImageFSInodes: 12_000}, true},
		{"xfs, bytes", lab.ContainerdOptions{ImageFSBytes: 384 << 20, ImageFSKind: "xfs"}, false},
		{"btrfs, bytes", lab.ContainerdOptions{ImageFSBytes: 384 << 20, ImageFSKind: "btrfs"}, false},
		{"tmpfs, bytes", lab.ContainerdOptions{ImageFSBytes: 256 << 20, ImageFSTmpfs: true}, false},
	}
	if !lab.Long() {
		tests = tests[:2]
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newRealStore(t, tt.options)
			low := 80
			if tt.inodes {
				low = 85
				s.stock(t, 200)
				s.fillInodes(t, 92)
			} else {
				s.stock(t, 0)
				s.fillBytes(t, 90)
			}
			before := s.statfs(t)
			r, err := s.images.Collect(t.Context(), gc.Options{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			after := s.statfs(t)
			t.Logf("removed %d images in %s: asked %d bytes, %d inodes; estimated %d, %d; freed %d, %d", len(r.Removed), r.Duration.Duration,
				r.RequestedBytes, r.RequestedInodes, r.EstimatedBytes, r.EstimatedInodes, r.FreedBytes, r.FreedInodes)

			if r.Ended != "low threshold reached" || len(r.Removed) == 0 || len(r.Errors) != 0 {
				t.Fatalf("Collect() removed %d images and ended because %q, errors %q, warnings %q, want the low threshold reached", len(r.Removed), r.Ended, r.Errors, r.Warnings)
			}
			total, free, most := after.Blocks, after.Bavail, (2*baseBytes+2*ownBytes+(8<<20))/uint64(after.Frsize)
			if tt.inodes {
				total, free, most = after.Files, after.Ffree, 400
			}
			need := total * uint64(100-low) / 100
			if free < need || free > need+most {
				t.Errorf("%d of %d are free, want %d, and no more beyond than one image holds: %d", free, total, need, most)
			}
			if freed := (after.Bavail - before.Bavail) * uint64(after.Frsize); !near(freed, r.FreedBytes, 1<<20) {
				t.Errorf("Collect() reports %d bytes freed, the kernel says %d", r.FreedBytes, freed)
			}
			left := s.left(t)
			for _, name := range []string{s.names[0], s.names[1], s.names[2], s.SandboxImage, s.names[realImages-1]} {
				if !slices.Contains(left, name) {
					t.Errorf("%s is gone, want what is in use, kept or youngest to stay; left are %v", name, left)
				}
			}
			for i, removal := range r.Removed { // after the three that are kept, in order
				if want := s.names[3+i]; !slices.Contains(removal.Names, want) {
					t.Errorf("removal %d is of %v, want %s, the oldest left", i, removal.Names, want)
				}
			}
		})
	}
}

func TestARealStoreNamesWhatFillsIt(t *testing.T) {
	s := newRealStore(t, lab.ContainerdOptions{ImageFSBytes: 384 << 20})
	s.stock(t, 0)
	if _, err := s.images.Collect(t.Context(), gc.Options{AllUnused: true}, nil); err != nil {
		t.Fatal(err)
	}
	s.fillBytes(t, 92)
	r, err := s.images.Collect(t.Context(), gc.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Warnings) != 1 || r.FreedBytes != 0 {
		t.Fatalf("Collect() freed %d bytes with warnings %q, want none and one", r.FreedBytes, r.Warnings)
	}
	for _, part := range []string{s.Root + "/leftover (", "default/user-0/main (Running)", "default/user-1/main (Exited)", "2 protected, ", "(pattern docker.io/library/image-2:1", "2 in-use"} {
		if !strings.Contains(r.Warnings[0], part) {
			t.Errorf("Collect() warning = %q, want %q in it", r.Warnings[0], part)
		}
	}
	if len(r.Folders) == 0 || r.Folders[0].Path != s.Root+"/leftover" || r.Folders[0].SizeBytes < 100<<20 {
		t.Errorf("Collect() folders = %+v, want the leftover first", r.Folders)
	}
}

func near(a, b, slack uint64) bool { return a <= b+slack && b <= a+slack }
