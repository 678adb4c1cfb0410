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

// A second drain, which includes critical pods, keeps the pods of the first one until the Node is
// uncordoned.
func TestASecondDrainKeepsTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.register(t)
		drainer, fake := d.guarded(t, runtimetest.ContainerSpec{Name: "web"}, runtimetest.ContainerSpec{Name: "dns", Labels: criticalLabel})
		drain := func(all bool) []string {
			t.Helper()
			report, err := drainer.Drain(t.Context(), maintenance.DrainRequest{All: all}, func(maintenance.DrainStep) {})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, p := range report.Earlier {
				names = append(names, p.Name)
			}
			return names
		}
		drain(false)
		if got := drain(true); !slices.Equal(got, []string{"web"}) {
			t.Errorf("the second drain reports %q of earlier drains, want web", got)
		}
		if got := drain(true); !slices.Equal(got, []string{"web", "dns"}) {
			t.Errorf("a drain with nothing to stop reports %q of earlier drains, want web and dns", got)
		}
		r := d.Guard.Status().Drained
		if r == nil || len(r.Pods) != 1 || r.Pods[0].Name != "dns" || len(r.Earlier) != 1 || r.Earlier[0].Name != "web" {
			t.Errorf("Drained = %+v, want dns, and web of the first drain", r)
		}
		if got := len(d.Drained.Kept(time.Now())); got != 2 {
			t.Errorf("Kept() has %d pods, want both", got)
		}
		if _, err := drainer.Cordon(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		fake.RunPod(runtimetest.PodSpec{ID: "app", Name: "app", Namespace: "ns", Containers: []runtimetest.ContainerSpec{{ID: "app-c", Name: "app", Image: "image"}}})
		if got := drain(false); len(got) != 0 {
			t.Errorf("a drain after hostler uncordon reports %q of earlier drains, want none", got)
		}
	})
}
