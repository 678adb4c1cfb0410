package collect_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/collect"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

// FuzzCollect collects on hosts whose images share layers and lie about their
// size, and holds the run to what the filesystem says.
func FuzzCollect(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { collectGenerated(t, rand.New(rand.NewPCG(seed, 2))) })
	})
}

func collectGenerated(t *testing.T, r *rand.Rand) {
	h := newHost(t, runtimetest.Options{CapacityBytes: 10_000 * mib, FreesAfter: time.Duration(r.IntN(3)) * 100 * time.Millisecond})
	honest := r.IntN(2) == 0 // sizes are those of the layers, shared ones included
	specs := h.stock(r, 1+r.IntN(60), honest)
	for i := range r.IntN(6) {
		h.fake.RunPod(runtimetest.PodSpec{Name: fmt.Sprint("p", i), Containers: []runtimetest.ContainerSpec{
			{Name: "c", Image: specs[r.IntN(len(specs))].ID, State: []runtime.ContainerState{runtime.Running, runtime.Exited, runtime.Created}[r.IntN(3)]},
		}})
	}
	u := h.fake.Usage()
	h.fake.SetOtherBytes(u.AvailableBytes - min(u.AvailableBytes, uint64(r.IntN(2000))*mib))

	images := h.images()
	before := h.fake.Usage()
	low := before.CapacityBytes / 5 // 80% used
	report, err := images.Collect(t.Context(), gc.Options{}, nil)
	if err != nil {
		t.Fatalf("Collect() = %v, want no error", err)
	}
	after := h.fake.Usage()

	if got := h.fake.RemovedInUse(); len(got) != 0 {
		t.Errorf("Collect() removed %v, which containers use", got)
	}
	if got := after.AvailableBytes - before.AvailableBytes; got != report.FreedBytes {
		t.Errorf("Collect() reports %d bytes freed, the filesystem says %d", report.FreedBytes, got)
	}
	if before.AvailableBytes > before.CapacityBytes*16/100 && len(report.Removed) > 0 {
		t.Errorf("Collect() removed %v below the high threshold", removed(report))
	}
	if before.AvailableBytes <= before.CapacityBytes*15/100 && after.AvailableBytes < low {
		facts, err := h.survey.Facts(t.Context(), gc.Options{Images: true})
		if err != nil {
			t.Fatal(err)
		}
		rest := gc.Plan(facts, gc.Policy{Images: images.Policy()}, time.Now(), gc.Options{Images: true, AllUnused: true})
		for _, img := range rest.Images {
			if img.Action == gc.Remove {
				t.Errorf("Collect() ended (%s) with %d of %d bytes available although %s could go", report.Ended, after.AvailableBytes, low, img.ID)
			}
		}
		if len(report.Warnings) == 0 {
			t.Errorf("Collect() does not say why it ended above the low threshold")
		}
	}
	batches := h.batches()
	for i := range batches {
		if len(batches[i]) > 16 {
			t.Errorf("Collect() removed %d images at once, want 16 at most", len(batches[i]))
		}
	}
	if len(batches) == 0 {
		return
	}
	// What would be free without the last batch, and without the last image of it:
	// every batch begins while something lacks, and where sizes are not below the
	// truth no image of one is too many.
	last := batches[len(batches)-1]
	if got := after.AvailableBytes - min(after.AvailableBytes, h.wouldHold(specs, last)); got >= low {
		t.Errorf("Collect() began a batch of %d with %d of %d bytes available", len(last), got, low)
	}
	if got := after.AvailableBytes - min(after.AvailableBytes, h.wouldHold(specs, last[len(last)-1:])); honest && got >= low {
		t.Errorf("Collect() removed %s of a batch of %d with %d of %d bytes available without", last[len(last)-1], len(last), got, low)
	}
}

