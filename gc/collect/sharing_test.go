package collect_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

// part is one of several runtimes with images on the same filesystem.
type part struct {
	*runtimetest.Fake
	name string
	mine func(id string) bool
}

func (p part) Name() string { return p.name }

func (p part) Images(ctx context.Context) ([]runtime.Image, error) {
	images, err := p.Fake.Images(ctx)
	images = slices.DeleteFunc(images, func(img runtime.Image) bool { return !p.mine(img.ID) })
	for i := range images {
		images[i].Runtime = p.name
	}
	return images, err
}

func (p part) ImageFilesystems(ctx context.Context) ([]runtime.Filesystem, error) {
	filesystems, err := p.Fake.ImageFilesystems(ctx)
	for i := range filesystems {
		filesystems[i].Runtime = p.name
	}
	return filesystems, err
}

// If old images of one runtime are removed, that space need not be freed from another runtime.
func TestFreedSpaceCountsForAllRuntimesOnAFilesystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		old := part{h.fake, "one", func(id string) bool { return id == "sha256:old" }}
		young := part{h.fake, "other", func(id string) bool { return id != "sha256:old" }}
		h.survey.Runtimes = func() []survey.Runtime { return []survey.Runtime{old, young} }
		for _, name := range []string{"old", "young"} { // they use twice the size that the runtime reports
			h.fake.AddImage(runtimetest.ImageSpec{
				ID: "sha256:" + name, Tags: []string{"q.io/" + name + ":1"}, Digests: []string{"q.io/" + name + "@sha256:" + name},
				ReportedBytes: 50 * mib, Layers: []runtimetest.Layer{{ID: name, Bytes: 100 * mib}},
			})
			for _, p := range []part{old, young} {
				images, err := p.Images(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				h.tracker.Observe(p.name, nil, images)
			}
			time.Sleep(24 * time.Hour)
		}
		h.fill(90)
		r := h.collect(h.images(func(p *gc.ImagePolicy) { p.MaximumAge = 40 * time.Hour }), gc.Options{})
		if got, want := removed(r), []string{"old max-age"}; !slices.Equal(got, want) || r.Ended != "low threshold reached" {
			t.Errorf("Collect() removed %v, ended %q, want %v and no other for the room that it made", got, r.Ended, want)
		}
	})
}
