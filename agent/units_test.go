package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/systemdtest"
)

func TestAUnitIsOnDiskBeforeItIsStopped(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	fake.SetManager(systemdtest.ManagerState{Service: systemdtest.ServiceState{Name: "web.service", ActiveState: "active", MainPID: 10}})
	a := guarded(t, 0)
	path := filepath.Join(t.TempDir(), "shutdown.json")
	a.kept.journal = journal.Open(path, "one", a.log)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { a.kept.journal.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	told := 0
	u := open.Units{Manager: systemd.NewManager(fake.ManagerSocket()), Stops: func(ctx context.Context, names []string) {
		a.unitStops(ctx, names)
		name := names[0]
		told++
		data, err := os.ReadFile(path)
		if drains := a.kept.journal.Current() != nil; err != nil && drains || strings.Contains(string(data), name) != drains || len(fake.StoppedUnits()) > told-1 {
			t.Errorf("on disk is %s, %v as %s is asked to stop, want it to be there if the host goes down (%t)", data, err, name, drains)
		}
	}}
	for i, c := range []struct {
		name string
		pid  int
		owed bool
	}{
		{"web.service", 10, false}, // nothing drains the host
		{"web.service", 11, false}, // nor is that one's
		{"web.service", 10, true},
	} {
		if i == 1 {
			a.kept.journal.Put(&journal.Record{BootID: "one", StartedAt: time.Now(), Pods: []journal.PodRecord{}})
		}
		stopping, err := u.StopUnit(ctx, c.name, c.pid)
		if owed := len(a.kept.journal.Owed()) == 1; stopping != (c.pid == 10) || err != nil || owed != c.owed {
			t.Errorf("StopUnit(%s, %d) = %t, %v, and Owed() = %+v, want it owed %t", c.name, c.pid, stopping, err, a.kept.journal.Owed(), c.owed)
		}
	}
	if got := fmt.Sprint(fake.StoppedUnits()); told != 2 || got != "[web.service replace web.service replace]" {
		t.Errorf("told of %d stops, and made %s, want two", told, got)
	}
}

func TestAUnitThatAPersonDrainsIsNotOwed(t *testing.T) {
	a := guarded(t, time.Hour)
	a.kept.journal = journal.Open(filepath.Join(t.TempDir(), "shutdown.json"), "one", a.log)
	a.kept.journal.Put(&journal.Record{BootID: "one", StartedAt: time.Now(), Pods: []journal.PodRecord{}}) // whose end nobody has heard of yet
	for _, name := range []string{"web.service", "db.service"} {
		a.kept.journal.OweUnit(name, time.Now())
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = a.shutdown.guard.Run(ctx) })
	running.Go(func() { _, _ = a.shutdown.guard.Drain(ctx, journal.TriggerPerson) })
	for a.shutdown.guard.Status().ByHand == nil {
		goruntime.Gosched()
	}
	a.unitStops(ctx, []string{"web.service", "other.service"})
	if owed := a.kept.journal.Owed(); len(owed) != 1 || owed[0].Name != "db.service" {
		t.Errorf("Owed() = %+v, want db.service alone", owed)
	}
	cancel()
	running.Wait()
}