// stock adds images that share layers, some of which their runtime misjudges the
// size of unless it is honest.
func (h *host) stock(r *rand.Rand, count int, honest bool) []runtimetest.ImageSpec {
	layers := make([]runtimetest.Layer, 8)
	for i := range layers {
		layers[i] = runtimetest.Layer{ID: fmt.Sprint("shared", i), Bytes: uint64(1+r.IntN(200)) * mib}
	}
	var specs []runtimetest.ImageSpec
	for i := range count {
		spec := runtimetest.ImageSpec{
			ID: fmt.Sprintf("sha256:i%d", i), Tags: []string{fmt.Sprintf("quay.io/org/i%d:1", i)}, Pinned: r.IntN(10) == 0,
			// Every image has something of its own, so that each removal gains.
			Layers: []runtimetest.Layer{{ID: fmt.Sprint("own", i), Bytes: uint64(1+r.IntN(100)) * mib}},
		}
		for range r.IntN(3) {
			if l := layers[r.IntN(len(layers))]; l.ID != spec.Layers[len(spec.Layers)-1].ID {
				spec.Layers = append(spec.Layers, l)
			}
		}
		if r.IntN(8) > 0 {
			spec.Digests = []string{fmt.Sprintf("quay.io/org/i%d@sha256:%d", i, i)}
		}
		if !honest && r.IntN(3) == 0 {
			spec.ReportedBytes = uint64(1+r.IntN(500)) * mib
		}
		h.fake.AddImage(spec)
		h.observe()
		time.Sleep(time.Duration(r.IntN(3)) * time.Minute)
		specs = append(specs, spec)
	}
	return specs
}

// batches are the IDs of the images removed, by what went at once: what began
// before anything was measured again.
func (h *host) batches() [][]string {
	var batches [][]string
	var at time.Time
	for _, call := range h.fake.Calls(runtimetest.Pods, runtimetest.RemoveImage) {
		switch {
		case call.Op == runtimetest.Pods: // asked before each batch
			at = time.Time{}
		case at.IsZero():
			batches, at = append(batches, []string{call.Subject}), call.Start
		default:
			batches[len(batches)-1] = append(batches[len(batches)-1], call.Subject)
		}
	}
	return batches
}

// wouldHold is how much more would be taken if images that are gone were there.
func (h *host) wouldHold(specs []runtimetest.ImageSpec, ids []string) (bytes uint64) {
	h.t.Helper()
	present := map[string]bool{}
	images, err := h.fake.Images(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	pods, err := h.fake.Pods(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	held := map[string]bool{}
	for _, img := range images {
		present[img.ID] = true
	}
	for _, pod := range pods {
		for _, c := range pod.Containers {
			present[c.ImageID] = true
		}
	}
	for _, spec := range specs {
		for _, l := range spec.Layers {
			held[l.ID] = held[l.ID] || present[spec.ID]
		}
	}
	for _, spec := range specs {
		for _, l := range spec.Layers {
			if slices.Contains(ids, spec.ID) && !held[l.ID] {
				held[l.ID] = true
				bytes += l.Bytes
			}
		}
	}
	return bytes
}

// What goes in parallel takes the time of the slowest, not of the sum.
func TestCollectRemovesInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := func(images int, o gc.Options, fill uint64) (time.Duration, collect.Report) {
			h := newHost(t, runtimetest.Options{CapacityBytes: 100_000 * mib})
			for i := range images {
				h.pull(fmt.Sprintf("i%d", i))
			}
			h.fill(fill)
			h.fake.Inject(runtimetest.RemoveImage, runtimetest.Fault{Delay: time.Second})
			start := time.Now()
			r := h.collect(h.images(), o)
			return time.Since(start), r
		}
		all, r := took(500, gc.Options{AllUnused: true}, 60)
		if len(r.Removed) != 500 || all > 50*time.Second {
			t.Errorf("Collect(all unused) removed %d images in %s, want 500 in a tenth of the 500 s that one by one takes", len(r.Removed), all)
		}
		room, r := took(500, gc.Options{TargetPercent: 50}, 90)
		if len(r.Removed) != 400 || room > 60*time.Second {
			t.Errorf("Collect(to 50%% of 90%%) removed %d images in %s, want exactly the 400 that it takes, in at most 60 s", len(r.Removed), room)
		}
	})
}

// Sizes of which the truth is many times more: compressed, say. The first removal
// shows it, and no batch is past the low threshold for that.
func TestCollectLearnsWhatSizesAreWorth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{CapacityBytes: 100_000 * mib, Inodes: 100_000_000})
		for i := range 200 {
			h.fake.AddImage(runtimetest.ImageSpec{
				ID: fmt.Sprintf("sha256:i%d", i), Digests: []string{fmt.Sprintf("q.io/i@sha256:%d", i)}, ReportedBytes: 25 * mib,
				Layers: []runtimetest.Layer{{ID: fmt.Sprint(i), Bytes: 100 * mib}},
			})
		}
		h.observe()
		time.Sleep(time.Hour)
		h.fill(90)
		r := h.collect(h.images(), gc.Options{})
		if len(r.Removed) != 100 || len(h.batches()) > 25 {
			t.Errorf("Collect() removed %d images in %d batches, want exactly the 100 that it takes in at most 25", len(r.Removed), len(h.batches()))
		}
	})
}
