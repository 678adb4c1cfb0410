package agent

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/agent/settings"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/statefile"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/status/reboots"
	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/notify"
)

// guarded returns an agent with a guard, one pod that takes a while to end, and little else.
func guarded(t *testing.T, endsAfter time.Duration) *Agent {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	fake := runtimetest.NewFake(runtimetest.Options{CallTimeout: time.Hour})
	fake.AddImage(runtimetest.ImageSpec{ID: "image"})
	fake.RunPod(runtimetest.PodSpec{ID: "web", Name: "web", Namespace: "ns", Containers: []runtimetest.ContainerSpec{
		{ID: "c", Name: "c", Image: "image", EndsAfter: endsAfter},
	}})
	a := &Agent{
		log: log, host: host{notifier: &notify.Notifier{}},
		settings: settings.New(config.Config{}, open.Policies{Phases: plan.Defaults()}, settings.Source{}),
	}
	var err error
	a.shutdown.guard, err = shutdown.New(shutdown.Options{
		Phases: a.settings.Policies().Phases, Runtime: fake, Log: log,
		Journal: journal.Open(filepath.Join(t.TempDir(), "shutdown.json"), "one", log),
	})
	if err != nil {
		t.Fatal(err)
	}
	a.kept.values = statefile.NewMemory().Values("agent")
	a.kept.reboots = unguarded("one", a)
	return a
}

// unguarded returns the ledger of an agent after a boot in which no guard ran.
func unguarded(boot string, a *Agent) *reboots.Ledger {
	return reboots.Open(reboots.Options{Boot: boot, Journal: noJournal{}, Store: a.kept.values, Log: a.log})
}

type noJournal struct{}

func (noJournal) LastBoot() *journal.Record   { return nil }
func (noJournal) Found() (another, read bool) { return false, true }

// drainWith returns how long the agent waits for a drain of a pod that takes 5 s, if a signal
// arrives after the first one.
func drainWith(t *testing.T, sig os.Signal) time.Duration {
	t.Helper()
	a := guarded(t, 5*time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.shutdown.guard.Run(ctx) }()
	signals := make(chan os.Signal, 1)
	time.AfterFunc(time.Second, func() { signals <- sig })
	began := time.Now()
	a.drain(ctx, signals, nil)
	took := time.Since(began)
	cancel()
	<-ended
	return took
}

func TestAReloadDoesNotEndADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if took := drainWith(t, syscall.SIGHUP); took < 5*time.Second {
			t.Errorf("drain() returned after %v, want it to wait for the pod, which takes 5s", took)
		}
	})
}

func TestASecondSignalEndsTheWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if took := drainWith(t, syscall.SIGTERM); took != time.Second {
			t.Errorf("drain() returned after %v, want it at the signal, after 1s", took)
		}
	})
}

func TestAGuardThatHangsDoesNotBlockTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := guarded(t, 5*time.Second)
		began := time.Now()
		finished := make(chan struct{})
		go func() {
			defer close(finished)
			a.drain(t.Context(), make(chan os.Signal), nil) // the guard's Run is not running
		}()
		select {
		case <-finished:
			if took := time.Since(began); took < plan.Total(a.settings.Policies().Phases)+plan.Margin {
				t.Errorf("drain() gave up after %v, before a successful drain can end", took)
			}
		case <-time.After(2 * time.Minute):
			t.Error("drain() still has systemd wait after two minutes")
		}
	})
}

func TestAStopRestoresTheDelay(t *testing.T) {
	t.Parallel()
	a := guarded(t, 5*time.Second) // Disarmed, as after a loss of the bus
	root := t.TempDir()
	dropIn := filepath.Join(root, systemd.DropInPath)
	if err := os.MkdirAll(filepath.Dir(dropIn), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dropIn, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	a.host.manager = systemd.NewManager(filepath.Join(root, "private"))
	a.host.logind = systemd.NewLogind(systemd.LogindOptions{Root: root, Address: "unix:path=" + filepath.Join(root, "bus")})
	a.plane.recorder = controlplane.NewRecorder(nil, "web", nil, nil, a.log)
	if a.stop(t.Context(), "terminated", nil) {
		t.Error("stop() = true without a service manager, want false")
	}
	a.restoreDelay()
	if _, err := os.Stat(dropIn); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat(%s) after the stop = %v, want it gone with the service", dropIn, err)
	}
}

func TestAServiceManagerThatDoesNotReportDoesNotCutADrainOff(t *testing.T) {
	a := guarded(t, 100*time.Millisecond)
	root := t.TempDir()
	socket := filepath.Join(root, "private")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close() // too busy
		}
	}()
	a.host.manager = systemd.NewManager(socket)
	a.host.logind = systemd.NewLogind(systemd.LogindOptions{Root: root, Address: "unix:path=" + filepath.Join(root, "bus")})
	a.plane.recorder = controlplane.NewRecorder(nil, "web", nil, nil, a.log)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.shutdown.guard.Run(ctx) }()
	drained := make(chan error, 1)
	go func() {
		_, err := a.shutdown.guard.Drain(ctx, journal.TriggerServiceStop)
		drained <- err
	}()
	for state := a.shutdown.guard.Status().State; state != shutdown.Draining && state != shutdown.Released; state = a.shutdown.guard.Status().State {
		goruntime.Gosched()
	}
	a.stop(ctx, "terminated", nil)
	if state := a.shutdown.guard.Status().State; state != shutdown.Released {
		t.Errorf("stop() returned in state %v, want it to wait for the drain", state)
	}
	if r := unguarded("two", a).Unreported(); r == nil || r.Verdict != reboots.Expected {
		t.Errorf("the next boot came about by %v, want that it was expected", r)
	}
	cancel()
	<-ended
	<-drained
}
