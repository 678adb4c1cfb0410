//go:build integration

package e2e_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/test/lab"
)

// imageHost is a containerd on its own filesystem, with images of every kind.
type imageHost struct {
	*lab.Containerd
	unused []string // least recently used first
}

// Images that every collection must keep.
const (
	usedImage  = "docker.io/library/used:1"
	deadImage  = "docker.io/library/dead:1"
	keptImage  = "docker.io/acme/kept:1"
	localImage = "docker.io/library/local:1"
)

// newImageHost starts a containerd without images.
func newImageHost(t testing.TB) *imageHost {
	t.Helper()
	return &imageHost{Containerd: lab.ContainerdFor(t, lab.ContainerdOptions{ImageFSBytes: 256 << 20})}
}

// fill fills the filesystem to about a half, and waits until the agent has recorded the order of
// the images.
func (p *imageHost) fill(t testing.TB, a *agent) {
	t.Helper()
	pull := func(name string, sizeBytes int64) {
		t.Helper()
		layer, err := lab.RandomLayer(sizeBytes)
		check(t, err)
		_, err = p.Pull(t.Context(), lab.ImageSpec{Names: []string{name}, Layers: []lab.Layer{layer}})
		check(t, err)
	}
	for _, name := range []string{usedImage, deadImage, keptImage} {
		pull(name, 1<<20)
	}
	layer, err := lab.RandomLayer(1 << 20)
	check(t, err)
	_, err = p.Import(t.Context(), lab.ImageSpec{Names: []string{localImage}, Layers: []lab.Layer{layer}})
	check(t, err)
	for i := range 6 {
		name := fmt.Sprintf("docker.io/library/unused-%d:1", i)
		pull(name, 8<<20)
		p.unused = append(p.unused, name)
	}
	p.run(t, "user", usedImage, lab.ServeFor(0))
	p.run(t, "dead-user", deadImage, lab.ExitWith(0))
	eventually(t, "the agent knows the order in which images came", func() bool {
		seen := map[string]time.Time{}
		for _, img := range answers[api.ImageList](a, "images").Images {
			for _, name := range img.Names {
				seen[name] = img.FirstSeen
			}
		}
		for i, name := range p.unused {
			if seen[name].IsZero() || i > 0 && !seen[name].After(seen[p.unused[i-1]]) {
				return false
			}
		}
		return true
	})
}

// run runs a pod of one container.
func (p *imageHost) run(t testing.TB, name, image string, command []string) *lab.Pod {
	t.Helper()
	pod, err := p.RunPod(t.Context(), lab.PodSpec{Name: name, Containers: []lab.ContainerSpec{{Name: "main", Image: image, Command: command}}})
	check(t, err)
	return pod
}

// wantKept checks that no image was removed that has to stay.
func (p *imageHost) wantKept(t testing.TB) {
	t.Helper()
	left := images(t, p.Containerd)
	for _, name := range []string{usedImage, deadImage, keptImage, localImage, p.SandboxImage} {
		if !left[name] {
			t.Errorf("image %s is gone, left are %v", name, slices.Sorted(maps.Keys(left)))
		}
	}
}

// settings returns the settings of an agent of this runtime.
func (p *imageHost) settings(imageGC string) string {
	return quick + "runtimes: [{type: cri, endpoint: " + p.Endpoint + "}]\nimageGC: {minimumAge: 0s, keep: [docker.io/acme/*], " + imageGC + "}\n"
}

// usedPercent returns how full the filesystem is, as the agent sees it.
func usedPercent(a *agent) int {
	a.t.Helper()
	var percent int
	a.await("the image filesystem is measured", func(s api.Status) bool {
		if len(s.ImageGC.Filesystems) != 1 {
			return false
		}
		percent = s.ImageGC.Filesystems[0].UsedPercent
		return percent > 0
	})
	return percent
}

// With automatic detection, the first runtime is found a moment after the agent's start.
func TestTheStartCollectsFromARuntimeThatHasToBeFound(t *testing.T) {
	p := newImageHost(t)
	const old = "docker.io/library/old:1"
	_, err := p.Pull(t.Context(), lab.ImageSpec{Names: []string{old}})
	check(t, err)
	installContainerd(t, p.Containerd)
	a := startAgent(t, quick+"runtimes: auto\nimageGC: {minimumAge: 0s, highThresholdPercent: 1, lowThresholdPercent: 0, interval: 1h}\n")
	eventually(t, "an image is removed", func() bool { return !images(t, p.Containerd)[old] })
	a.stop()
}

