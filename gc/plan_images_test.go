package gc_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

func TestPlanImages(t *testing.T) {
	abc := func() []gc.ImageFact {
		return []gc.ImageFact{fact("b", 2*time.Hour), fact("c", time.Hour), fact("a", 3*time.Hour)}
	}
	tests := []struct {
		name    string
		images  []gc.ImageFact
		usage   gc.Usage
		policy  func(*gc.ImagePolicy)
		options gc.Options
		want    []string
	}{
		{name: "below the high threshold nothing goes", images: abc(), usage: disk(840, 0)},
		{name: "at the high threshold the oldest go until the low one is reached", images: abc(), usage: disk(850, 0), want: []string{"a lru"}},
		{name: "usage is rounded up, as it is shown", images: abc(), usage: func() gc.Usage { u := disk(840, 0); u.AvailableBytes--; return u }(), want: []string{"a lru"}},
		{name: "as many go as the low threshold needs", images: abc(), usage: disk(950, 0), want: []string{"a lru", "b lru"}},
		{name: "all go if that is not enough", images: abc(), usage: disk(1000, 0), policy: func(p *gc.ImagePolicy) { p.LowPercent = 10 }, want: []string{"a lru", "b lru", "c lru"}},
		{name: "a high threshold of 100 is off", images: abc(), usage: disk(1000, 0), policy: func(p *gc.ImagePolicy) { p.HighPercent = gc.ThresholdOff }},
		{name: "inodes alone start a collection", images: abc(), usage: disk(500, 900), want: []string{"a lru"}},
		{name: "inodes off", images: abc(), usage: disk(500, 1000), policy: func(p *gc.ImagePolicy) { p.InodesHighPercent = gc.ThresholdOff }},
		{name: "a filesystem without a number of inodes", images: abc(), usage: func() gc.Usage { u := disk(850, 0); u.Inodes, u.InodesFree = 0, 0; return u }(), want: []string{"a lru"}},
		{name: "a target collects below the high threshold", images: abc(), usage: disk(700, 0), options: gc.Options{TargetPercent: 55}, want: []string{"a lru", "b lru"}},
		{name: "a target that is met removes nothing", images: abc(), usage: disk(500, 0), options: gc.Options{TargetPercent: 55}},
		{name: "all unused go whatever the room", images: abc(), usage: disk(100, 0), options: gc.Options{AllUnused: true}, want: []string{"a all-unused", "b all-unused", "c all-unused"}},
		{name: "a run that has started continues to the low threshold", images: abc(), usage: disk(840, 0), options: gc.Options{StartedSpace: []string{"/var/lib"}}, want: []string{"a lru"}},
		{name: "what has begun for want of inodes does not free space", images: abc(), usage: disk(840, 0), options: gc.Options{StartedInodes: []string{"/var/lib"}}},
		{name: "what has begun for want of space does not free inodes", images: abc(), usage: disk(500, 880), options: gc.Options{StartedSpace: []string{"/var/lib"}}},
		{name: "past the maximum age", images: abc(), usage: disk(100, 0), policy: func(p *gc.ImagePolicy) { p.MaximumAge = 90 * time.Minute }, want: []string{"a max-age", "b max-age"}},
		{name: "at the maximum age it stays", images: abc(), usage: disk(100, 0), policy: func(p *gc.ImagePolicy) { p.MaximumAge = 3 * time.Hour }},
		{name: "what age removes counts for room", images: abc(), usage: disk(950, 0), policy: func(p *gc.ImagePolicy) { p.MaximumAge = 90 * time.Minute }, want: []string{"a max-age", "b max-age"}},
		{
			name:   "age without a known use counts from when it was first seen",
			images: []gc.ImageFact{fact("a", 0, func(f *gc.ImageFact) { f.LastUsed, f.FirstSeen = time.Time{}, ago(time.Hour) }), fact("b", 0, func(f *gc.ImageFact) { f.LastUsed, f.FirstSeen = time.Time{}, ago(3*time.Hour) })},
			usage:  disk(100, 0), policy: func(p *gc.ImagePolicy) { p.MaximumAge = 2 * time.Hour }, want: []string{"b max-age"},
		},
		{
			name:   "maximum age does not take an image that was just pulled",
			images: []gc.ImageFact{fact("a", 5*time.Hour, func(f *gc.ImageFact) { f.FirstSeen = ago(time.Second) })},
			usage:  disk(100, 0), policy: func(p *gc.ImagePolicy) { p.MaximumAge = 2 * time.Hour },
		},
		{
			name:   "maximum age does not take an image that was pulled again within it, past the minimum age or not",
			images: []gc.ImageFact{fact("a", 5*time.Hour, func(f *gc.ImageFact) { f.FirstSeen = ago(time.Hour) })},
			usage:  disk(100, 0), policy: func(p *gc.ImagePolicy) { p.MaximumAge = 2 * time.Hour },
		},
		{
			name:   "images over the maximum age are removed first, and the space that they free counts",
			images: []gc.ImageFact{fact("pulled-again", 5*time.Hour, func(f *gc.ImageFact) { f.FirstSeen = ago(time.Hour) }), fact("old", 4*time.Hour)},
			usage:  disk(850, 0), policy: func(p *gc.ImagePolicy) { p.MaximumAge = 2 * time.Hour }, want: []string{"old max-age"},
		},
		{
			name: "equal use: first seen longer ago goes first, then the larger, then by ID",
			images: []gc.ImageFact{
				fact("d", time.Hour), fact("c", time.Hour), fact("b", time.Hour, func(f *gc.ImageFact) { f.SizeBytes = 200 * mib }),
				fact("a", time.Hour, func(f *gc.ImageFact) { f.FirstSeen = ago(2000 * time.Hour) }),
			},
			usage: disk(100, 0), options: gc.Options{AllUnused: true},
			want: []string{"a all-unused", "b all-unused", "c all-unused", "d all-unused"},
		},
		{
			name:   "an image never used goes by when it was first seen",
			images: []gc.ImageFact{fact("used", 2*time.Hour), fact("fresh", 0, func(f *gc.ImageFact) { f.LastUsed, f.FirstSeen = time.Time{}, ago(time.Hour) }), fact("stale", 0, func(f *gc.ImageFact) { f.LastUsed, f.FirstSeen = time.Time{}, ago(3*time.Hour) })},
			usage:  disk(100, 0), options: gc.Options{AllUnused: true},
			want: []string{"stale all-unused", "used all-unused", "fresh all-unused"},
		},
		{
			name:   "an image that was pulled again goes by that, as somebody wants it",
			images: []gc.ImageFact{fact("pulled-again", 1000*time.Hour, func(f *gc.ImageFact) { f.FirstSeen = ago(time.Hour) }), fact("used", 2*time.Hour)},
			usage:  disk(850, 0), want: []string{"used lru"},
		},
		{
			name: "what others share is not freed",
			images: []gc.ImageFact{
				fact("a", 3*time.Hour, func(f *gc.ImageFact) { f.SharedBytes, f.SharedKnown = 99*mib, true }), fact("b", 2*time.Hour),
			},
			usage: disk(850, 0), want: []string{"a lru", "b lru"},
		},
		{
			name:   "a runtime that is left alone",
			images: abc(), usage: disk(990, 0), options: gc.Options{LeaveAlone: []string{"containerd"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := gc.DefaultPolicy()
			if tt.policy != nil {
				tt.policy(&p.Images)
			}
			d := gc.Plan(gc.Facts{Images: tt.images, Filesystems: []gc.Usage{tt.usage}}, p, now, tt.options)
			if got := removedImages(d); !slices.Equal(got, tt.want) {
				t.Errorf("Plan() removes %v, want %v", got, tt.want)
			}
		})
	}
}

func TestPlanProtectsImages(t *testing.T) {
	use := func(change func(*runtime.Container)) []runtime.Pod {
		c := runtime.Container{ID: "c1", Name: "web", State: runtime.Running}
		change(&c)
		return []runtime.Pod{podWith("shop", c)}
	}
	tests := []struct {
		name   string
		facts  gc.Facts
		image  func(*gc.ImageFact)
		policy func(*gc.ImagePolicy)
		want   gc.Reason
		detail string
	}{
		{name: "used by ID", facts: gc.Facts{Pods: use(func(c *runtime.Container) { c.ImageID = "sha256:x" })}, want: gc.InUse, detail: "default/shop/web (Running)"},
		{name: "used by tag", facts: gc.Facts{Pods: use(func(c *runtime.Container) { c.Image = "quay.io/org/x:1" })}, want: gc.InUse},
		{name: "used by digest in the place of the ID", facts: gc.Facts{Pods: use(func(c *runtime.Container) { c.ImageID = "quay.io/org/x@sha256:x" })}, want: gc.InUse},
		{name: "used by tag and digest", facts: gc.Facts{Pods: use(func(c *runtime.Container) { c.Image = "quay.io/org/x:other@sha256:x" })}, want: gc.InUse},
		{name: "used by a short name", facts: gc.Facts{Pods: use(func(c *runtime.Container) { c.Image = "nginx" })}, image: func(f *gc.ImageFact) { f.Tags = []string{"docker.io/library/nginx:latest"} }, want: gc.InUse},
		{name: "used by an ID without its algorithm", image: func(f *gc.ImageFact) { f.ID = someDigest }, facts: gc.Facts{Pods: use(func(c *runtime.Container) { c.ImageID = strings.TrimPrefix(someDigest, "sha256:") })}, want: gc.InUse},
		{name: "used by a dead container", facts: gc.Facts{Pods: use(func(c *runtime.Container) {
			c.ImageID, c.State, c.FinishedAt = "sha256:x", runtime.Exited, ago(time.Hour)
		})}, want: gc.InUse, detail: "Exited"},
		{name: "used by a container that never started", facts: gc.Facts{Pods: use(func(c *runtime.Container) { c.ImageID, c.State = "sha256:x", runtime.Created })}, want: gc.InUse},
		{name: "used by a container in an unknown state", facts: gc.Facts{Pods: use(func(c *runtime.Container) { c.ImageID, c.State = "sha256:x", runtime.Unknown })}, want: gc.InUse},
		{name: "used by several, of which one runs", facts: gc.Facts{Pods: []runtime.Pod{podWith(
			"shop",
			runtime.Container{ID: "c1", Name: "old", ImageID: "sha256:x", State: runtime.Exited},
			runtime.Container{ID: "c2", Name: "new", Image: "quay.io/org/x:1", State: runtime.Created},
			runtime.Container{ID: "c3", Name: "web", ImageID: "sha256:x", Image: "quay.io/org/x:1", State: runtime.Running},
			runtime.Container{ID: "c4", Name: "lost", ImageID: "sha256:x", Image: "quay.io/org/x:1", State: runtime.Unknown},
		)}}, want: gc.InUse, detail: "default/shop/web (Running) and 3 more"},
		{name: "used by what no pod list shows", image: func(f *gc.ImageFact) { f.UsedBy = []string{"namespace moby"} }, want: gc.InUse, detail: "moby"},
		{name: "pinned", image: func(f *gc.ImageFact) { f.Pinned = true }, want: gc.Pinned},
		{name: "the sandbox image by tag, without a pin", facts: gc.Facts{SandboxImages: map[string]string{"containerd": "quay.io/org/x:1"}}, want: gc.Protected, detail: "sandbox"},
		{name: "the sandbox image by digest", facts: gc.Facts{SandboxImages: map[string]string{"containerd": "quay.io/org/x:1@sha256:x"}}, want: gc.Protected, detail: "sandbox"},
		{name: "the sandbox image by ID", facts: gc.Facts{SandboxImages: map[string]string{"containerd": "sha256:x"}}, image: func(f *gc.ImageFact) { f.Tags = []string{"sha256:x"} }, want: gc.Protected},
		{name: "a pause image where the runtime reports none", image: func(f *gc.ImageFact) { f.Tags = []string{"registry.k8s.io/pause:3.10"} }, want: gc.Protected, detail: "name of a sandbox image"},
		{name: "a pause image that is not the runtime's", facts: gc.Facts{SandboxImages: map[string]string{"containerd": "other/pause:1"}}, image: func(f *gc.ImageFact) { f.Tags = []string{"registry.k8s.io/pause:3.10"} }, want: gc.AllUnused},
		{name: "a keep pattern", policy: keep("quay.io/org/*"), want: gc.Protected, detail: "pattern quay.io/org/*"},
		{name: "a keep pattern that matches one of several names", image: func(f *gc.ImageFact) { f.Tags = append(f.Tags, "docker.io/library/base:1") }, policy: keep("base"), want: gc.Protected},
		{name: "a keep pattern for something else", policy: keep("quay.io/other/*"), want: gc.AllUnused},
		{name: "a keep label", image: func(f *gc.ImageFact) { f.Labels = map[string]string{runtime.LabelKeep: "true"} }, want: gc.Protected, detail: "label"},
		{name: "a keep label that says no", image: func(f *gc.ImageFact) { f.Labels = map[string]string{runtime.LabelKeep: "false"} }, want: gc.AllUnused},
		{name: "a keep label that says neither", image: func(f *gc.ImageFact) { f.Labels = map[string]string{runtime.LabelKeep: "yes"} }, want: gc.Protected, detail: `"yes", neither "true" nor "false"`},
		{name: "an empty keep label", image: func(f *gc.ImageFact) { f.Labels = map[string]string{runtime.LabelKeep: ""} }, want: gc.Protected, detail: `"", neither`},
		{name: "labels not reported yet", image: func(f *gc.ImageFact) { f.LabelsUnknown = true }, want: gc.Protected, detail: "not reported its labels"},
		{name: "built here", image: func(f *gc.ImageFact) { f.Digests = nil }, want: gc.Local},
		{name: "built here, and included", image: func(f *gc.ImageFact) { f.Digests = nil }, policy: func(p *gc.ImagePolicy) { p.IncludeLocal = true }, want: gc.AllUnused},
		{name: "first seen a moment ago", image: func(f *gc.ImageFact) { f.FirstSeen = ago(time.Minute) }, want: gc.TooYoung, detail: "may be removed in 1m0s"},
		{name: "never seen before", image: func(f *gc.ImageFact) { f.FirstSeen, f.LastUsed = time.Time{}, time.Time{} }, want: gc.TooYoung},
		{name: "used a moment ago", image: func(f *gc.ImageFact) { f.LastUsed = ago(40*time.Second + time.Millisecond) }, want: gc.TooYoung, detail: "may be removed in 1m20s"},
		{name: "in the store since a moment ago", image: func(f *gc.ImageFact) { f.CreatedAt = ago(time.Minute) }, want: gc.TooYoung},
		{name: "seen in the future, after a step of the clock", image: func(f *gc.ImageFact) { f.FirstSeen = ago(-time.Hour) }, want: gc.TooYoung},
		{name: "used at the minimum age", image: func(f *gc.ImageFact) { f.LastUsed = ago(2 * time.Minute) }, want: gc.AllUnused},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			img := fact("x", time.Hour)
			if tt.image != nil {
				tt.image(&img)
			}
			p := gc.DefaultPolicy()
			if tt.policy != nil {
				tt.policy(&p.Images)
			}
			tt.facts.Images = []gc.ImageFact{img}
			tt.facts.Filesystems = []gc.Usage{disk(1000, 1000)}
			d := gc.Plan(tt.facts, p, now, gc.Options{Images: true, AllUnused: true}).Images[0]
			if d.Reason != tt.want || !strings.Contains(d.Detail, tt.detail) || (d.Action == gc.Remove) != (tt.want == gc.AllUnused) {
				t.Errorf("Plan() = %s %s (%s), want %s (%s)", d.Action, d.Reason, d.Detail, tt.want, tt.detail)
			}
		})
	}
}

