package gc_test

import (
	"fmt"
	"slices"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

const mib = 1 << 20

// fact returns an image of 100 MiB that was pulled and last used that long ago.
func fact(name string, lastUsed time.Duration, change ...func(*gc.ImageFact)) gc.ImageFact {
	f := gc.ImageFact{
		Image: runtime.Image{
			Runtime: "containerd", ID: "sha256:" + name,
			Tags: []string{"quay.io/org/" + name + ":1"}, Digests: []string{"quay.io/org/" + name + "@sha256:" + name},
			SizeBytes: 100 * mib,
		},
		FirstSeen: ago(1000 * time.Hour), LastUsed: ago(lastUsed),
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

// disk returns a filesystem of 1,000 MiB and 1,000 inodes.
func disk(usedMiB, usedInodes uint64) gc.Usage {
	return gc.Usage{
		Filesystem:    runtime.Filesystem{Runtime: "containerd", Path: "/var/lib/containerd", Mountpoint: "/var/lib", Device: "/dev/sda2"},
		CapacityBytes: 1000 * mib, AvailableBytes: (1000 - usedMiB) * mib, Inodes: 1000, InodesFree: 1000 - usedInodes,
	}
}

func podWith(name string, containers ...runtime.Container) runtime.Pod {
	p := runtime.Pod{Runtime: "containerd", ID: "pod-" + name, UID: "uid-" + name, Name: name, Namespace: "default", Ready: true}
	for _, c := range containers {
		c.Runtime, c.PodID = "containerd", p.ID
		p.Containers = append(p.Containers, c)
	}
	return p
}

// exited returns a container that ran for an hour and exited that long ago.
func exited(id, name string, since time.Duration) runtime.Container {
	return runtime.Container{ID: id, Name: name, State: runtime.Exited, CreatedAt: ago(since + time.Hour), FinishedAt: ago(since)}
}

// removedImages returns the IDs of removed images, in order, with the reason.
func removedImages(d gc.Decisions) []string {
	removed := []string{}
	for _, img := range d.Images {
		if img.Action == gc.Remove {
			removed = append(removed, fmt.Sprintf("%s %s", img.ID[len("sha256:"):], img.Reason))
		}
	}
	return removed
}

func removedContainers(d gc.Decisions) []string {
	removed := []string{}
	for _, c := range d.Containers {
		if c.Action == gc.Remove {
			removed = append(removed, fmt.Sprintf("%s %s", c.ID, c.Reason))
		}
	}
	return removed
}

func decisionOn(d gc.Decisions, id string) gc.ImageDecision {
	i := slices.IndexFunc(d.Images, func(img gc.ImageDecision) bool { return img.ID == "sha256:"+id })
	return d.Images[i]
}

func containerDecisionOn(d gc.Decisions, id string) gc.ContainerDecision {
	i := slices.IndexFunc(d.Containers, func(c gc.ContainerDecision) bool { return c.ID == id })
	return d.Containers[i]
}