func TestImagesGoByThemselvesUntilTheLowThresholdAndNoFurther(t *testing.T) {
	t.Parallel()
	p := newImageHost(t)
	a := startAgent(t, p.settings("highThresholdPercent: 99, lowThresholdPercent: 98, interval: 1s"))
	p.fill(t, a)
	before := usedPercent(a)
	a.await("a run found nothing to do", func(s api.Status) bool { return s.ImageGC.LastRun != nil })
	if got := len(images(t, p.Containerd)); got != 11 {
		t.Fatalf("%d images below the threshold, want all 11", got)
	}

	// The same usage with another threshold, which is reloaded.
	high, low := before, before-8
	a.configure(p.settings(fmt.Sprintf("highThresholdPercent: %d, lowThresholdPercent: %d, interval: 1h", high, low)))
	check(t, a.process.Signal(hangUp))
	a.await("the thresholds are taken up", func(s api.Status) bool { return s.ImageGC.HighThresholdPercent == high })
	var planned []string
	plan := answers[api.CollectPlan](a, "gc", "plan")
	reasons := map[string]gc.Reason{}
	for _, img := range plan.Images {
		for _, name := range img.Names {
			reasons[name] = img.Reason
		}
		if img.Action == gc.Remove {
			planned = append(planned, img.ID)
		}
	}
	for name, want := range map[string]gc.Reason{
		usedImage: gc.InUse, deadImage: gc.InUse, keptImage: gc.Protected, localImage: gc.Local, p.SandboxImage: gc.Protected, p.unused[0]: gc.LRU,
	} {
		if reasons[name] != want {
			t.Errorf("gc plan says %q of %s, want %q", reasons[name], name, want)
		}
	}
	if len(plan.Filesystems) != 1 || plan.Filesystems[0].Mountpoint != p.Root || plan.Filesystems[0].BytesToFree == 0 || len(planned) == 0 {
		t.Fatalf("gc plan = %+v, want something to free on %s", plan.Filesystems, p.Root)
	}

	a.configure(p.settings(fmt.Sprintf("highThresholdPercent: %d, lowThresholdPercent: %d, interval: 1s", high, low)))
	check(t, a.process.Signal(hangUp))
	// A later run may have nothing to do.
	eventually(t, "images were collected", func() bool {
		runs := answers[api.CollectHistory](a, "gc", "history", "--images").Runs
		return len(runs) > 0 && runs[0].Ended == "low threshold reached"
	})
	s := a.status()
	p.wantKept(t)
	left := images(t, p.Containerd)
	if left[p.unused[0]] || !left[p.unused[5]] {
		t.Errorf("images left = %v, want the first of the unused gone and the last there", slices.Sorted(maps.Keys(left)))
	}
	removed := 11 - len(left)
	if removed > len(planned) {
		t.Errorf("%d images were removed, want no more than the %d planned", removed, len(planned))
	}
	for _, id := range planned[:removed] {
		if status, err := p.Images.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: id}}); err != nil || status.Image != nil {
			t.Errorf("ImageStatus(%s) = %v, %v, want it gone as it was planned next", id, status.GetImage(), err)
		}
	}
	if lines := a.logLines("msg=\"image removed\""); len(lines) != removed {
		t.Errorf("the log reports %d removals, want %d", len(lines), removed)
	}
	if s.ContainerGC.Dead != 1 || s.ContainerGC.Containers != 2 {
		t.Errorf("containers = %+v, want 2, 1 of them dead", s.ContainerGC)
	}
	a.stop()
}

func TestAPersonCollectsWhatThePlanSays(t *testing.T) {
	t.Parallel()
	p := newImageHost(t)
	a := startAgent(t, p.settings("interval: 1h")+"containerGC: {interval: 1h}\n")
	p.fill(t, a)
	before := usedPercent(a)

	r := a.hostler("gc", "run", "--images", "--target-percent", fmt.Sprint(before-8))
	if r.code != 0 {
		t.Fatalf("gc run = %d, %q, %q, want 0", r.code, r.out, r.err)
	}
	mentions(t, "gc run", r.out, "removed image "+p.unused[0]+": lru\n", "ended: low threshold reached")
	if now := usedPercent(a); now > before-7 { // the runtime still writes after the run
		t.Errorf("%d%% are used after it, want about %d%%", now, before-8)
	}
	if left := images(t, p.Containerd); !left[p.unused[5]] {
		t.Errorf("images left = %v, want the youngest among them", left)
	}

	plan := answers[api.CollectPlan](a, "gc", "plan", "--all-unused")
	var planned []string
	for _, img := range plan.Images {
		if img.Action == gc.Remove {
			planned = append(planned, img.ID)
		}
	}
	report := answers[runs.Report](a, "gc", "run", "--all-unused")
	var done []string
	for _, removal := range report.Removed {
		if removal.Kind == runs.KindImage {
			done = append(done, removal.ID)
		}
	}
	if !slices.Equal(planned, done) || len(done) == 0 {
		t.Errorf("gc run --all-unused removed %v, want what was planned: %v", done, planned)
	}
	if report.FreedBytes == 0 || len(report.Errors) != 0 {
		t.Errorf("report = %+v, want bytes freed and no errors", report)
	}
	p.wantKept(t)
	if left := images(t, p.Containerd); len(left) != 5 {
		t.Errorf("images left = %v, want the five that have to stay", left)
	}
	a.stop()
}

