package backend

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/agent/settings"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/collect"
	"hostler.io/hostler/gc/lastused"
	"hostler.io/hostler/gc/meter"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
)

// factsOf has the facts of a Docker or Podman on an almost full filesystem: a used image, an unused
// one, one built here, and a stopped container.
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

// configured returns the collections of a host with one runtime.
func configured(t *testing.T, r config.Runtime, images, containers config.Switch) *Collections {
	t.Helper()
	cfg := config.Default()
	cfg.Node.Name, cfg.Runtimes = "node-a", config.Runtimes{List: []config.Runtime{r}}
	cfg.ImageGC.Enabled, cfg.ContainerGC.Enabled = images, containers
	policies, err := open.NewPolicies(cfg, cfg.Node.Name, "")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	runtimes, err := open.Runtimes(cfg.Runtimes, func(string, string, time.Duration, error) {}, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = runtimes.Close() })
	o := runs.Options{
		Survey:   &survey.Survey{Runtimes: func() []survey.Runtime { return nil }, Meter: &meter.Statfs{}, Uses: &lastused.Tracker{}},
		Interval: time.Minute, Log: log,
	}
	c := &Collections{Survey: o.Survey, Runtimes: runtimes, Settings: settings.New(cfg, policies, settings.Source{}), Unread: func() string { return "" }}
	if c.Unused, err = collect.NewImages(policies.GC.Images, collect.First{}, o); err != nil {
		t.Fatal(err)
	}
	if c.Dead, err = collect.NewContainers(policies.GC.Containers, o); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNothingIsCollectedOnRequestWhileItIsUnknownWhatMustBeKept(t *testing.T) {
	c := configured(t, config.Runtime{Type: "docker", Endpoint: "/run/docker.sock"}, config.On, config.On)
	for _, why := range []string{"", journal.ErrUnread.Error()} {
		c.Unread = func() string { return why }
		for _, req := range []api.CollectRequest{{}, {Images: true}, {Containers: true}} {
			if _, err := c.Collect(t.Context(), req, nil); (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
				t.Errorf("Collect(%+v) = %v, want that it is refused because %q", req, err, why)
			}
		}
		if plan, err := c.CollectPlan(t.Context(), api.CollectRequest{}); err != nil || plan.Message != why {
			t.Errorf("CollectPlan() has message %q, %v, want %q", plan.Message, err, why)
		}
	}
}

func TestNothingThatPeopleBuildGoesByItselfUnlessAsked(t *testing.T) {
	for name, tt := range map[string]struct {
		image, container   config.Switch
		images, containers bool // whether they wait for a request
	}{
		"auto":         {config.Auto, config.Auto, true, true},
		"switched on":  {config.On, config.On, false, false},
		"images alone": {config.On, config.Auto, false, true},
		"switched off": {config.Off, config.Off, false, false},
	} {
		for _, kind := range []string{"docker", "podman"} {
			t.Run(kind+" "+name, func(t *testing.T) {
				c := configured(t, config.Runtime{Type: kind, Endpoint: "/run/no-such/" + kind + ".sock"}, tt.image, tt.container)
				facts := factsOf(kind)
				images, containers := c.onRequest(facts, c.planned(facts))
				if (images != nil) != tt.images || (containers != nil) != tt.containers {
					t.Fatalf("onRequest() = %+v, %+v, want some: %t, %t", images, containers, tt.images, tt.containers)
				}
				if images != nil && (images.Unused != 1 || images.Bytes != 6<<20 || !slices.Equal(images.Full, []string{"/var/lib/docker"}) || !slices.Equal(images.Runtimes, []string{kind})) {
					t.Errorf("onRequest() = %+v, want the image that is not used, its own 6 MiB, and the full filesystem", images)
				}
				if containers != nil && containers.Unused != 1 {
					t.Errorf("onRequest() = %+v, want the stopped container", containers)
				}
			})
		}
	}
	c := configured(t, config.Runtime{Type: "cri", Endpoint: "/run/no-such-containerd.sock"}, config.Auto, config.Auto)
	if images, containers := c.onRequest(factsOf("docker"), c.planned(factsOf("docker"))); images != nil || containers != nil {
		t.Errorf("onRequest() without Docker = %+v, %+v, want nothing", images, containers)
	}
}
