package journal_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/shutdown/journal"
)

func TestPodStatus(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	const cut = "Pod was terminated in response to imminent node shutdown."
	for name, c := range map[string]struct {
		record journal.Record
		pod    journal.PodRecord
		want   journal.PodStatus
	}{
		"it ended well": {
			journal.Record{FinishedAt: noon},
			journal.PodRecord{Outcome: journal.Stopped, ExitCodes: map[string]int32{"a": 0, "b": 0}},
			journal.PodStatus{Phase: corev1.PodSucceeded, Reason: "Completed", Message: "its containers exited in time"},
		},
		"SIGTERM ended it": {
			journal.Record{FinishedAt: noon},
			journal.PodRecord{Outcome: journal.Stopped, ExitCodes: map[string]int32{"b": 143, "c": 1, "a": 0}},
			journal.PodStatus{Phase: corev1.PodFailed, Reason: "Error", Message: "container b exited with code 143; container c exited with code 1"},
		},
		"it ended, and no runtime reported how": {
			journal.Record{FinishedAt: noon},
			journal.PodRecord{Outcome: journal.Stopped},
			journal.PodStatus{Phase: corev1.PodUnknown, Message: "its containers exited in time; exit codes unknown"},
		},
		"it was killed": {
			journal.Record{FinishedAt: noon},
			journal.PodRecord{Outcome: journal.Killed, ExitCodes: map[string]int32{"a": 137}},
			journal.PodStatus{Phase: corev1.PodFailed, Reason: "Terminated", Message: cut},
		},
		"it ran when the power went": {
			journal.Record{Trigger: journal.TriggerUnknown},
			journal.PodRecord{Outcome: journal.Left},
			journal.PodStatus{Phase: corev1.PodFailed, Reason: "Terminated", Message: cut},
		},
		"its turn never came": {
			journal.Record{Trigger: journal.TriggerShutdown, FinishedAt: noon},
			journal.PodRecord{Outcome: journal.Skipped},
			journal.PodStatus{Phase: corev1.PodFailed, Reason: "Terminated", Message: cut},
		},
		"the shutdown was cancelled before its turn": {
			journal.Record{Trigger: journal.TriggerShutdown, CancelledAt: noon},
			journal.PodRecord{Outcome: journal.Skipped},
			journal.PodStatus{Phase: corev1.PodRunning},
		},
		"a person exempted it": {
			journal.Record{Trigger: journal.TriggerManual, FinishedAt: noon},
			journal.PodRecord{Outcome: journal.Skipped},
			journal.PodStatus{Phase: corev1.PodRunning},
		},
		"it is being stopped": {
			journal.Record{Trigger: journal.TriggerShutdown},
			journal.PodRecord{},
			journal.PodStatus{Phase: corev1.PodRunning},
		},
	} {
		if got := c.record.PodStatus(c.pod); got != c.want {
			t.Errorf("PodStatus() where %s = %+v, want %+v", name, got, c.want)
		}
	}
}