func keep(patterns ...string) func(*gc.ImagePolicy) {
	return func(p *gc.ImagePolicy) {
		var err error
		if p.Keep, err = gc.ParsePatterns(patterns); err != nil {
			panic(err)
		}
	}
}

func TestPlanWithoutUsableFigures(t *testing.T) {
	tests := []struct {
		name   string
		change func(*gc.Usage)
		want   string
	}{
		{"capacity 0, as for a while after boot", func(u *gc.Usage) { u.CapacityBytes, u.AvailableBytes = 0, 0 }, "capacity is 0"},
		{"usage cannot be asked", func(u *gc.Usage) { u.Err = errors.New("statfs: input/output error") }, "input/output"},
		{"more free than there is", func(u *gc.Usage) { u.AvailableBytes = 2 * u.CapacityBytes }, "more space"},
		{"more inodes free than there are", func(u *gc.Usage) { u.InodesFree = 2 * u.Inodes }, "more inodes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := disk(1000, 1000)
			tt.change(&u)
			p := gc.DefaultPolicy()
			p.Images.MaximumAge = time.Hour
			facts := gc.Facts{Images: []gc.ImageFact{fact("a", 5*time.Hour)}, Filesystems: []gc.Usage{u}}
			d := gc.Plan(facts, p, now, gc.Options{})
			if got := d.Images[0]; got.Action != gc.Keep || got.Reason != gc.UnknownUsage {
				t.Errorf("Plan() = %s %s, want keep %s", got.Action, got.Reason, gc.UnknownUsage)
			}
			if fs := d.Filesystems[0]; !strings.Contains(fs.Message, tt.want) || fs.Short() {
				t.Errorf("Plan() filesystem = %+v, want a message with %q and nothing to free", fs, tt.want)
			}
			if got := removedImages(gc.Plan(facts, p, now, gc.Options{AllUnused: true})); len(got) != 1 {
				t.Errorf("Plan(all unused) removes %v, want the images that a person requested", got)
			}
		})
	}
}

