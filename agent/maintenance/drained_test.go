package maintenance_test

import (
	"slices"
	"testing"
	"time"

	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/runtime/runtimetest"
)

func TestWhatADrainStopsIsKeptForADay(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		drainer, _ := d.guarded(t,
			runtimetest.ContainerSpec{Name: "web"}, runtimetest.ContainerSpec{Name: "dns", Labels: criticalLabel},
		)
		kept := func(drained *maintenance.Drained) (ids []string) {
			for _, p := range drained.Kept(time.Now()) {
				ids = append(ids, p.ID)
			}
			slices.Sort(ids)
			return ids
		}
		report, err := drainer.Drain(t.Context(), maintenance.DrainRequest{}, func(maintenance.DrainStep) {})
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, p := range report.Pods {
			if p.Name == "web" {
				want = append(want, p.ID)
			}
		}
		if got := kept(d.Drained); len(want) != 1 || !slices.Equal(got, want) {
			t.Errorf("Kept() = %q, want what was stopped alone, %q", got, want)
		}
		time.Sleep(23 * time.Hour)
		if got := kept(d.Drained); !slices.Equal(got, want) {
			t.Errorf("Kept() 23 h later = %q, want %q still", got, want)
		}
		time.Sleep(2 * time.Hour)
		if got := kept(d.Drained); len(got) != 0 {
			t.Errorf("Kept() 25 h later = %q, want none", got)
		}
	})
}
