package agent

import (
	"slices"
	"testing"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/gc/runs"
)

func TestAutomaticRunsLeaveAloneWhatPeopleBuild(t *testing.T) {
	for name, c := range map[string]struct {
		image, container   config.Switch
		images, containers bool // removed on request only
	}{
		"auto":         {config.Auto, config.Auto, true, true},
		"switched on":  {config.On, config.On, false, false},
		"images alone": {config.On, config.Auto, false, true},
	} {
		for _, kind := range []string{"docker", "podman", "cri"} {
			t.Run(kind+" "+name, func(t *testing.T) {
				r := newRig(t)
				r.cfg.Runtimes = config.Runtimes{List: []config.Runtime{{Type: kind, Endpoint: "/run/no-such/" + kind + ".sock"}}}
				r.cfg.ImageGC.Enabled, r.cfg.ContainerGC.Enabled = c.image, c.container
				a := r.build(t)
				automatic := runs.NewReport("interval")
				for what, want := range map[string]struct {
					excluded []string
					alone    bool
				}{"images": {a.gc.images.ExcludedRuntimes(automatic), c.images}, "containers": {a.gc.dead.ExcludedRuntimes(automatic), c.containers}} {
					if got := slices.Contains(want.excluded, kind); got != (want.alone && kind != "cri") {
						t.Errorf("automatic runs of %s exclude %v, want %s among them: %t", what, want.excluded, kind, want.alone && kind != "cri")
					}
				}
			})
		}
	}
}