func TestPlanOnSeveralFilesystems(t *testing.T) {
	docker := func(name string, lastUsed time.Duration) gc.ImageFact {
		return fact(name, lastUsed, func(f *gc.ImageFact) { f.Runtime = "docker" })
	}
	images := []gc.ImageFact{fact("a", 4*time.Hour), docker("b", 3*time.Hour), fact("c", 2*time.Hour), docker("d", time.Hour)}
	own := disk(950, 0)
	own.Runtime, own.Mountpoint, own.Device = "docker", "/srv", "/dev/sdb1"
	shared := disk(950, 0)
	shared.Runtime = "docker"

	got := removedImages(gc.Plan(gc.Facts{Images: images, Filesystems: []gc.Usage{disk(500, 0), own}}, gc.DefaultPolicy(), now, gc.Options{}))
	if want := []string{"b lru", "d lru"}; !slices.Equal(got, want) {
		t.Errorf("Plan(one full filesystem of two) removes %v, want %v", got, want)
	}
	d := gc.Plan(gc.Facts{Images: images, Filesystems: []gc.Usage{disk(950, 0), shared}}, gc.DefaultPolicy(), now, gc.Options{})
	if got, want := removedImages(d), []string{"a lru", "b lru"}; !slices.Equal(got, want) {
		t.Errorf("Plan(two runtimes on one filesystem) removes %v, want %v", got, want)
	}
	if len(d.Filesystems) != 1 || !slices.Equal(d.Filesystems[0].Runtimes, []string{"containerd", "docker"}) {
		t.Errorf("Plan(two runtimes on one filesystem) filesystems = %+v, want one of both", d.Filesystems)
	}
}

