package inspect

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hostler.io/hostler/internal/trust/trusttest"
	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/logindconf"
	"hostler.io/hostler/systemd/systemdtest"
)

// job is the property Job of a systemd unit.
type job struct {
	ID   uint32
	Path string
}

func TestTheDropInOfAKilledAgentIsRemovedIfNotNeeded(t *testing.T) {
	queued := systemdtest.UnitState{"ActiveState": "deactivating", "Restart": "on-failure", "Job": job{7, "/org/freedesktop/systemd1/job/7"}}
	alone := systemdtest.UnitState{"ActiveState": "deactivating", "Restart": "on-failure", "Job": job{0, "/"}}
	type state = systemdtest.ManagerState
	for name, c := range map[string]struct {
		unit   systemdtest.UnitState
		result string
		refuse bool
		host   func(*testing.T, *state, *systemdtest.Fake)
		locked string // who else holds a lock
		user   int    // user of the process that holds it
		left   bool
	}{
		"killed, and about to be started again":       {unit: alone, result: "signal", left: true},
		"hung, and about to be started again":         {unit: alone, result: "watchdog", left: true},
		"killed as it was stopped":                    {unit: queued, result: "signal"},
		"it did not end when it was stopped":          {unit: queued, result: "timeout"},
		"killed, and not to be started again":         {unit: systemdtest.UnitState{"ActiveState": "deactivating", "Restart": "no"}, result: "signal"},
		"it panicked, and is started again":           {unit: alone, result: "exit-code", left: true},
		"its successor refuses the configuration":     {unit: alone, result: "exit-code", refuse: true},
		"returned without an error":                   {unit: queued, result: "success", left: true},
		"asked while it runs":                         {unit: systemdtest.UnitState{"ActiveState": "active"}, left: true},
		"asked while it starts":                       {unit: systemdtest.UnitState{"ActiveState": "activating"}, left: true},
		"asked when it has stopped":                   {unit: systemdtest.UnitState{"ActiveState": "inactive"}},
		"asked when it has failed":                    {unit: systemdtest.UnitState{"ActiveState": "failed"}},
		"the host goes down":                          {unit: queued, result: "signal", host: func(_ *testing.T, s *state, _ *systemdtest.Fake) { s.SystemState = "stopping" }, left: true},
		"logind has announced that it will":           {unit: queued, result: "signal", host: func(t *testing.T, _ *state, f *systemdtest.Fake) { f.Reboot(t) }, left: true},
		"a kubelet counts on it":                      {unit: queued, result: "signal", locked: "kubelet", left: true},
		"somebody else than a kubelet delays as well": {unit: queued, result: "signal", locked: "backup"},
		"a user's lock has the name of a kubelet's":   {unit: queued, result: "signal", locked: "kubelet", user: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			fake := systemdtest.NewFake(t, systemdtest.FakeOptions{Roots: true})
			options := systemd.LogindOptions{Root: fake.Root(), Address: fake.Address()}
			logind := systemd.NewLogind(options)
			defer logind.Close()
			if _, err := logind.RaiseMaxDelay(t.Context(), 36*time.Second); err != nil {
				t.Fatal(err)
			}
			if c.locked != "" {
				options.Who = c.locked
				other := systemd.NewLogind(options)
				defer other.Close()
				if _, err := other.Inhibit(t.Context(), "to be last"); err != nil {
					t.Fatal(err)
				}
			}
			host := state{SystemState: "running", Units: map[string]systemdtest.UnitState{"hostler.service": c.unit}}
			if c.host != nil {
				c.host(t, &host, fake)
			}
			fake.SetManager(host)
			proc := trusttest.Proc(t, trusttest.Process{PID: 1 << 22, Name: "kubelet"}, trusttest.Process{PID: os.Getpid(), Name: "test", UID: c.user, Cgroup: "/system.slice/kubelet.service"})
			err := takeBack(t.Context(), logind, systemd.NewManager(fake.ManagerSocket()), Ended{Service: "hostler.service", Result: c.result, Refused: c.refuse}, proc, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Errorf("takeBack() = %v", err)
			}
			want := logindconf.DefaultDelay
			if c.left {
				want = 36 * time.Second
			}
			_, missing := os.Stat(filepath.Join(fake.Root(), systemd.DropInPath))
			if got, err := logind.MaxDelay(t.Context()); got != want || err != nil || errors.Is(missing, fs.ErrNotExist) == c.left {
				t.Errorf("logind grants %v, %v, and of the drop-in there is said %v; want %v", got, err, missing, want)
			}
		})
	}
}

// Without a bus nothing delays a shutdown, so the file is removed.
func TestTheDropInOfAKilledAgentIsRemovedWithoutABus(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	fake.SetManager(systemdtest.ManagerState{SystemState: "running", Units: map[string]systemdtest.UnitState{"hostler.service": {"ActiveState": "failed"}}})
	root := t.TempDir()
	dropIn := filepath.Join(root, systemd.DropInPath)
	if err := errors.Join(os.MkdirAll(filepath.Dir(dropIn), 0o755), os.WriteFile(dropIn, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	logind := systemd.NewLogind(systemd.LogindOptions{Root: root, Address: "unix:path=" + filepath.Join(root, "bus")})
	defer logind.Close()
	err := takeBack(t.Context(), logind, systemd.NewManager(fake.ManagerSocket()), Ended{Service: "hostler.service"}, t.TempDir(), slog.New(slog.DiscardHandler))
	if _, missing := os.Stat(dropIn); !errors.Is(missing, fs.ErrNotExist) || !errors.Is(err, systemd.ErrNoBus) {
		t.Errorf("takeBack() = %v, and of the drop-in there is said %v; want that there is no bus, and no file", err, missing)
	}
}

func TestTheDropInStaysIfSystemdDoesNotAnswer(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	logind := systemd.NewLogind(systemd.LogindOptions{Root: fake.Root(), Address: fake.Address()})
	defer logind.Close()
	nobody := systemd.NewManager(filepath.Join(t.TempDir(), "private"))
	ended := Ended{Service: "hostler.service", Result: "signal"}
	if err := takeBack(t.Context(), logind, nobody, ended, t.TempDir(), slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("takeBack() = %v with nothing to remove, want nil", err)
	}
	if _, err := logind.RaiseMaxDelay(t.Context(), 36*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := takeBack(t.Context(), logind, nobody, ended, t.TempDir(), slog.New(slog.DiscardHandler)); !errors.Is(err, systemd.ErrNotSystemd) {
		t.Errorf("takeBack() = %v, want %v", err, systemd.ErrNotSystemd)
	}
	if got, err := logind.MaxDelay(t.Context()); got != 36*time.Second || err != nil {
		t.Errorf("logind grants %v, %v, want what it did", got, err)
	}
}
