package runtimetest

import (
	"context"
	"slices"
	"time"

	"hostler.io/hostler/runtime"
)

// These cases test what decides whether and in which order images may be removed: pins, and images
// based on others.

func testPinned(b *bench) {
	if b.bare() {
		return // the runtime has no images
	}
	const loose, pinned = "localhost/hostler/loose:1", "localhost/hostler/pinned:1"
	b.driver.AddImage(b, loose)
	if b.driver.Abilities().Pins {
		b.driver.AddPinnedImage(b, pinned)
		for what, list := range map[string]func(string) (runtime.Image, bool){"Images": b.image, "DetailedImages": b.detailed} {
			b.eventually(what+"() has the image pinned", func() bool { img, ok := list(pinned); return ok && img.Pinned })
		}
	}
	info, err := b.Info(b.ctx)
	if err != nil {
		b.Fatalf("Info() = %v", err)
	}
	images, err := b.Images(b.ctx)
	if err != nil {
		b.Fatalf("Images() = %v", err)
	}
	for _, img := range images {
		if img.Pinned && !slices.Contains(img.Tags, pinned) && !slices.Contains(img.Tags, info.SandboxImage) {
			b.Errorf("Images() has %v pinned, want that of nothing but what the runtime keeps", img.Names())
		}
	}
	if _, ok := b.image(loose); !ok {
		b.Errorf("Images() lacks %s", loose)
	}
}

func testUse(b *bench) {
	before := time.Now().Add(-time.Second)
	b.run(EndsOnTERM)
	first := b.container()
	if b.bare() {
		if first.ImageID != "" {
			b.Errorf("Pods() = container of image ID %q, want none", first.ImageID)
		}
		return
	}
	img, ok := b.image(testImage)
	if !ok {
		b.Fatalf("Images() lacks %s", testImage)
	}
	used := func(when string) runtime.Container {
		b.Helper()
		c := b.container()
		if c.ImageID != img.ID || !c.CreatedAt.Equal(first.CreatedAt) || c.CreatedAt.Before(before) {
			b.Errorf("Pods() = container of image ID %q, created at %v, %s; want %q, at %v", c.ImageID, c.CreatedAt, when, img.ID, first.CreatedAt)
		}
		return c
	}
	used("while it runs")
	b.stop(0)
	if c := used("once it is dead"); c.FinishedAt.Before(c.CreatedAt) || c.FinishedAt.After(time.Now().Add(time.Second)) {
		b.Errorf("Pods() = container created at %v and finished at %v, want it in that order, just now", c.CreatedAt, c.FinishedAt)
	}
	b.driver.AddImage(b, testImage)
	b.eventually("the name leads to another image", func() bool { moved, ok := b.image(testImage); return ok && moved.ID != img.ID })
	used("once its image has lost its name")
}

func testUnstarted(b *bench) {
	before := time.Now().Add(-time.Second)
	b.run(NeverStarted)
	img, ok := b.image(testImage)
	if !ok && !b.bare() {
		b.Fatalf("Images() lacks %s", testImage)
	}
	c := b.container()
	if c.State != runtime.Created || !c.FinishedAt.IsZero() || c.CreatedAt.Before(before) || c.CreatedAt.After(time.Now().Add(time.Second)) {
		b.Errorf("Pods() = container that is %v, created at %v, finished at %v, want it %v just now, and never finished", c.State, c.CreatedAt, c.FinishedAt, runtime.Created)
	}
	if c.ImageID != img.ID {
		b.Errorf("Pods() = container of image ID %q, want %q", c.ImageID, img.ID)
	}
}

func testMaking(b *bench) {
	if b.bare() {
		return // the container has no image
	}
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	l := b.primed(ctx)
	c := b.run(EndsOnTERM).Containers[0]
	img, ok := b.image(testImage)
	if !ok {
		b.Fatalf("Images() lacks %s", testImage)
	}
	made := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return slices.ContainsFunc(l.events, func(e runtime.Event) bool {
			return e.Type == runtime.ContainerCreated && e.ContainerID == c.ID && (e.Image == img.ID || slices.Contains(img.Tags, e.Image))
		})
	}
	if b.driver.Abilities().ReportsCreation {
		b.eventually("event for the creation of "+c.ID+" from "+testImage, made)
		return
	}
	b.eventually("event for the start of "+c.ID, func() bool { return l.has(runtime.ContainerStarted, c.ID) })
	if made() {
		b.Errorf("Watch() reports the creation of %s, want it unable to", c.ID)
	}
}
