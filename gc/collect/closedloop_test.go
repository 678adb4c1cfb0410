package collect_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

// FuzzCollect collects on hosts whose images share layers and have wrong sizes, and compares the
// run with the filesystem's figures.
func FuzzCollect(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { collectGenerated(t, rand.New(rand.NewPCG(seed, 2))) })
	})
}

func collectGenerated(t *testing.T, r *rand.Rand) {
	o := runtimetest.Options{CapacityBytes: 10_000 * mib, Inodes: 1 << 40, FreesAfter: time.Duration(r.IntN(3)) * 100 * time.Millisecond}
	o.ReportsLayers = r.IntN(2) == 0
	if r.IntN(3) == 0 { // one inode per 10 kB of images, so that inodes may be lacking, too
		o.Inodes = uint64(50_000 + r.IntN(500_000))
	}
	h := newHost(t, o)
	honest := r.IntN(2) == 0 // sizes are those of the layers, including shared ones
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
	if before.InodesFree == 0 { // the images have more inodes than there are, so a removal frees none
		return
	}
	byBytes := before.AvailableBytes*100/before.CapacityBytes <= 15 // used percentages are rounded up
	byInodes := before.InodesFree*100/before.Inodes <= 10
	// lacks reports whether the filesystem still lacks what it lacked at the start.
	lacks := func(bytes, inodes uint64) bool {
		return byBytes && bytes < before.CapacityBytes/5 || byInodes && inodes < (before.Inodes*15+99)/100
	}
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
	if !byBytes && !byInodes && len(report.Removed) > 0 {
		t.Errorf("Collect() removed %v below the high threshold", removed(report))
	}
	if stuck := report.Ended == "two removals in a row freed nothing"; stuck {
		h.checkStuck(specs, report)
	} else if lacks(after.AvailableBytes, after.InodesFree) {
		facts, err := h.survey.Facts(t.Context(), gc.Options{Images: true})
		if err != nil {
			t.Fatal(err)
		}
		options := gc.Options{Images: true, TargetPercent: 1}
		if err := h.survey.AddLayers(t.Context(), &facts, images.Policy(), options); err != nil {
			t.Fatal(err)
		}
		rest := gc.Plan(facts, gc.Policy{Images: images.Policy()}, time.Now(), options)
		for _, img := range rest.Images {
			if img.Action == gc.Remove {
				t.Errorf("Collect() ended (%s) with %+v although %s could go", report.Ended, after, img.ID)
			}
		}
		if len(report.Warnings) == 0 {
			t.Errorf("Collect() does not say why it ended above the low threshold")
		}
	}
	h.checkLastBatch(specs, honest && !byInodes, after, lacks) // no runtime reports the inodes of images
	for i, removal := range report.Removed[:max(0, len(report.Removed)-1)] {
		// Images were pulled in order. Those without a container are removed in this order.
		var this, next int
		if _, err := fmt.Sscanf(removal.ID+" "+report.Removed[i+1].ID, "sha256:i%d sha256:i%d", &this, &next); err != nil {
			t.Fatal(err)
		}
		// An image that shares layers may free something only later.
		if h.arrived[next].Before(h.arrived[this]) && !o.ReportsLayers {
			t.Errorf("Collect() removed %s before %s, want the older one first", removal.ID, report.Removed[i+1].ID)
		}
	}
}

// checkStuck checks, if a run gave up, what its last two removals freed.
func (h *host) checkStuck(specs []runtimetest.ImageSpec, report runs.Report) {
	h.t.Helper()
	var ids []string
	var estimated uint64
	for _, removal := range report.Removed[max(0, len(report.Removed)-2):] {
		ids = append(ids, removal.ID)
		estimated += removal.SizeBytes
	}
	if bytes, _ := h.wouldHold(specs, ids); len(ids) < 2 || bytes >= estimated/10 {
		h.t.Errorf("Collect() gave up after removals of %d bytes that freed %d, want a tenth to be enough", estimated, bytes)
	}
}

// checkLastBatch computes what would be free without the last batch, and without its last image.
// Every batch begins while something is lacking. If sizes are not too low, no image of the batch is
// too many.
func (h *host) checkLastBatch(specs []runtimetest.ImageSpec, honest bool, after runtimetest.Usage, lacks func(bytes, inodes uint64) bool) {
	h.t.Helper()
	batches := h.batches()
	if len(batches) == 0 {
		return
	}
	without := func(ids []string) bool {
		bytes, inodes := h.wouldHold(specs, ids)
		return lacks(after.AvailableBytes-min(after.AvailableBytes, bytes), after.InodesFree-min(after.InodesFree, inodes))
	}
	last := batches[len(batches)-1]
	if !without(last) {
		h.t.Errorf("Collect() began a batch of %d while nothing lacked", len(last))
	}
	if honest && !without(last[len(last)-1:]) {
		h.t.Errorf("Collect() removed %s, the last of a batch of %d, while nothing lacked", last[len(last)-1], len(last))
	}
	for _, batch := range batches {
		if len(batch) > 8 {
			h.t.Errorf("Collect() removed %d images in one go, want 8 at most", len(batch))
		}
	}
}