// A container that the same plan removes first no longer uses its image.
func TestPlanOfBothFreesImagesOfLeavingContainers(t *testing.T) {
	old := exited("old", "job", 3*time.Hour)
	old.ImageID = "sha256:a"
	kept := exited("kept", "job", time.Hour)
	kept.ImageID = "sha256:b"
	facts := gc.Facts{
		Images: []gc.ImageFact{fact("a", 3*time.Hour), fact("b", 2*time.Hour)},
		Pods:   []runtime.Pod{podWith("p", old, kept)}, Filesystems: []gc.Usage{disk(1000, 0)},
	}
	both := gc.Plan(facts, gc.DefaultPolicy(), now, gc.Options{})
	if got, want := removedImages(both), []string{"a lru"}; !slices.Equal(got, want) {
		t.Errorf("Plan(both) removes images %v, want %v", got, want)
	}
	if got := decisionOn(both, "b").Reason; got != gc.InUse {
		t.Errorf("Plan(both) keeps the image of the container that stays as %s, want %s", got, gc.InUse)
	}
	if got := removedImages(gc.Plan(facts, gc.DefaultPolicy(), now, gc.Options{Images: true})); len(got) != 0 {
		t.Errorf("Plan(images) removes %v, want nothing that a container holds", got)
	}
}

