package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/systemdtest"
)

// examine checks a healthy host without a D-Bus, whose systemd takes that time for each answer. It also
// returns how long this took.
func examine(t *testing.T, takes time.Duration) (report doctor.Report, took time.Duration) {
	t.Helper()
	after := []string{"dbus.service", "systemd-logind.service", "containerd.service"}
	units := map[string]systemdtest.UnitState{}
	for i := range 20 {
		scope := fmt.Sprintf("cri-containerd-%d.scope", i)
		units[scope] = systemdtest.UnitState{"ActiveState": "active", "Before": []string{doctor.Service}}
		after = append(after, scope)
	}
	units[doctor.Service] = systemdtest.UnitState{
		"ActiveState": "active", "UnitFileState": "enabled", "FragmentPath": "/usr/lib/systemd/system/hostler.service", "After": after,
		"Type": "notify", "NotifyAccess": "main", "FileDescriptorStoreMax": uint32(2), "MainPID": uint32(812), "WatchdogUSec": uint64(60_000_000),
	}
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	fake.SetManager(systemdtest.ManagerState{SystemState: "running", Units: units})

	root := t.TempDir()
	dropIn := filepath.Join(root, "usr/lib/systemd/system/cri-containerd-.scope.d/10-hostler.conf")
	if err := errors.Join(os.MkdirAll(filepath.Dir(dropIn), 0o755), os.WriteFile(dropIn, []byte("[Unit]\nBefore=hostler.service\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	const nowhere = "unix:path=/nonexistent/bus"
	logind := systemd.NewLogind(systemd.LogindOptions{Address: nowhere, Root: root})
	synctest.Test(t, func(t *testing.T) {
		f := healthy()
		began := time.Now()
		doctor.Sources{Logind: logind, Manager: fake.SlowManager(takes), Root: root, Files: new(bounded.Files)}.Gather(t.Context(), &f)
		report, took = doctor.Examine(f), time.Since(began)
	})
	if err := logind.Close(); err != nil {
		t.Error(err)
	}
	return report, took
}

const bound = 5 * time.Second // how long doctor waits

// verdicts returns the checks that use facts from systemd.
func verdicts(r doctor.Report) map[string]doctor.Check {
	of := map[string]doctor.Check{}
	for _, name := range []string{"stop-first", "unit", "unit-order", "scopes", "job-timeouts", "bypasses", "watchdog"} {
		if c := found(r, name); c.Status != "" {
			of[name] = c
		}
	}
	return of
}

func TestASlowSystemdIsQueriedConcurrently(t *testing.T) {
	quick, _ := examine(t, 0)
	for name, c := range verdicts(quick) {
		if c.Status != doctor.OK {
			t.Errorf("with a quick systemd check %s is %+v, want it ok", name, c)
		}
	}
	if n := len(verdicts(quick)); n != 6 {
		t.Errorf("%d checks go by systemd, want all but stop-first", n)
	}
	slow, took := examine(t, 200*time.Millisecond)
	if !reflect.DeepEqual(slow, quick) || took >= bound {
		t.Errorf("after %v a systemd that takes 200ms for an answer has doctor find\n%+v\nwant it within %v, and as of a quick one\n%+v", took, verdicts(slow), bound, verdicts(quick))
	}
}

func TestWhatASlowSystemdReportedInTimeCounts(t *testing.T) {
	quick, _ := examine(t, 0)
	slow, took := examine(t, 300*time.Millisecond)
	if took != bound {
		t.Errorf("Gather() took %v, want it to wait %v for what is missing", took, bound)
	}
	counts := map[doctor.Status]int{}
	for name, c := range verdicts(slow) {
		counts[c.Status]++
		switch c.Status {
		case found(quick, name).Status:
		case doctor.Unknown:
			if !strings.Contains(c.Message, "systemd did not answer: no answer within 5s") || !strings.Contains(c.Hint, "again in some seconds") {
				t.Errorf("check %s is %+v, want why it is not known, and to ask again", name, c)
			}
		default:
			t.Errorf("check %s is %+v, want it as of a systemd that has reported all, or not known", name, c)
		}
	}
	if counts[doctor.OK] == 0 || counts[doctor.Unknown] == 0 {
		t.Errorf("verdicts = %v, want some ok and some not known", counts)
	}
}

func TestASystemdThatReportsNothingIsAFault(t *testing.T) {
	for what, takes := range map[string]time.Duration{"it hangs": time.Minute, "it answers a greeting, and no more": 2 * time.Second} {
		hung, took := examine(t, takes)
		if c := found(hung, "unit"); c.Status != doctor.Warn || !strings.Contains(c.Message, "systemd did not answer: no answer within 5s") || took != bound {
			t.Errorf("%s: after %v check unit is %+v, want a warning after %v", what, took, c, bound)
		}
	}
}

// A single fact that is not known is neither a fault nor ok.
func TestAFactThatSystemdDidNotReportIsUnknown(t *testing.T) {
	late := fmt.Errorf("some.unit: %w", context.DeadlineExceeded)
	for _, c := range []struct {
		name    string
		spoil   func(*doctor.Systemd)
		unknown string // the check; none if empty
		message string // part of the message of a check that is ok or unknown
	}{
		{"its unit", func(s *doctor.Systemd) { s.Service = systemd.Unit{Name: doctor.Service, Err: late} }, "unit", "cannot check how hostler.service is set up"},
		{"how it is run", func(s *doctor.Systemd) { s.Run, s.RunErr = systemd.Run{}, late }, "watchdog", "restarts an agent that hangs"},
		{"some scopes", func(s *doctor.Systemd) { s.ScopesErr = late }, "scopes", "whether all container scopes"},
		{"a target", func(s *doctor.Systemd) { s.Targets[0] = systemd.Unit{Name: "reboot.target", Err: late} }, "job-timeouts", "when systemd forces a shutdown"},
		{"Ctrl-Alt-Del", func(s *doctor.Systemd) { s.CtrlAltDel = systemd.Unit{Err: late} }, "", "and, unless it is masked, Ctrl-Alt-Del"},
		{"a service that starts pods", func(s *doctor.Systemd) { s.Orchestrators = []systemd.Unit{{Name: "k3s.service", Err: late}} }, "stop-first", "whether a service would restart pods"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := healthy()
			c.spoil(&f.Systemd)
			reported := false
			for _, check := range doctor.Examine(f).Checks {
				want := doctor.OK
				if check.Name == c.unknown {
					want = doctor.Unknown
				}
				if check.Status != want {
					t.Errorf("check %+v, want it %s", check, want)
				}
				reported = reported || strings.Contains(check.Message, c.message) && (c.unknown == "" || check.Name == c.unknown)
			}
			if !reported {
				t.Errorf("no check says %q", c.message)
			}
		})
	}
}

func TestAKnownFaultOutweighsUnknownFacts(t *testing.T) {
	late := context.DeadlineExceeded
	f := healthy()
	f.Systemd.Scopes["cri-containerd-0.scope"], f.Systemd.ScopesErr = false, late
	f.Systemd.Targets = append(f.Systemd.Targets, systemd.Unit{Name: "halt.target", Err: late})
	f.Systemd.Targets[0].JobTimeout = time.Second
	f.Systemd.Orchestrators = []systemd.Unit{{Name: "k3s.service", LoadState: "loaded", ActiveState: "active"}, {Name: "k0sworker.service", Err: late}}
	r := doctor.Examine(f)
	for _, name := range []string{"scopes", "job-timeouts", "stop-first"} {
		if c := found(r, name); c.Status != doctor.Warn {
			t.Errorf("check %+v, want a warning of what is known", c)
		}
	}
}
