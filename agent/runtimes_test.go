package agent

import (
	"slices"
	"testing"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/runtime"
)

// factsOf is what a Docker or a Podman with an image that is used, one that is not, one that was
// built here, and a stopped container tells, on a filesystem that is nearly full.
func factsOf(name string) gc.Facts {
	image := func(id string, digests ...string) gc.ImageFact {
		return gc.ImageFact{
			Image:     runtime.Image{Runtime: name, ID: id, Tags: []string{id + ":1"}, Digests: digests, SizeBytes: 10 << 20, SharedBytes: 4 << 20, SharedKnown: true},
			FirstSeen: time.Now().Add(-time.Hour),
		}
	}
	stopped := runtime.Container{
		Runtime: name, ID: "c", PodID: "c", Name: "c", ImageID: "used", State: runtime.Exited,
		CreatedAt: time.Now().Add(-2 * time.Hour), FinishedAt: time.Now().Add(-time.Hour),
	}
	return gc.Facts{
		Images: []gc.ImageFact{image("used", "used@sha256:1"), image("pulled", "pulled@sha256:2"), image("built")},
		Pods:   []runtime.Pod{{Runtime: name, ID: "c", UID: "c", Name: "c", Containers: []runtime.Container{stopped}}},
		Filesystems: []gc.Usage{{
			Filesystem:    runtime.Filesystem{Runtime: name, Mountpoint: "/var/lib/docker"},
			CapacityBytes: 1 << 30, AvailableBytes: 10 << 20, Inodes: 100, InodesFree: 90,
		}},
	}
}

// configured is an agent with one runtime.
func configured(t *testing.T, r config.Runtime, images, containers config.Switch) *Agent {
	t.Helper()
	rig := newRig(t)
	rig.cfg.Runtimes = config.Runtimes{List: []config.Runtime{r}}
	rig.cfg.ImageGC.Enabled, rig.cfg.ContainerGC.Enabled = images, containers
	return rig.build(t)
}

func TestNothingThatPeopleBuildGoesByItselfUnlessAsked(t *testing.T) {
	for name, tt := range map[string]struct {
		image, container   config.Switch
		images, containers bool // wait for a request
	}{
		"auto":         {config.Auto, config.Auto, true, true},
		"switched on":  {config.On, config.On, false, false},
		"images alone": {config.On, config.Auto, false, true},
		"switched off": {config.Off, config.Off, false, false},
	} {
		for _, kind := range []string{"docker", "podman"} {
			t.Run(kind+" "+name, func(t *testing.T) {
				a := configured(t, config.Runtime{Type: kind, Endpoint: "/run/no-such/" + kind + ".sock"}, tt.image, tt.container)
				images, containers := a.onRequest(factsOf(kind))
				if (images != nil) != tt.images || (containers != nil) != tt.containers {
					t.Fatalf("onRequest() = %+v, %+v, want some: %t, %t", images, containers, tt.images, tt.containers)
				}
				if images != nil && (images.Unused != 1 || images.Bytes != 6<<20 || !slices.Equal(images.Full, []string{"/var/lib/docker"}) || !slices.Equal(images.Runtimes, []string{kind})) {
					t.Errorf("onRequest() = %+v, want the image that is not used, its own 6 MiB, and the full filesystem", images)
				}
				if containers != nil && containers.Unused != 1 {
					t.Errorf("onRequest() = %+v, want the stopped container", containers)
				}
				automatic := runs.NewReport("interval")
				for what, spared := range map[string][]string{"images": a.images.Spared(automatic), "containers": a.dead.Spared(automatic)} {
					alone := tt.images
					if what == "containers" {
						alone = tt.containers
					}
					if off := a.config().ImageGC.Enabled == config.Off; !off && slices.Contains(spared, kind) != alone {
						t.Errorf("automatic runs of %s leave %v alone, want %s among them: %t", what, spared, kind, alone)
					}
				}
			})
		}
	}
	a := configured(t, config.Runtime{Type: "cri", Endpoint: "/run/no-such-containerd.sock"}, config.Auto, config.Auto)
	if images, containers := a.onRequest(factsOf("docker")); images != nil || containers != nil {
		t.Errorf("onRequest() without Docker = %+v, %+v, want nothing", images, containers)
	}
}