func TestTheLastShutdownIsKeptForADay(t *testing.T) {
	const day, hour = 24 * time.Hour, time.Hour
	for name, c := range map[string]struct {
		finished bool          // whether the drain had finished at the start
		boot     string        // boot in which the journal is read
		after    time.Duration // from the end to the first read
		since    time.Duration // from there to the tested read
		uptime   time.Duration
		want     bool
	}{
		"at once":                                   {finished: true, boot: "one", uptime: 90 * day, want: true},
		"the same boot, almost a day later":         {finished: true, boot: "one", since: day - hour, uptime: 90 * day, want: true},
		"the same boot, a day later":                {finished: true, boot: "one", since: day, uptime: 90 * day},
		"the boot after, within the day":            {finished: true, boot: "two", after: hour, since: hour, uptime: hour, want: true},
		"the boot after, which came a week later":   {finished: true, boot: "two", after: 7 * day, since: hour, uptime: 2 * hour, want: true},
		"a day after that":                          {finished: true, boot: "two", after: 7 * day, since: day, uptime: day},
		"a soft-reboot, whose kernel ran on":        {finished: true, boot: "two", after: hour, since: hour, uptime: 90 * day, want: true},
		"a soft-reboot that cut a drain off":        {boot: "two", after: hour, since: hour, uptime: 90 * day, want: true},
		"a day after that soft-reboot":              {boot: "two", after: hour, since: day, uptime: 90 * day},
		"a clock that was set right since the boot": {finished: true, boot: "two", after: hour, since: 50 * 365 * day, uptime: hour, want: true},
		"a power cut":                               {boot: "two", after: hour, since: hour, uptime: hour, want: true},
		"a power cut, a day after the boot":         {boot: "two", after: hour, since: day, uptime: day},
		"a drain that continues after a restart":    {boot: "one", since: 7 * day, uptime: 90 * day, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "shutdown.json")
				first := journal.Open(path, "one", quiet)
				stop := keep(t, first)
				record := &journal.Record{BootID: "one", StartedAt: time.Now(), Pods: pods(journal.Stopped)}
				if c.finished {
					record.FinishedAt = time.Now()
				}
				first.Put(record)
				stop()
				time.Sleep(c.after)
				next := journal.Open(path, c.boot, quiet)
				stop = keep(t, next)
				next.Mark([]journal.Ref{})
				stop()
				time.Sleep(c.since)
				again := journal.Open(path, c.boot, quiet) // after a restart of the agent
				got := again.Kept(time.Now(), c.uptime)
				if (len(got) == 1) != c.want || len(got) > 1 || c.want && len(got[0].Pods) != 1 {
					t.Errorf("Kept() = %+v, want it kept: %v", got, c.want)
				}
			})
		})
	}
}

func TestWhatAShutdownStoppedIsKeptAlsoIfItWasCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := journal.Open(filepath.Join(t.TempDir(), "shutdown.json"), "one", quiet)
		before := &journal.Record{BootID: "one", StartedAt: time.Now(), FinishedAt: time.Now(), Pods: pods(journal.Stopped)}
		j.Put(before)
		j.Settle() // the host did not shut down
		time.Sleep(time.Hour)
		cancelled := &journal.Record{BootID: "one", StartedAt: time.Now(), CancelledAt: time.Now(), Pods: pods(journal.Stopped)}
		j.Put(cancelled)
		j.Settle() // when a guard holds its lock again
		for _, c := range []struct {
			after time.Duration
			want  []*journal.Record
		}{{0, []*journal.Record{cancelled, before}}, {23 * time.Hour, []*journal.Record{cancelled}}, {time.Hour, nil}} {
			time.Sleep(c.after)
			if got := j.Kept(time.Now(), 90*24*time.Hour); !slices.Equal(got, c.want) {
				t.Errorf("Kept() after %v more = %+v, want %+v", c.after, got, c.want)
			}
		}
	})
}

func TestWhatACancelledShutdownStoppedIsKeptAcrossABoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "shutdown.json")
		j := journal.Open(path, "one", quiet)
		stop := keep(t, j)
		j.Put(&journal.Record{BootID: "one", StartedAt: time.Now(), CancelledAt: time.Now(), Pods: pods(journal.Stopped)})
		j.Settle()
		j.Unmark()
		stop()
		time.Sleep(time.Hour)
		next := journal.Open(path, "two", quiet)
		stop = keep(t, next)
		next.Mark([]journal.Ref{})
		stop()
		if got := journal.Open(path, "two", quiet).Kept(time.Now(), time.Minute); len(got) != 1 || got[0].CancelledAt.IsZero() {
			t.Errorf("Kept() in the next boot = %+v, want what the cancelled shutdown of the boot before stopped", got)
		}
	})
}

