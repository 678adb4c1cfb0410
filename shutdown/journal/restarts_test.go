package journal_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/shutdown/journal"
)

// pendingText returns the restarts in a journal, by container: the seconds of its stop signal after
// the first of 2000; "l" if the host did not shut down; "r" if it was restarting; "u" if its unit
// starts it; how long it had run, if known; and the outcome.
func pendingText(j *journal.Journal) string {
	var list []string
	for _, r := range j.Restarts() {
		lived := ""
		if r.HostLived {
			lived = "l"
		}
		if r.Restarting {
			lived += "r"
		}
		if r.ByUnit {
			lived += "u"
		}
		if !r.StartedAt.IsZero() {
			lived += r.StartedAt.Sub(r.AskedAt).String()
		}
		list = append(list, fmt.Sprintf("%s@%v%s%s", r.ID, r.AskedAt.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)), lived, r.Outcome))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// shopDrain is a drain that began now. It has stopped web, and db still waits for web.
func shopDrain() *journal.Record {
	now := time.Now()
	return &journal.Record{BootID: "one", StartedAt: now, Pods: []journal.PodRecord{
		{Runtime: "docker", ID: "shop", StartedAt: now, ContainerMaps: journal.ContainerMaps{Asked: map[string]time.Time{"web": now, "db": {}}, Names: map[string]string{"web": "shop-web", "db": "shop-db"}}},
		{Runtime: "containerd", ID: "pod", StartedAt: now},
	}}
}

func finished(r *journal.Record) *journal.Record { r.FinishedAt = time.Now(); return r }

func cancelled(r *journal.Record) *journal.Record { r.CancelledAt = time.Now(); return r }

func TestPendingRestarts(t *testing.T) {
	start := func(j *journal.Journal, id string, outcome journal.RestartOutcome) {
		for _, r := range j.Restarts() {
			if r.ID == id {
				r.Outcome = outcome
				j.NoteRestart(r)
			}
		}
	}
	for name, tt := range map[string]struct {
		steps func(*journal.Journal)
		now   string // in the same boot
		next  string // in a later boot
	}{
		"nothing happened": {func(*journal.Journal) {}, "", ""},
		"a drain runs":     {func(j *journal.Journal) { j.Put(shopDrain()) }, "", "web@0s"},
		"a drain that met one between two attempts": {func(j *journal.Journal) {
			r := shopDrain()
			r.Pods[0].Restarting = []string{"web"}
			j.Put(r)
		}, "", "web@0sr"},
		"a drain has ended":          {func(j *journal.Journal) { j.Put(finished(shopDrain())) }, "", "web@0s"},
		"a power cut after no drain": {func(j *journal.Journal) { j.Mark([]journal.Ref{{ID: "shop"}}) }, "", ""},
		"a drain of what its unit starts": {func(j *journal.Journal) {
			r := shopDrain()
			r.Pods[0].ByUnit = []string{"web"}
			j.Put(cancelled(r))
			j.Settle()
		}, "web@0slu", "web@0su"},
		"a drain of what nobody starts": {func(j *journal.Journal) {
			r := shopDrain()
			r.Pods[0].NotRestarted = map[string]string{"web": "never"}
			j.Put(cancelled(r))
			j.Settle()
		}, "web@0slleft", ""},
		"a drain of what nobody starts, and a boot": {func(j *journal.Journal) {
			r := shopDrain()
			r.Pods[0].NotRestarted = map[string]string{"web": "never"}
			j.Put(finished(r))
		}, "", "web@0sleft"},
		"a drain of what nobody starts after a boot": {func(j *journal.Journal) {
			r := shopDrain()
			r.Pods[0].NotRestarted = map[string]string{"web": "not-at-boot"}
			j.Put(cancelled(r))
		}, "", "web@0sleft"},
		"a cancelled drain of what nobody starts after a boot": {func(j *journal.Journal) {
			r := shopDrain()
			r.Pods[0].NotRestarted = map[string]string{"web": "not-at-boot"}
			j.Put(cancelled(r))
			j.Settle()
		}, "web@0sl", "web@0s"},
		"a drain of what runs once": {func(j *journal.Journal) {
			r := shopDrain()
			r.Pods[0].Once = true
			j.Put(r)
		}, "", ""},
		"a drain that knows when its run began": {func(j *journal.Journal) {
			r := shopDrain()
			r.Pods[0].Runs = map[string]time.Time{"web": r.StartedAt.Add(-time.Hour)}
			j.Put(r)
		}, "", "web@0s-1h0m0s"},
		"a cancelled drain, not settled":  {func(j *journal.Journal) { j.Put(cancelled(shopDrain())) }, "", "web@0s"},
		"a cancelled drain":               {func(j *journal.Journal) { j.Put(cancelled(shopDrain())); j.Settle() }, "web@0sl", "web@0s"},
		"a drain whose shutdown never is": {func(j *journal.Journal) { j.Put(finished(shopDrain())); j.Settle() }, "web@0sl", "web@0s"},
		"a restart is reported until the next shutdown": {func(j *journal.Journal) {
			j.Put(cancelled(shopDrain()))
			j.Settle()
			start(j, "web", journal.Restarted)
			j.Settle()
		}, "web@0slstarted", ""},
		"a second drain before all was started": {func(j *journal.Journal) {
			r := shopDrain()
			r.Pods[0].Asked["db"] = time.Now()
			j.Put(cancelled(r))
			j.Settle()
			start(j, "db", journal.Restarted)
			time.Sleep(time.Second)
			r = shopDrain()
			delete(r.Pods[0].Asked, "web")
			r.Pods[0].Asked["db"] = time.Now()
			j.Put(cancelled(r))
			j.Settle()
		}, "db@1sl web@0sl", "db@1s web@0s"},
		"a person drains": {func(j *journal.Journal) {
			r := shopDrain()
			r.Pods = append(r.Pods, journal.PodRecord{Runtime: "docker", ID: "dns", Priority: 7, ContainerMaps: journal.ContainerMaps{Asked: map[string]time.Time{"dns": time.Now()}}})
			j.Put(cancelled(r))
			j.Settle()
			j.WaiveRestarts("drained", func(priority int32) bool { return priority == 7 })
		}, "dns@0sl web@0slleft", "dns@0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "shutdown.json")
				j := journal.Open(path, "one", quiet)
				stop := keep(t, j)
				tt.steps(j)
				stop()
				if got := pendingText(j); got != tt.now {
					t.Errorf("Restarts() = %q, want %q", got, tt.now)
				}
				if got := pendingText(journal.Open(path, "one", quiet)); got != tt.now {
					t.Errorf("Restarts() of another process = %q, want %q", got, tt.now)
				}
				next := journal.Open(path, "two", quiet)
				if got := pendingText(next); got != tt.next {
					t.Errorf("Restarts() of the next boot = %q, want %q", got, tt.next)
				}
				for _, r := range next.Restarts() {
					if r.Pod == "shop" && r.Name != "shop-"+r.ID {
						t.Errorf("Restarts() = %+v, want the container's name from the record", r)
					}
				}
				if peeked, err := journal.Peek(path, "two"); len(peeked.Restarts) != len(next.Restarts()) || err != nil && tt.next != "" {
					t.Errorf("Peek() = %+v, %v, want %+v", peeked.Restarts, err, next.Restarts())
				}
			})
		})
	}
}
