package runtimetest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
)

func testInfo(b *bench) {
	info, err := b.Info(b.ctx)
	if err != nil {
		b.Fatalf("Info() = %v", err)
	}
	if info.Name == "" || info.Version == "" || info.Endpoint != b.Endpoint() || !info.Ready || info.Imageless != b.bare() {
		b.Errorf("Info() = %+v, want a name, a version, endpoint %q, ready, and imageless: %t", info, b.Endpoint(), b.bare())
	}
	again, err := b.Info(b.ctx)
	if err != nil || again != info {
		b.Errorf("second Info() = %+v, %v, want %+v", again, err, info)
	}
	if s := info.SandboxImage; s != "" && (!strings.Contains(s, "/") || !strings.Contains(filepath.Base(s), ":")) {
		b.Errorf("Info().SandboxImage = %q, want a reference with registry and tag, as image lists have it", s)
	}
}

func testFilesystems(b *bench) {
	list, err := b.ImageFilesystems(b.ctx)
	if b.bare() && err == nil && len(list) == 0 {
		return
	}
	if err != nil || len(list) == 0 {
		b.Fatalf("ImageFilesystems() = %v, %v, want at least one", list, err)
	}
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range list {
		if f.Runtime != b.Name() || f.Device == "" {
			b.Errorf("ImageFilesystems() = %+v, want runtime %q and a device", f, b.Name())
		}
		real, err := filepath.EvalSymlinks(f.Path)
		if err == nil && real != f.Path || err != nil && !os.IsNotExist(err) {
			b.Errorf("ImageFilesystems() = path %q, want it resolved (%q, %v)", f.Path, real, err)
		}
		if !slices.ContainsFunc(mounts, func(m *mountinfo.Info) bool { return m.Mountpoint == f.Mountpoint }) {
			b.Errorf("ImageFilesystems() = mount point %q, want one of the mounts", f.Mountpoint)
		}
		if rel, err := filepath.Rel(f.Mountpoint, f.Path); err != nil || strings.HasPrefix(rel, "..") {
			b.Errorf("ImageFilesystems() = path %q on %q, want the path below its mount point", f.Path, f.Mountpoint)
		}
	}
}

func testEmpty(b *bench) {
	if pods, err := b.Pods(b.ctx); err != nil || len(pods) != 0 {
		b.Errorf("Pods() = %v, %v, want none", pods, err)
	}
	if _, ok := b.image("localhost/hostler/missing:1"); ok {
		b.Errorf("Images() has an image that was never added")
	}
}

func testPods(b *bench) {
	before := time.Now().Add(-time.Second)
	p := b.run(EndsOnTERM, IgnoresTERM)
	img, ok := b.image(testImage)
	if !ok && !b.bare() {
		b.Fatalf("Images() lacks %s", testImage)
	}
	able, namespace := b.driver.Abilities(), ""
	if able.Namespaces {
		namespace = "barn"
	}
	if p.Runtime != b.Name() || p.ID == "" || p.UID == "" || p.Name != "horse" || p.Namespace != namespace || !p.Ready || p.Sandbox != able.Sandboxes {
		b.Errorf("Pods() = %+v, want ready pod horse in %q, with IDs, of runtime %q, a sandbox: %t", p, namespace, b.Name(), able.Sandboxes)
	}
	if p.CreatedAt.Before(before) || p.CreatedAt.After(time.Now().Add(time.Second)) {
		b.Errorf("Pods() = a pod created at %v, want just now, %v", p.CreatedAt, time.Now())
	}
	var names []string
	for _, c := range p.Containers {
		names = append(names, c.Name)
		if c.Runtime != b.Name() || c.ID == "" || c.PodID != p.ID || c.State != runtime.Running {
			b.Errorf("Pods() = container %+v, want it running, with an ID, of pod %s and runtime %q", c, p.ID, b.Name())
		}
		if c.ImageID != img.ID || c.Image == "" && !able.Bare {
			b.Errorf("Pods() = container of image %q, ID %q, want a name and ID %q", c.Image, c.ImageID, img.ID)
		}
		if !c.FinishedAt.IsZero() || c.CreatedAt.Before(before) {
			b.Errorf("Pods() = container created at %v, finished at %v, want just now and never", c.CreatedAt, c.FinishedAt)
		}
		if c.Labels["program"] != c.Name {
			b.Errorf("Pods() = container with labels %v, want program=%s", c.Labels, c.Name)
		}
	}
	want := []string{"first", "second"}
	if able.Bare {
		want = []string{p.Name}
	}
	if !slices.Equal(names, want) {
		b.Errorf("Pods() = containers %v, want %v, in order of creation", names, want)
	}
}

func testImages(b *bench) {
	if b.bare() {
		if images, err := b.Images(b.ctx); err != nil || len(images) != 0 {
			b.Errorf("Images() = %v, %v, want none", images, err)
		}
		return
	}
	tags := []string{"localhost/hostler/one:1", "localhost/hostler/other:latest"}
	b.driver.AddImage(b, tags...)
	b.driver.AddImage(b, "localhost/hostler/two:1")
	img, ok := b.image(tags[0])
	if !ok {
		b.Fatalf("Images() lacks %s", tags[0])
	}
	got := slices.Sorted(slices.Values(img.Tags))
	if !slices.Equal(got, tags) || img.ID == "" || img.SizeBytes == 0 || img.Runtime != b.Name() {
		b.Errorf("Images() = %+v, want an ID, a size, and tags %v", img, tags)
	}
	if two, ok := b.image("localhost/hostler/two:1"); !ok || two.ID == img.ID {
		b.Errorf("Images() = ID %q for a second image, want it there, with another ID than %q", two.ID, img.ID)
	}
}

