//go:build integration

package bench_test

import (
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"syscall"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/test/lab"
)

const (
	unusedImages = 500
	collectRuns  = 3
	layerBytes   = 128 << 10 // of each image's own layer
)

// BenchmarkCollection measures garbage collection and prints its table, even if it fails.
func BenchmarkCollection(b *testing.B) {
	var t table
	defer t.print(os.Stdout)
	measurePlans(b, &t)
	measureRemovals(b, &t)
}

// measurePlans plans at three sizes, and counts the allocations.
func measurePlans(b *testing.B, t *table) {
	now := time.Now()
	for _, images := range []int{1_000, 10_000, 100_000} {
		facts := crowd(now, images)
		took := figure{name: fmt.Sprintf("gc.Plan, %d images: time", images), unit: "ms"}
		count := figure{name: fmt.Sprintf("gc.Plan, %d images: allocations", images), unit: "in all"}
		size := figure{name: fmt.Sprintf("gc.Plan, %d images: allocated", images), unit: "MB"}
		for range 11 {
			var before, after goruntime.MemStats
			goruntime.ReadMemStats(&before)
			began := time.Now()
			decision := gc.Plan(facts, gc.DefaultPolicy(), now, gc.Options{})
			took.samples = append(took.samples, milliseconds(time.Since(began)))
			goruntime.ReadMemStats(&after)
			count.samples = append(count.samples, float64(after.Mallocs-before.Mallocs))
			size.samples = append(size.samples, float64(after.TotalAlloc-before.TotalAlloc)/1e6)
			if len(decision.Images) != images {
				b.Fatalf("Plan() decides on %d images, want %d", len(decision.Images), images)
			}
		}
		for _, f := range []figure{took, count, size} {
			t.add(f)
		}
	}
}

// imageHost is a containerd on its own disk, with images that no container uses.
type imageHost struct {
	*lab.Containerd
	b     *testing.B
	names []string
}

func newImageHost(b *testing.B) *imageHost {
	b.Helper()
	l := &imageHost{Containerd: lab.ContainerdFor(b, lab.ContainerdOptions{ImageFSBytes: 2 << 30, ImageFSInodes: 200_000}), b: b}
	// With this ballast, no regular collection starts.
	check(b, os.WriteFile(filepath.Join(l.Root, "ballast"), make([]byte, 64<<20), 0o600))
	base, err := lab.RandomLayer(4 << 20)
	check(b, err)
	for i := range unusedImages {
		own, err := lab.RandomLayer(layerBytes)
		check(b, err)
		name := imageName(i)
		_, err = l.Pull(b.Context(), lab.ImageSpec{Names: []string{name}, Layers: []lab.Layer{base, own}})
		check(b, err)
		l.names = append(l.names, name)
	}
	return l
}

// refill pulls the missing images.
func (l *imageHost) refill() {
	l.b.Helper()
	for _, name := range l.names {
		_, err := l.Images.PullImage(l.b.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: name}})
		check(l.b, err)
	}
}

// oneByOne removes all images, one call after the other.
func (l *imageHost) oneByOne() time.Duration {
	l.b.Helper()
	began := time.Now()
	for _, name := range l.names {
		check(l.b, l.RemoveImage(l.b.Context(), name))
	}
	return time.Since(began)
}

// collected lets the agent remove them.
func (l *imageHost) collected(a *agent, req api.CollectRequest) runs.Report {
	l.b.Helper()
	report, err := a.api.Collect(l.b.Context(), req, func(api.Step) {})
	check(l.b, err)
	if len(report.Removed) != unusedImages {
		l.b.Fatalf("the collection removed %d images, errors %q, warnings %q, ended because %s; want %d", len(report.Removed), report.Errors, report.Warnings, report.Ended, unusedImages)
	}
	return report
}

// measureRemovals compares three ways to remove 500 images: a loop of RemoveImage, a collection of
// all unused images, and one that measures the disk after each removal. The three take turns on the
// same images.
func measureRemovals(b *testing.B, t *table) {
	l := newImageHost(b)
	a := startAgentWith(b, true, "runtimes: [{type: cri, endpoint: "+l.Endpoint+"}]\nimageGC: {minimumAge: 0s, interval: 1h}\n")
	defer a.end(syscall.SIGTERM)
	bare := figure{name: "500 images: a bare loop of RemoveImage", unit: "s"}
	all := figure{name: "500 images: gc run --all-unused", unit: "s"}
	space := figure{name: "500 images: gc run --target-percent 1, measured on the way", unit: "s"}
	allRatio := figure{name: "500 images: all unused, of the bare loop of the same round", unit: "times", target: 0.5}
	roomRatio := figure{name: "500 images: measured, of the bare loop of the same round", unit: "times", target: 0.5}
	window := figure{name: "500 images: longest time from asking whether one is used to its removal's end", unit: "ms"}
	for round := range collectRuns {
		if round > 0 {
			l.refill()
		}
		loop := l.oneByOne().Seconds()
		l.refill()
		unused := l.collected(a, api.CollectRequest{Images: true, AllUnused: true})
		l.refill()
		measured := l.collected(a, api.CollectRequest{Images: true, TargetPercent: 1})
		bare.samples = append(bare.samples, loop)
		all.samples = append(all.samples, unused.Duration.Seconds())
		space.samples = append(space.samples, measured.Duration.Seconds())
		allRatio.samples = append(allRatio.samples, unused.Duration.Seconds()/loop)
		roomRatio.samples = append(roomRatio.samples, measured.Duration.Seconds()/loop)
		window.samples = append(window.samples, milliseconds(unused.LongestWindow.Duration), milliseconds(measured.LongestWindow.Duration))
	}
	for _, f := range []figure{bare, all, space, allRatio, roomRatio, window} {
		t.add(f)
	}
}