func TestDeadContainersGoTheOldestFirst(t *testing.T) {
	t.Parallel()
	c := lab.ContainerdFor(t, lab.ContainerdOptions{})
	_, err := c.Pull(t.Context(), lab.ImageSpec{Names: []string{webImage}})
	check(t, err)
	pod, err := c.RunPod(t.Context(), lab.PodSpec{Name: "crashing"})
	check(t, err)
	var attempts []string
	for attempt := range 3 {
		id, err := c.RunContainer(t.Context(), pod, lab.ContainerSpec{Name: "main", Image: webImage, Command: lab.ExitWith(1), Attempt: uint32(attempt)})
		check(t, err)
		_, err = c.AwaitExit(t.Context(), id)
		check(t, err)
		attempts = append(attempts, id)
	}
	alive, err := c.RunContainer(t.Context(), pod, lab.ContainerSpec{Name: "main", Image: webImage, Command: lab.ServeFor(0), Attempt: 3})
	check(t, err)
	left := func() []string {
		reply, err := c.Runtime.ListContainers(t.Context(), &cri.ListContainersRequest{})
		check(t, err)
		var ids []string
		for _, container := range reply.Containers {
			ids = append(ids, container.Id)
		}
		slices.Sort(ids)
		return ids
	}

	a := startAgent(t, "runtimes: [{type: cri, endpoint: "+c.Endpoint+"}]\ncontainerGC: {interval: 1s, maxPerPodContainer: 1}\n")
	want := slices.Sorted(slices.Values([]string{attempts[2], alive}))
	eventually(t, "all dead containers but the newest are gone", func() bool { return slices.Equal(left(), want) })
	s := a.await("the run is reported", func(s api.Status) bool { return s.ContainerGC.Containers == 2 })
	if s.ContainerGC.Dead != 1 {
		t.Errorf("containerGC = %+v, want one dead container left", s.ContainerGC)
	}
	a.stop()
}

// The next regular collection is an hour away: the condition starts it.
func TestDiskPressureCollectsAtOnce(t *testing.T) {
	t.Parallel()
	p := newImageHost(t)
	a := startAgent(t, p.settings("interval: 1h")+"containerGC: {interval: 1h}\n")
	p.fill(t, a)
	high := usedPercent(a) + 8
	a.configure(p.settings(fmt.Sprintf("highThresholdPercent: %d, lowThresholdPercent: %d, interval: 1h", high, high-5)) +
		fmt.Sprintf("containerGC: {interval: 1h}\npressure: {imagefsAvailable: %d%%}\n", 100-high))
	check(t, a.process.Signal(hangUp))
	a.await("the thresholds are taken up", func(s api.Status) bool { return s.ImageGC.HighThresholdPercent == high })

	ballast, err := os.Create(filepath.Join(p.Root, "ballast"))
	check(t, err)
	defer ballast.Close()
	var st unix.Statfs_t
	check(t, unix.Statfs(p.Root, &st))
	wanted := st.Blocks*uint64(high+1)/100 - (st.Blocks - st.Bavail)
	check(t, unix.Fallocate(int(ballast.Fd()), 0, 0, int64(wanted)*st.Bsize)) // at once: writes during the collection would undo it
	a.await("images were collected", func(s api.Status) bool {
		// The runtime still writes after the run, which ended at the low threshold.
		return s.ImageGC.LastRun != nil && s.ImageGC.LastRun.Removed > 0 && usedPercent(a) <= high-3
	})
	p.wantKept(t)

	past := answers[api.CollectHistory](a, "gc", "history", "--images")
	if len(past.Runs) == 0 || past.Runs[0].Trigger != string(corev1.NodeDiskPressure) || past.Runs[0].FreedBytes == 0 || past.Runs[0].Ended != "low threshold reached" {
		t.Errorf("gc history = %+v, want a run for DiskPressure first", past.Runs)
	}
	mentions(t, "gc history", a.hostler("gc", "history").out, "DiskPressure", "low threshold reached")
	a.stop()

	a.start()
	if again := answers[api.CollectHistory](a, "gc", "history", "--images"); len(again.Runs) < len(past.Runs) {
		t.Errorf("gc history after a restart = %+v, want it to know of %d runs", again.Runs, len(past.Runs))
	}
	a.stop()
}
