package gc_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

// host generates facts of a given size, with names and IDs of realistic length.
func host(images, containers int) gc.Facts {
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
				Digests: []string{name + "@" + digest("digest", i)}, SizeBytes: 50 * mib,
			},
			FirstSeen: ago(90 * 24 * time.Hour), LastUsed: ago(time.Duration(i*7919%images) * time.Minute),
		})
	}
	for i := range containers {
		img := f.Images[i%images]
		c := exited(digest("container", i), "main", time.Duration(i)*time.Minute)
		c.Image, c.ImageID = img.Tags[0], img.ID
		if i%2 == 0 {
			c.State, c.FinishedAt = runtime.Running, time.Time{}
		}
		f.Pods = append(f.Pods, podWith(fmt.Sprintf("pod-%d", i), c))
	}
	u := disk(950, 500)
	u.CapacityBytes *= 1000
	u.AvailableBytes *= 1000
	f.Filesystems = []gc.Usage{u}
	return f
}

func BenchmarkPlan(b *testing.B) {
	p := gc.DefaultPolicy()
	keep("registry.k8s.io/*", "docker.io/library/base", "*/platform/agent:*")(&p.Images)
	for _, images := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("images=%d", images), func(b *testing.B) {
			facts := host(images, 2_000)
			b.ReportAllocs()
			for b.Loop() {
				if d := gc.Plan(facts, p, now, gc.Options{}); len(d.Images) != images {
					b.Fatalf("Plan() decides on %d images, want %d", len(d.Images), images)
				}
			}
		})
	}
}

// BenchmarkPlanContainers plans after months without collection: pods with a hundred dead
// containers each, every tenth of the pods dead, and as many log folders as pods.
func BenchmarkPlanContainers(b *testing.B) {
	for _, containers := range []int{1_000, 30_000} {
		b.Run(fmt.Sprintf("containers=%d", containers), func(b *testing.B) {
			var f gc.Facts
			for i := range containers / 100 {
				p := podWith(fmt.Sprintf("pod-%d", i))
				p.Sandbox, p.Ready, p.CreatedAt = true, i%10 > 0, ago(1000*time.Hour)
				for j := range 100 {
					c := exited(fmt.Sprintf("c%d-%d", i, j), "main", time.Duration(1+i+j)*time.Hour)
					c.Runtime, c.PodID = p.Runtime, p.ID
					p.Containers = append(p.Containers, c)
				}
				f.Pods = append(f.Pods, p)
				f.Logs = append(f.Logs, gc.LogFact{Path: fmt.Sprintf("/var/log/pods/default_gone_%d", i), UID: fmt.Sprint(i), ModifiedAt: ago(9 * time.Hour)})
			}
			policy := gc.DefaultPolicy()
			b.ReportAllocs()
			for b.Loop() {
				d := gc.Plan(f, policy, now, gc.Options{Containers: true})
				if len(d.Containers) != containers || len(d.Logs) != containers/100 {
					b.Fatalf("Plan() decides on %d containers and %d logs, want %d and %d", len(d.Containers), len(d.Logs), containers, containers/100)
				}
			}
		})
	}
}
