package gc_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"hostler.io/hostler/gc"
)

// next returns images to remove, with these sizes in MiB.
func next(sizes ...uint64) []*gc.ImageDecision {
	list := make([]*gc.ImageDecision, len(sizes))
	for i, size := range sizes {
		list[i] = &gc.ImageDecision{SizeBytes: size * mib, Action: gc.Remove, Reason: gc.LRU}
	}
	return list
}

func TestBatch(t *testing.T) {
	// 900 of 1,000 MiB and inodes are used: 100 MiB, or 50 inodes, must be freed.
	space, both := disk(900, 500), disk(900, 900)
	seen := func(estimated, freed uint64) (y gc.Yield) {
		y.Add(1, estimated*mib, freed*mib, 0, 0)
		return y
	}
	tests := []struct {
		name  string
		usage gc.Usage
		next  []*gc.ImageDecision
		yield gc.Yield
		want  int
	}{
		{"as many as bring half of what lacks", space, next(10, 10, 10, 10, 10, 10, 10), gc.Yield{}, 5},
		{"all, if they bring less", space, next(10, 10), gc.Yield{}, 2},
		{"one, however large", space, next(500, 10, 10), gc.Yield{}, 1},
		{"one, where two would bring more than half", space, next(30, 30), gc.Yield{}, 1},
		{"fewer, where sizes were found to say too little", space, next(10, 10, 10, 10), seen(10, 20), 2},
		{"no more, where sizes were found to say too much", space, next(10, 10, 10, 10, 10, 10), seen(10, 1), 5},
		{"fewer, where removals bring more than the next one's size", space, next(1, 1, 1, 1), seen(20, 20), 2},
		{"on, while inodes lack", both, next(16, 16, 16, 16, 16, 16, 16, 16), gc.Yield{}, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := gc.Batch(tt.next, []gc.Usage{tt.usage}, gc.DefaultPolicy().Images, gc.Options{TargetPercent: 80}, tt.yield); got != tt.want {
				t.Errorf("Batch() = %d, want %d", got, tt.want)
			}
		})
	}
}

// The estimated gain of a batch of several images is at most half of what is lacking. A batch has
// at least one image, and at most all.
func FuzzBatch(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 3))
		sizes := make([]uint64, 1+r.IntN(20))
		for i := range sizes {
			sizes[i] = uint64(r.IntN(200))
		}
		usage := disk(uint64(r.IntN(1001)), 0)
		usage.Inodes, usage.InodesFree = 0, 0
		var y gc.Yield
		for range r.IntN(4) {
			y.Add(1+r.IntN(5), uint64(r.IntN(100))*mib, uint64(r.IntN(300))*mib, uint64(r.IntN(100)), uint64(r.IntN(100)))
		}
		policy, o := gc.DefaultPolicy().Images, gc.Options{}
		images := next(sizes...)
		n := gc.Batch(images, []gc.Usage{usage}, policy, o, y)
		if n < 1 || n > len(images) {
			t.Fatalf("Batch() = %d of %d, want at least one and no more than all", n, len(images))
		}
		var sum uint64
		for _, d := range images[:n] {
			sum += d.SizeBytes
		}
		lacks := gc.Filesystems([]gc.Usage{usage}, policy, o)[0].BytesToFree
		if n > 1 && float64(sum)*max(1, y.BytesRatio) > float64(lacks)/2+1 {
			t.Errorf("Batch() = %d images of %d bytes at a ratio of %.2f where %d lack, want at most half", n, sum, y.BytesRatio, lacks)
		}
	})
}

// Unreported inodes are estimated from the average of the filesystem.
func TestPlanEstimatesInodes(t *testing.T) {
	u := disk(500, 250) // one inode per 2 MiB
	gain := func(size uint64) gc.Gain {
		facts := gc.Facts{Filesystems: []gc.Usage{u}, Images: []gc.ImageFact{fact("a", time.Hour, func(f *gc.ImageFact) { f.SizeBytes = size })}}
		return gc.Plan(facts, gc.DefaultPolicy(), now, gc.Options{AllUnused: true}).Images[0].Gain
	}
	for size, want := range map[uint64]uint64{0: 1, 100 * mib: 51, 1 << 63: 1 + 1<<42} {
		if got := gain(size); got.Inodes != want || got.Bytes != size {
			t.Errorf("Plan() estimates %+v for %d bytes, want %d inodes", got, size, want)
		}
	}
	u.Inodes, u.InodesFree = 0, 0
	if got := gain(100 * mib); got.Inodes != 0 {
		t.Errorf("Plan() without a number of inodes estimates %+v, want 0 of them", got)
	}
}