// stock adds images that share layers. Unless honest, the runtime reports wrong sizes for some.
func (h *host) stock(r *rand.Rand, count int, honest bool) []runtimetest.ImageSpec {
	layers := make([]runtimetest.Layer, 8)
	for i := range layers {
		layers[i] = runtimetest.Layer{ID: fmt.Sprint("shared", i), Bytes: uint64(1+r.IntN(200)) * mib}
	}
	var specs []runtimetest.ImageSpec
	for i := range count {
		spec := runtimetest.ImageSpec{
			ID: fmt.Sprintf("sha256:i%d", i), Tags: []string{fmt.Sprintf("quay.io/org/i%d:1", i)}, Pinned: r.IntN(10) == 0,
			// Every image has its own layer, so that each removal frees something.
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
		h.arrived = append(h.arrived, time.Now())
		h.observe()
		time.Sleep(time.Duration(r.IntN(3)) * time.Minute)
		specs = append(specs, spec)
	}
	return specs
}

// batches returns the IDs of the removed images by batch: those whose removal began before the next
// measurement.
func (h *host) batches() [][]string {
	var batches [][]string
	var at time.Time
	for _, call := range h.fake.Calls(runtimetest.Pods, runtimetest.RemoveImage) {
		switch {
		case call.Op == runtimetest.Pods: // queried before each batch
			at = time.Time{}
		case at.IsZero():
			batches, at = append(batches, []string{call.Subject}), call.Start
		default:
			batches[len(batches)-1] = append(batches[len(batches)-1], call.Subject)
		}
	}
	return batches
}

// wouldHold returns how much more space would be used if removed images still existed.
func (h *host) wouldHold(specs []runtimetest.ImageSpec, ids []string) (bytes, inodes uint64) {
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
				bytes, inodes = bytes+l.Bytes, inodes+l.Bytes/10_000
			}
		}
	}
	return bytes, inodes
}

// Parallel removals take the time of the slowest one, not the sum.
func TestCollectRemovesInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := func(images int, o gc.Options, fill uint64) (time.Duration, runs.Report) {
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
		if len(r.Removed) != 500 || all > 80*time.Second {
			t.Errorf("Collect(all unused) removed %d images in %s, want 500 in less than 80 s, where one by one takes 500 s", len(r.Removed), all)
		}
		space, r := took(500, gc.Options{TargetPercent: 50}, 90)
		if len(r.Removed) != 400 || space > 80*time.Second {
			t.Errorf("Collect(to 50%% of 90%%) removed %d images in %s, want exactly the 400 that it takes, in at most 80 s", len(r.Removed), space)
		}
	})
}

// The true sizes are much larger than the reported ones, for example because those are compressed.
// The first removal shows it, so no batch frees too much.
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

// 100 generated runs remove less than one image each more than needed, even with wrong sizes,
// because the last images are removed one by one.
func TestBytesRemovedBeyondNeed(t *testing.T) {
	for _, honest := range []bool{true, false} {
		var beyond, needed, most uint64
		runs, unneeded := 0, 0
		for seed := uint64(0); runs < 100; seed++ {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 4))
				h := newHost(t, runtimetest.Options{CapacityBytes: 25_000 * mib, Inodes: 1 << 40})
				specs := h.stock(r, 100, honest)
				h.fill(uint64(86 + r.IntN(10)))
				u := h.fake.Usage()
				report := h.collect(h.images(), gc.Options{})
				if report.Ended != "low threshold reached" {
					return
				}
				runs++
				low := u.CapacityBytes / 5
				excess := h.fake.Usage().AvailableBytes - low
				beyond, needed, most = beyond+excess, needed+low-u.AvailableBytes, max(most, excess)
				// Without the last image, space would still be lacking; otherwise the image was too
				// many.
				if last, _ := h.wouldHold(specs, []string{report.Removed[len(report.Removed)-1].ID}); excess >= last {
					unneeded++
				}
			})
		}
		t.Logf("sizes true: %v: %d runs freed %d MiB of %d requested MiB; in excess %d MiB in total, at most %d MiB a run; %d runs removed an image that was not needed",
			honest, runs, (beyond+needed)/mib, needed/mib, beyond/mib, most/mib, unneeded)
		if most > 500*mib || unneeded > 0 {
			t.Errorf("Collect() freed up to %d MiB more than was requested, and in %d of %d runs an image that was not needed, want at most the size of one image, and none", most/mib, unneeded, runs)
		}
	}
}

// Small images free less than other programs write meanwhile.
func TestManySmallImagesDoNotDelayLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{CapacityBytes: 100_000 * mib, Inodes: 100_000_000, ReportsLayers: true})
		for i := range 1000 {
			h.fake.AddImage(runtimetest.ImageSpec{
				ID: fmt.Sprintf("sha256:small%d", i), Digests: []string{fmt.Sprintf("q.io/small@sha256:%d", i)},
				Layers: []runtimetest.Layer{{ID: fmt.Sprint("small ", i), Bytes: 10 << 10, Inodes: 1}},
			})
		}
		h.observe()
		time.Sleep(time.Hour)
		for i := range 5 {
			h.pull(fmt.Sprintf("large%d", i), runtimetest.Layer{ID: fmt.Sprint("large ", i), Bytes: 4000 * mib, Inodes: 1})
		}
		h.fill(90)
		full := h.fake.Usage()
		h.meter.change = func(u *gc.Usage) { // others write 20 MiB
			u.AvailableBytes -= min(u.AvailableBytes-full.AvailableBytes, 20*mib)
			u.InodesFree -= min(u.InodesFree-full.InodesFree, 10_000)
		}
		r := h.collect(h.images(), gc.Options{})
		if len(r.Removed) != 1003 || r.Ended != "low threshold reached" {
			t.Errorf("Collect() removed %d images, ended %q, want the 1000 small ones and exactly the 3 large ones that it takes", len(r.Removed), r.Ended)
		}
		if h.meter.syncs > 60 {
			t.Errorf("Collect() measured %d times, want at most 60", h.meter.syncs)
		}
	})
}
