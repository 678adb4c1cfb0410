package gc_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

// generate generates a host from a seed. Images of two runtimes are partly on the same filesystem.
// Containers in all states use some images by ID or name.
func generate(r *rand.Rand, images, pods int) (gc.Facts, gc.Policy, gc.Options) {
	f := gc.Facts{SandboxImages: map[string]string{"containerd": "quay.io/org/i1:1"}}
	hours := func(n int) time.Duration { return time.Duration(r.IntN(n*60)) * time.Minute }
	for i := range images {
		f.Images = append(f.Images, fact(fmt.Sprintf("i%d", i), hours(48), func(img *gc.ImageFact) {
			img.FirstSeen = ago(hours(96))
			img.SizeBytes = uint64(r.IntN(300)) * mib
			img.Pinned = r.IntN(20) == 0
			if r.IntN(3) == 0 {
				img.Runtime = "docker"
			}
			if r.IntN(4) == 0 {
				img.LastUsed = time.Time{}
			}
			if r.IntN(8) == 0 {
				img.Digests = nil
			}
			if r.IntN(15) == 0 {
				img.Labels = map[string]string{runtime.LabelKeep: "true"}
			}
			if r.IntN(10) == 0 {
				img.LastUsed = ago(time.Duration(r.IntN(180)) * time.Second)
			}
		}))
	}
	states := []runtime.ContainerState{runtime.Unknown, runtime.Created, runtime.Running, runtime.Exited, runtime.Exited, runtime.Exited}
	for i := range pods {
		var containers []runtime.Container
		for j := range r.IntN(6) {
			c := exited(fmt.Sprintf("c%d-%d", i, j), fmt.Sprintf("name%d", r.IntN(3)), hours(24))
			if c.State = states[r.IntN(len(states))]; c.State != runtime.Exited {
				c.FinishedAt = time.Time{}
			}
			switch img := f.Images[r.IntN(len(f.Images))]; r.IntN(3) {
			case 0:
				c.ImageID = img.ID
			case 1:
				c.Image = img.Tags[0]
			default: // its name may refer to another image now
				c.ImageID, c.Image = img.ID, f.Images[r.IntN(len(f.Images))].Tags[0]
			}
			if r.IntN(12) == 0 {
				c.Labels = map[string]string{runtime.LabelKeep: "true"}
			}
			containers = append(containers, c)
		}
		p := podWith(fmt.Sprintf("p%d", i), containers...)
		p.CreatedAt, p.Sandbox = ago(hours(24)), r.IntN(10) > 0
		p.Gone, p.Ready = r.IntN(8) == 0, r.IntN(3) > 0
		if r.IntN(5) == 0 && i > 0 {
			p.UID = f.Pods[i-1].UID // the sandbox was created again
		}
		if r.IntN(15) == 0 {
			p.Annotations = map[string]string{runtime.LabelKeep: "true"}
		}
		f.Pods = append(f.Pods, p)
	}
	f.Kubelet = r.IntN(4) == 0
	f.ProtectedPods, f.ProtectedLogs = map[gc.PodKey]gc.Kept{}, map[string]gc.Kept{}
	for _, p := range f.Pods {
		if r.IntN(8) == 0 {
			f.ProtectedPods[gc.PodKey{Runtime: p.Runtime, ID: p.ID}], f.ProtectedLogs[p.UID] = gc.Kept{gc.LastShutdown, "a day"}, gc.Kept{gc.Drained, "a day"}
		}
	}
	generateLogs(r, &f, pods)
	used := uint64(r.IntN(1001))
	for _, name := range []string{"containerd", "docker"} {
		u := disk(used, uint64(r.IntN(1001)))
		u.Runtime = name
		if name == "docker" && used%2 == 0 {
			u.Mountpoint, u.Device = "/srv", "/dev/sdb1"
			u.AvailableBytes = uint64(r.IntN(1001)) * mib
		}
		f.Filesystems = append(f.Filesystems, u)
	}
	p := gc.DefaultPolicy()
	p.Images.LowPercent = r.IntN(p.Images.HighPercent)
	p.Images.IncludeLocal = r.IntN(3) == 0
	if r.IntN(3) == 0 {
		p.Images.MaximumAge = time.Hour + hours(48)
	}
	p.Images.Keep, _ = gc.ParsePatterns([]string{"*/i?3:*", "quay.io/org/i7"})
	p.Containers = gc.ContainerPolicy{MinimumAge: hours(6), AbandonedAge: hours(3), MaxPerPodContainer: r.IntN(4) - 1, MaxContainers: r.IntN(pods+2) - 1}
	o := gc.Options{AllUnused: r.IntN(6) == 0}
	if !o.AllUnused && r.IntN(4) == 0 {
		o.TargetPercent = 1 + r.IntN(100)
	}
	return f, p, o
}