// It is reported until the next shutdown or boot.
func TestAShutdownThatWasCancelledIsReported(t *testing.T) {
	record := func(after time.Duration, cancelled bool, outcomes ...journal.Outcome) *journal.Record {
		r := &journal.Record{BootID: "one", StartedAt: time.Now().Add(after), Pods: pods(outcomes...)}
		if cancelled {
			r.CancelledAt = r.StartedAt.Add(time.Second)
		} else {
			r.FinishedAt = r.StartedAt.Add(time.Second)
		}
		return r
	}
	unanswered := &journal.Record{BootID: "one", StartedAt: time.Now(), Pods: []journal.PodRecord{{ID: "a", StartedAt: time.Now()}, {ID: "b"}}}
	called, last := record(0, true, journal.Stopped), record(time.Hour, false, journal.Stopped)
	unasked := record(time.Minute, true, journal.Skipped)
	unasked.Pods[0].StartedAt = time.Time{}
	for name, c := range map[string]struct {
		records []*journal.Record
		boot    string
		want    *journal.Record
	}{
		"while no process received it":     {[]*journal.Record{unanswered}, "one", unanswered},
		"none was":                         {[]*journal.Record{last}, "one", nil},
		"in this boot":                     {[]*journal.Record{called}, "one", called},
		"and then one that asked nobody":   {[]*journal.Record{called, unasked}, "one", called},
		"and then one that took place":     {[]*journal.Record{called, last}, "one", nil},
		"after one that took place":        {[]*journal.Record{record(-time.Hour, false, journal.Stopped), called}, "one", called},
		"in the boot before":               {[]*journal.Record{called}, "two", nil},
		"nobody was asked in the only one": {[]*journal.Record{unasked}, "one", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "shutdown.json")
				j := journal.Open(path, "one", quiet)
				stop := keep(t, j)
				for _, r := range c.records {
					j.Put(r)
					j.Settle()
				}
				stop()
				for _, got := range []*journal.Record{journal.Open(path, c.boot, quiet).Cancelled(), peek(t, path, c.boot).Cancelled} {
					if (got == nil) != (c.want == nil) || got != nil && !got.StartedAt.Equal(c.want.StartedAt) {
						t.Errorf("Cancelled() = %+v, want %+v", got, c.want)
					}
					if got != nil && c.want == unanswered && (got.CancelledAt.IsZero() || got.Pods[0].Outcome != journal.Left || got.Pods[1].Outcome != journal.Skipped) {
						t.Errorf("Cancelled() = %+v, want it cancelled, and one asked of two", got)
					}
				}
			})
		})
	}
}

func peek(t *testing.T, path, boot string) journal.History {
	t.Helper()
	history, err := journal.Peek(path, boot)
	if err != nil {
		t.Fatal(err)
	}
	return history
}

func TestAClockThatWasSetBackKeepsNothingForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "shutdown.json")
		wrong := time.Now().AddDate(12, 0, 0)
		first := journal.Open(path, "one", quiet)
		stop := keep(t, first)
		first.Put(&journal.Record{BootID: "one", StartedAt: wrong, FinishedAt: wrong, Pods: pods(journal.Stopped)})
		stop()
		next := journal.Open(path, "two", quiet)
		stop = keep(t, next)
		next.Mark([]journal.Ref{})
		stop()
		time.Sleep(7 * 24 * time.Hour)
		if got := next.Kept(time.Now(), 7*24*time.Hour); got != nil {
			t.Errorf("Kept() a week after the boot = %+v, want nothing", got)
		}
	})
}

func TestNothingIsKeptWhereNothingIsKnown(t *testing.T) {
	if got := journal.Open(filepath.Join(t.TempDir(), "none"), "one", quiet).Kept(time.Now(), time.Hour); got != nil {
		t.Errorf("Kept() without a journal = %+v, want nil", got)
	}
}

func TestTheNextBootKnowsPodsByTheirOrchestratorsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "shutdown.json")
		first := journal.Open(path, "one", quiet)
		stop := keep(t, first)
		first.Mark([]journal.Ref{{Runtime: "containerd", ID: "a", UID: "u", Namespace: "ns", Name: "web"}})
		stop()
		last := journal.Open(path, "two", quiet).Last()
		if last == nil || len(last.Pods) != 1 || last.Pods[0].UID != "u" || last.Pods[0].ID != "a" || !strings.Contains(last.Error, "without a drain") {
			t.Errorf("Last() = %+v, want the pod with both its keys", last)
		}
	})
}
