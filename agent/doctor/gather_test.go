package doctor_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/systemdtest"
)

func TestADropInOrdersScopesOnlyWithBefore(t *testing.T) {
	const (
		etc      = "/etc/systemd/system/cri-containerd-.scope.d/10-hostler.conf"
		packaged = "/usr/lib/systemd/system/cri-containerd-.scope.d/10-hostler.conf"
		text     = "# Before=hostler.service\n[Unit]\nBefore = other.service hostler.service\n"
	)
	for _, c := range []struct {
		name                  string
		files                 map[string]string // contents; a link to /dev/null is "mask"
		wantOrders, wantWrong string
	}{
		{"there is none", nil, "", ""},
		{"the package's orders", map[string]string{packaged: text}, packaged, ""},
		{"an administrator's hides the package's", map[string]string{packaged: "", etc: text}, etc, ""},
		{"a mask hides the package's", map[string]string{packaged: text, etc: "mask"}, "", etc},
		{"an empty file is a mask, too", map[string]string{packaged: text, etc: ""}, "", etc},
		{"a comment orders nothing", map[string]string{packaged: "[Unit]\n#Before=hostler.service\n"}, "", packaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for path, content := range c.files {
				path = filepath.Join(root, path)
				err := os.MkdirAll(filepath.Dir(path), 0o755)
				if err == nil && content == "mask" {
					err = os.Symlink(os.DevNull, path)
				} else if err == nil {
					err = os.WriteFile(path, []byte(content), 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			nowhere := filepath.Join(root, "no-socket")
			logind := systemd.NewLogind(systemd.LogindOptions{Address: "unix:path=" + nowhere, Root: root})
			var f doctor.Facts
			doctor.Sources{Logind: logind, Manager: systemd.NewManager(nowhere), Root: root, Files: new(bounded.Files)}.Gather(t.Context(), &f)
			if orders, wrong := f.Systemd.DropIns["cri-containerd"], f.Systemd.WrongDropIns["cri-containerd"]; orders != c.wantOrders || wrong != c.wantWrong {
				t.Errorf("Gather() finds that %q orders and %q does not, want %q and %q", orders, wrong, c.wantOrders, c.wantWrong)
			}
		})
	}
}

// Queries of units take systemd time. Gather makes them only if hostler reboots the host, since only then
// doctor warns.
func TestGatherFindsWhatRebootsAHost(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "/etc/cron.d/nightly")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("@daily root reboot\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	fake.SetManager(systemdtest.ManagerState{Units: map[string]systemdtest.UnitState{"a.timer": {"ActiveState": "active", "Unit": "reboot.target"}}})
	logind := systemd.NewLogind(systemd.LogindOptions{Address: "unix:path=" + filepath.Join(root, "no-socket"), Root: root})
	for enabled, want := range map[bool]string{
		false: "a command in /etc/cron.d/nightly",
		true:  "a command in /etc/cron.d/nightly; a.timer (which starts reboot.target)",
	} {
		f := doctor.Facts{Reboots: doctor.Reboots{Enabled: enabled}}
		doctor.Sources{Logind: logind, Manager: systemd.NewManager(fake.ManagerSocket()), Root: root, Proc: t.TempDir(), Files: new(bounded.Files)}.Gather(t.Context(), &f)
		var names []string
		for _, r := range f.Reboots.Others {
			names = append(names, r.Name)
		}
		if got := strings.Join(names, "; "); got != want || f.Reboots.Err != nil {
			t.Errorf("where hostler reboots is %t, Gather() finds %s, %v, want %s", enabled, got, f.Reboots.Err, want)
		}
	}
	f := doctor.Facts{Reboots: doctor.Reboots{Enabled: true}}
	doctor.Sources{Logind: logind, Manager: systemd.NewManager(filepath.Join(root, "no-socket")), Root: root, Proc: t.TempDir(), Files: new(bounded.Files)}.Gather(t.Context(), &f)
	if len(f.Reboots.Others) != 1 || f.Reboots.Err == nil {
		t.Errorf("without systemd, Gather() finds %+v, want the cron job and an error", f.Reboots)
	}
}