func testLabels(b *bench) {
	p := b.run(EndsOnTERM, IgnoresTERM)
	reported := func(of string, labels map[string]string) {
		b.Helper()
		for key, value := range LargeLabels() {
			got, listed := labels[key]
			if key == labelLarge && !listed {
				continue // the call was refused
			}
			if key == labelLarge || key == labelHostile {
				if got != sanitize.Text(value, sanitize.MaxText) {
					b.Errorf("labels of %s: %s has %d bytes and begins with %.60q, want it printable, and at most %d bytes", of, key, len(got), got, sanitize.MaxText)
				}
				continue
			}
			if got != value {
				b.Errorf("labels of %s = %v, want %s=%s", of, labels, key, value)
			}
		}
	}
	reported("a pod", p.Labels)
	if err := b.StopPod(b.ctx, p); err != nil {
		b.Fatalf("StopPod() = %v", err)
	}
	reported("a dead pod", b.pod().Labels)
	if b.bare() {
		return
	}
	var img runtime.Image
	b.eventually("labels of the image are known", func() bool {
		var found bool
		img, found = b.detailed(testImage)
		return found && !img.LabelsUnknown
	})
	reported("an image", img.Labels)
}

func testExit(b *bench) {
	before := time.Now().Add(-time.Second)
	b.run(EndsAtOnce)
	var c runtime.Container
	b.eventually("container exits", func() bool {
		c = b.container()
		return c.State == runtime.Exited && (b.bare() || !c.FinishedAt.IsZero() && c.ExitCode != 0) // a runtime may know them a moment later
	})
	if b.bare() {
		if !c.FinishedAt.IsZero() || c.ExitCode != 0 {
			b.Errorf("Pods() = exit code %d at %v, want what nobody knows", c.ExitCode, c.FinishedAt)
		}
		return
	}
	if c.ExitCode != EndCode || c.FinishedAt.Before(before) || c.FinishedAt.After(time.Now().Add(time.Second)) {
		b.Errorf("Pods() = exit code %d at %v, want %d just now", c.ExitCode, c.FinishedAt, EndCode)
	}
	if again := b.container(); !again.FinishedAt.Equal(c.FinishedAt) || again.ExitCode != c.ExitCode {
		b.Errorf("second Pods() = exit code %d at %v, want %d at %v", again.ExitCode, again.FinishedAt, c.ExitCode, c.FinishedAt)
	}
}

// stop stops the only container and returns how long that took.
func (b *bench) stop(grace time.Duration) time.Duration {
	b.Helper()
	c := b.container()
	start := time.Now()
	if err := b.StopContainer(b.ctx, c, grace); err != nil {
		b.Fatalf("StopContainer(%v) = %v", grace, err)
	}
	return time.Since(start)
}

// ended fails unless the only container is dead, with this code if the runtime reports it.
func (b *bench) ended(code int32) {
	b.Helper()
	if b.bare() {
		code = 0
	}
	if c := b.container(); c.State != runtime.Exited || c.ExitCode != code {
		b.Errorf("container is %v with exit code %d, want %v with %d", c.State, c.ExitCode, runtime.Exited, code)
	}
}

func testStopSignals(b *bench) {
	b.run(EndsOnTERM)
	if took := b.stop(patience); took >= patience {
		b.Errorf("StopContainer(%v) took %v, want less", patience, took)
	}
	b.ended(TermCode)
}

func testStopIgnores(b *bench) {
	b.run(IgnoresTERM)
	const grace = 1500 * time.Millisecond
	// A runtime with whole seconds must round up.
	if took := b.stop(grace); took < grace || took > grace+patience/2 {
		b.Errorf("StopContainer(%v) took %v, want that and little more", grace, took)
	}
	b.ended(killedCode)
}

func testStopZero(b *bench) {
	b.run(EndsOnTERM)
	b.stop(0)
	b.ended(killedCode)
}

func testStopIdempotent(b *bench) {
	p := b.run(EndsOnTERM)
	b.stop(0)
	b.stop(time.Second)
	gone := runtime.Container{Runtime: b.Name(), ID: strings.Repeat("0", 64), PodID: p.ID, Name: "gone"}
	if err := b.StopContainer(b.ctx, gone, time.Second); err != nil {
		b.Errorf("StopContainer() of a missing container = %v", err)
	}
	for range 2 {
		if err := b.StopPod(b.ctx, p); err != nil {
			b.Errorf("StopPod() = %v", err)
		}
	}
	if err := b.StopPod(b.ctx, runtime.Pod{Runtime: b.Name(), ID: strings.Repeat("0", 64), Name: "gone"}); err != nil {
		b.Errorf("StopPod() of a missing pod = %v", err)
	}
}

func testStopPod(b *bench) {
	p := b.run(EndsOnTERM, IgnoresTERM)
	if err := b.StopPod(b.ctx, p); err != nil {
		b.Fatalf("StopPod() = %v", err)
	}
	p = b.pod()
	if p.Ready {
		b.Errorf("Pods() = a ready pod, want it not ready")
	}
	for _, c := range p.Containers {
		if c.State != runtime.Exited {
			b.Errorf("container %s is %v, want %v", c.Name, c.State, runtime.Exited)
		}
	}
}