func FuzzPlan(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		facts, policy, options := generate(r, 1+r.IntN(60), 1+r.IntN(20))
		if seed%2 == 1 {
			share(r, &facts)
		}
		d := gc.Plan(facts, policy, now, options)
		checkSharing(t, facts, d)
		if len(d.Images) != len(facts.Images) {
			t.Fatalf("Plan() decides on %d images, want %d", len(d.Images), len(facts.Images))
		}
		checkImages(t, facts, policy, options, d)
		checkContainers(t, facts, policy, options, d)
		checkPods(t, facts, policy, d)
		checkLogs(t, facts, policy, d)

		// The same facts in another order give the same plan.
		r.Shuffle(len(facts.Images), func(i, j int) { facts.Images[i], facts.Images[j] = facts.Images[j], facts.Images[i] })
		r.Shuffle(len(facts.Pods), func(i, j int) { facts.Pods[i], facts.Pods[j] = facts.Pods[j], facts.Pods[i] })
		again := gc.Plan(facts, policy, now, options)
		if !reflect.DeepEqual(removedImages(d), removedImages(again)) || !reflect.DeepEqual(removedContainers(d), removedContainers(again)) {
			t.Errorf("Plan(shuffled) removes %v %v, want %v %v", removedImages(again), removedContainers(again), removedImages(d), removedContainers(d))
		}
		if !reflect.DeepEqual(removedPods(d), removedPods(again)) {
			t.Errorf("Plan(shuffled) removes pods %v, want %v", removedPods(again), removedPods(d))
		}
	})
}

// uses reports whether a container uses an image: by its ID, or by its name if it has no ID.
func uses(c runtime.Container, img gc.ImageDecision) bool {
	return c.Runtime == img.Runtime && (c.ImageID == img.ID || c.ImageID == "" && c.Image == img.Names[0])
}

// checkImages checks decisions with its own rules, which are simpler than those of the plan.
func checkImages(t *testing.T, f gc.Facts, p gc.Policy, o gc.Options, d gc.Decisions) {
	leaving := make(map[string]bool)
	for _, c := range d.Containers {
		leaving[c.ID] = c.Action == gc.Remove
	}
	freed := make(map[string]uint64) // bytes by runtime
	lastRemoved := make(map[string]uint64)
	open := make(map[string]bool) // runtimes with a removable image that is kept
	unused := func(img gc.ImageDecision) time.Duration {
		came := now.Sub(img.FirstSeen)
		if img.LastUsed.IsZero() {
			return came
		}
		return min(came, now.Sub(img.LastUsed))
	}
	longest := make(map[gc.Reason]time.Duration)
	for _, img := range d.Images {
		if img.Reason == gc.BelowThreshold {
			open[img.Runtime] = true
		}
		used := false
		for _, pod := range f.Pods {
			used = used || slices.ContainsFunc(pod.Containers, func(c runtime.Container) bool { return uses(c, img) })
		}
		if !used && img.Reason == gc.InUse {
			t.Errorf("Plan() keeps %s as in use, want containers to use the image of their ID alone", img.ID)
		}
		if img.Action == gc.Keep {
			continue
		}
		if last, known := longest[img.Reason]; known && unused(img) > last {
			t.Errorf("Plan() removes %s after one that was unused for less", img.ID)
		}
		longest[img.Reason] = unused(img)
		if _, forRoom := longest[gc.LRU]; forRoom && img.Reason == gc.MaxAge {
			t.Errorf("Plan() removes %s, which exceeds the maximum age, after one that frees space", img.ID)
		}
		if img.Reason == gc.LRU && open[img.Runtime] && len(f.Layers) == 0 {
			t.Errorf("Plan() removes %s for room although an older image stays", img.ID)
		}
		freed[img.Runtime] += img.SizeBytes
		lastRemoved[img.Runtime] = img.SizeBytes
		for _, pod := range f.Pods {
			for _, c := range pod.Containers {
				if uses(c, img) && !leaving[c.ID] {
					t.Errorf("Plan() removes %s, which container %s uses", img.ID, c.ID)
				}
			}
		}
		if age := now.Sub(img.FirstSeen); age < p.Images.MinimumAge || unused(img) < p.Images.MinimumAge {
			t.Errorf("Plan() removes %s, first seen %s and unused for %s", img.ID, age, unused(img))
		}
		fact := f.Images[slices.IndexFunc(f.Images, func(i gc.ImageFact) bool { return i.ID == img.ID })]
		if fact.Pinned || fact.Labels[runtime.LabelKeep] == "true" || (len(fact.Digests) == 0 && !p.Images.IncludeLocal) ||
			slices.ContainsFunc(p.Images.Keep, func(k gc.Pattern) bool { return k.Match(fact.Image) }) ||
			(img.Runtime == "containerd" && img.Names[0] == f.SandboxImages["containerd"]) {
			t.Errorf("Plan() removes %s, which is to be kept", img.ID)
		}
	}
	if o.AllUnused {
		if open["containerd"] || open["docker"] {
			t.Errorf("Plan(all unused) leaves images that nothing protects")
		}
		return
	}
	if len(f.Layers) > 0 {
		return // checkSharing counts what these free
	}
	for _, fs := range d.Filesystems {
		var sum uint64
		stays := false
		for _, name := range fs.Runtimes {
			sum += freed[name]
			stays = stays || open[name]
		}
		if stays && sum < fs.BytesToFree {
			t.Errorf("Plan() frees %d of %d bytes on %s although images are left", sum, fs.BytesToFree, fs.Filesystem)
		}
		if excess := len(fs.Runtimes) == 1 && fs.InodesToFree == 0 && p.Images.MaximumAge == 0 &&
			sum > 0 && sum-lastRemoved[fs.Runtimes[0]] >= fs.BytesToFree; excess {
			t.Errorf("Plan() frees %d bytes on %s where %d were asked: the last image need not go", sum, fs.Filesystem, fs.BytesToFree)
		}
	}
}

