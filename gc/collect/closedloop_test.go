package collect_test

import (
	"fmt"
	"math/rand/v2"
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
	layers := make([]runtimetest.Layer, 8)
	for i := range layers {
		layers[i] = runtimetest.Layer{ID: fmt.Sprint("shared", i), Bytes: uint64(1+r.IntN(200)) * mib}
	}
	count := 1 + r.IntN(30)
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
		if r.IntN(3) == 0 {
			spec.ReportedBytes = uint64(1+r.IntN(500)) * mib
		}
		h.fake.AddImage(spec)
		h.observe()
		time.Sleep(time.Duration(r.IntN(3)) * time.Minute)
	}
	for i := range r.IntN(6) {
		h.fake.RunPod(runtimetest.PodSpec{Name: fmt.Sprint("p", i), Containers: []runtimetest.ContainerSpec{
			{Name: "c", Image: fmt.Sprintf("sha256:i%d", r.IntN(count)), State: []runtime.ContainerState{runtime.Running, runtime.Exited, runtime.Created}[r.IntN(3)]},
		}})
	}
	u := h.fake.Usage()
	h.fake.SetOtherBytes(u.AvailableBytes - min(u.AvailableBytes, uint64(r.IntN(2000))*mib))

	images := h.images()
	before := h.fake.Usage()
	low := before.CapacityBytes / 5 // 80% used
	var available []uint64          // after each removal
	report, err := images.Collect(t.Context(), gc.Options{}, func(collect.Progress) {
		available = append(available, h.fake.Usage().AvailableBytes)
	})
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
	for i, got := range available[:max(0, len(available)-1)] {
		if got >= low {
			t.Errorf("Collect() went on after removal %d of %d, with %d of %d bytes available", i+1, len(available), got, low)
		}
	}
}
