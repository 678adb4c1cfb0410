//go:build integration

package bench_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

const (
	planImages     = 10_000
	planContainers = 2_000
	planRuns       = 51
)

// measurePlan plans a collection on a host full of images and dead containers, with the default
// policy.
func measurePlan(b *testing.B, t *table) {
	now := time.Now()
	facts := crowd(now, planImages)
	took := figure{name: fmt.Sprintf("gc.Plan, %d images, %d containers", planImages, planContainers), unit: "ms", target: 15}
	for range planRuns {
		began := time.Now()
		decision := gc.Plan(facts, gc.DefaultPolicy(), now, gc.Options{})
		took.samples = append(took.samples, milliseconds(time.Since(began)))
		if len(decision.Images) != planImages || len(decision.Containers) != planContainers {
			b.Fatalf("Plan() decides on %d images and %d containers, want %d and %d", len(decision.Images), len(decision.Containers), planImages, planContainers)
		}
	}
	t.add(took)
}

// crowd returns facts with names and IDs as long as real ones, in no order.
func crowd(now time.Time, images int) gc.Facts {
	f := gc.Facts{SandboxImages: map[string]string{"containerd": "registry.k8s.io/pause:3.10"}}
	digest := func(kind string, i int) string {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s%d", kind, i))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	for i := range images {
		name := fmt.Sprintf("registry.example.com/platform/service-%d", i)
		f.Images = append(f.Images, gc.ImageFact{
			Image: runtime.Image{
				Runtime: "containerd", ID: digest("id", i), Tags: []string{name + ":v1.2.3"},
				Digests: []string{name + "@" + digest("digest", i)}, SizeBytes: 50 << 20,
			},
			FirstSeen: now.Add(-90 * 24 * time.Hour), LastUsed: now.Add(-time.Duration(i*7919%images) * time.Minute),
		})
	}
	for i := range planContainers {
		id, image := digest("container", i), f.Images[i%images]
		c := runtime.Container{
			Runtime: "containerd", ID: id, PodID: digest("pod", i), Name: "main", Image: image.Tags[0], ImageID: image.ID,
			State: runtime.Running, CreatedAt: now.Add(-time.Hour),
		}
		if i%2 == 0 {
			c.State, c.FinishedAt = runtime.Exited, now.Add(-time.Duration(i)*time.Second)
		}
		f.Pods = append(f.Pods, runtime.Pod{
			Runtime: "containerd", ID: c.PodID, UID: c.PodID, Name: fmt.Sprintf("pod-%d", i), Namespace: "default",
			Ready: true, CreatedAt: c.CreatedAt, Containers: []runtime.Container{c},
		})
	}
	f.Filesystems = []gc.Usage{{
		Filesystem:    runtime.Filesystem{Runtime: "containerd", Path: "/var/lib/containerd", Mountpoint: "/var/lib/containerd", Device: "/dev/sdb"},
		CapacityBytes: 1 << 40, AvailableBytes: 1 << 40 / 20, Inodes: 64 << 20, InodesFree: 32 << 20,
	}}
	return f
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