func checkContainers(t *testing.T, f gc.Facts, p gc.Policy, o gc.Options, d gc.Decisions) {
	byID := make(map[string]runtime.Container)
	podOf := make(map[string]runtime.Pod)
	for _, pod := range f.Pods {
		for _, c := range pod.Containers {
			byID[c.ID], podOf[c.ID] = c, pod
		}
	}
	counted := 0
	left := make(map[string]int)
	canGo := make(map[string]int)
	for _, c := range d.Containers {
		container := byID[c.ID]
		if c.Action == gc.Keep {
			unit := podOf[c.ID].UID + "/" + c.Name
			if (c.Reason == gc.Newest || c.Reason == gc.TooYoung) && container.State != runtime.Created {
				counted++
				left[unit]++
			}
			if c.Reason == gc.Newest {
				canGo[unit]++
			}
			continue
		}
		pod, since, least := podOf[c.ID], container.FinishedAt, p.Containers.MinimumAge
		switch container.State {
		case runtime.Running:
			t.Errorf("Plan() removes container %s, which runs", c.ID)
		case runtime.Unknown:
			since, least = container.CreatedAt, max(least, p.Containers.AbandonedAge)
		case runtime.Created:
			if since = container.CreatedAt; !pod.Gone {
				least = max(least, p.Containers.AbandonedAge)
			}
		}
		if now.Sub(since) < least {
			t.Errorf("Plan() removes container %s, %v for %s, want it kept for %s", c.ID, container.State, now.Sub(since), least)
		}
		if container.Labels[runtime.LabelKeep] == "true" || keptPod(f, pod) {
			t.Errorf("Plan() removes container %s, which is to be kept", c.ID)
		}
		if c.Reason == gc.PodDead && (pod.Ready || !pod.Sandbox || f.Kubelet) {
			t.Errorf("Plan() removes container %s of a dead pod: %+v", c.ID, pod)
		}
	}
	if o.AllUnused {
		return
	}
	removable := 0
	for unit, n := range left {
		removable += canGo[unit]
		if limit := p.Containers.MaxPerPodContainer; limit >= 0 && n > limit && canGo[unit] > 0 && canGo[unit]+limit > n {
			t.Errorf("Plan() leaves %d dead containers of %s, %d of them removable, want at most %d", n, unit, canGo[unit], limit)
		}
	}
	if limit := p.Containers.MaxContainers; limit >= 0 && counted > limit && removable > 0 {
		t.Errorf("Plan() leaves %d dead containers, %d of them removable, want at most %d", counted, removable, limit)
	}
}
