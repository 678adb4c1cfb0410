package maintenance_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/internal/statefile"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/journal"
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

// Even root cannot read a loop of links.
func TestAFileOfDrainedPodsThatCannotBeReadIsReadBeforeItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, intact := t.TempDir(), t.TempDir()
		open := func(path string) (*statefile.Folder, *maintenance.Drained) {
			folder, err := statefile.Open(path, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			return folder, maintenance.OpenDrained(folder.File("drained"))
		}
		stops := func(d *maintenance.Drained, id string) {
			d.Take(&journal.Record{Pods: []journal.PodRecord{{Runtime: "docker", ID: id, StartedAt: time.Now()}}}, time.Now())
		}
		folder, drained := open(intact)
		stops(drained, "a")
		if err := folder.Close(); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(path, "drained.state")
		if err := os.Symlink("drained.state", file); err != nil {
			t.Fatal(err)
		}
		folder, drained = open(path)
		stops(drained, "b")
		if err := folder.Flush(); err != nil {
			t.Fatal(err)
		}
		if to, err := os.Readlink(file); err != nil || to != "drained.state" {
			t.Errorf("the file is a link to %q, %v, want it as it was", to, err)
		}
		if err := os.Rename(filepath.Join(intact, "drained.state"), file); err != nil {
			t.Fatal(err)
		}
		if drained.Unread() {
			t.Error("Unread() = true of a file that can be read again")
		}
		if err := folder.Close(); err != nil {
			t.Fatal(err)
		}
		folder, drained = open(path)
		defer folder.Close()
		if got := drained.Kept(time.Now()); len(got) != 2 {
			t.Errorf("Kept() after a restart = %v, want a and b", got)
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
