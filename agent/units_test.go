package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/systemdtest"
)

// ofUnit is a runtime whose containers the function stop also stops.
type ofUnit struct {
	*runtimetest.Fake
	stop func(ctx context.Context)
}

func (r ofUnit) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	r.stop(ctx)
	return r.Fake.StopContainer(ctx, c, grace)
}

func TestAUnitIsOnDiskBeforeItIsStopped(t *testing.T) {
	systemdFake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	systemdFake.SetManager(systemdtest.ManagerState{Service: systemdtest.ServiceState{Name: "web.service", ActiveState: "active", MainPID: 10}})
	a := guarded(t, 0)
	path := filepath.Join(t.TempDir(), "shutdown.json")
	a.kept.journal = journal.Open(path, "one", a.log)
	reported := 0
	stop := func(ctx context.Context, pid int, pending bool) {
		before := reported
		stopping, err := open.Units{Manager: systemd.NewManager(systemdFake.ManagerSocket())}.StopUnit(ctx, "web.service", pid, func(ctx context.Context, names []string) error {
			err := runtime.ReportUnitStops(ctx, names) // as runtimes do
			name := names[0]
			reported++
			data, unread := os.ReadFile(path)
			if unread != nil && pending || strings.Contains(string(data), name) != pending || len(systemdFake.StoppedUnits()) > reported-1 {
				t.Errorf("on disk is %s, %v when %s is requested to stop, want it on disk if the host shuts down (%t)", data, unread, name, pending)
			}
			return err
		})
		if got := len(a.kept.journal.PendingServices()) == 1; stopping != (pid == 10) || err != nil || got != pending || reported > before != stopping {
			t.Errorf("StopUnit(%d) = %t, %v, and PendingServices() = %+v, want it pending: %t", pid, stopping, err, a.kept.journal.PendingServices(), pending)
		}
	}
	fake := runtimetest.NewFake(runtimetest.Options{})
	fake.AddImage(runtimetest.ImageSpec{ID: "image"})
	fake.RunPod(runtimetest.PodSpec{ID: "web", Name: "web", Namespace: "ns", Containers: []runtimetest.ContainerSpec{{ID: "c", Name: "c", Image: "image"}}})
	host := ofUnit{fake, func(ctx context.Context) {
		stop(ctx, 11, false) // the process does not belong to it
		stop(ctx, 10, true)
	}}
	var err error
	a.shutdown.guard, err = shutdown.New(shutdown.Options{Phases: plan.Defaults(), Runtime: host, Log: a.log, Journal: a.kept.journal})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _ = a.shutdown.guard.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	stop(ctx, 10, false) // no drain is running
	if _, err := a.shutdown.guard.Drain(ctx, journal.TriggerServiceStop); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(systemdFake.StoppedUnits()); reported != 2 || got != "[web.service replace web.service replace]" {
		t.Errorf("%d stops reported, calls %s, want two", reported, got)
	}
}