func TestPlanJSON(t *testing.T) {
	facts := gc.Facts{
		Images: []gc.ImageFact{fact("a", time.Hour)}, Filesystems: []gc.Usage{disk(870, 100)},
		Pods: []runtime.Pod{podWith("p", exited("c1", "job", time.Hour))},
	}
	got, err := json.Marshal(gc.Plan(facts, gc.DefaultPolicy(), now, gc.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"filesystems":[{"filesystem":"/var/lib","mountpoint":"/var/lib","device":"/dev/sda2","runtimes":["containerd"],` +
		`"capacityBytes":1048576000,"availableBytes":136314880,"usedPercent":87,"inodesUsedPercent":10,"bytesToFree":73400320,"inodesToFree":0}],` +
		`"images":[{"id":"sha256:a","names":["quay.io/org/a:1","quay.io/org/a@sha256:a"],"sizeBytes":104857600,` +
		`"firstSeen":"2026-10-09T20:00:00Z","lastUsed":"2026-11-20T11:00:00Z","action":"remove","reason":"lru","runtime":"containerd","filesystem":"/var/lib"}],` +
		`"containers":[{"id":"c1","name":"job","pod":"default/p","exitedAt":"2026-11-20T11:00:00Z","action":"keep","reason":"newest","runtime":"containerd"}],"pods":[],"logs":[]}`
	if string(got) != want {
		t.Errorf("Plan() as JSON = %s\nwant %s", got, want)
	}
	empty, err := json.Marshal(gc.Plan(gc.Facts{}, gc.DefaultPolicy(), now, gc.Options{}))
	if want := `{"filesystems":[],"images":[],"containers":[],"pods":[],"logs":[]}`; err != nil || string(empty) != want {
		t.Errorf("Plan(nothing) as JSON = %s, %v, want %s", empty, err, want)
	}
}
