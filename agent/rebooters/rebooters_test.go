package rebooters_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler.io/hostler/agent/rebooters"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/trust/trusttest"
	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/systemdtest"
)

func service(arguments ...string) systemdtest.UnitState {
	return systemdtest.UnitState{"ExecStart": []systemdtest.Command{{Path: arguments[0], Arguments: arguments}}}
}

// timer is an active timer that starts a unit.
func timer(unit string) systemdtest.UnitState {
	return systemdtest.UnitState{"ActiveState": "active", "Unit": unit}
}

type units = map[string]systemdtest.UnitState

func TestFind(t *testing.T) {
	const (
		uu      = "/usr/bin/unattended-upgrade"
		apt50   = "/etc/apt/apt.conf.d/50unattended-upgrades"
		zincati = "/etc/zincati/config.d/50-updates-strategy.toml"
		enabled = `Unattended-Upgrade::Automatic-Reboot "true";`
	)
	active := systemdtest.UnitState{"ActiveState": "active"}
	for name, tt := range map[string]struct {
		files map[string]string
		units units
		want  []string // name|off
	}{
		"nothing": {},

		"unattended-upgrades that reboots": {
			files: map[string]string{uu: "", apt50: "// Automatically reboot\n" + enabled + "\n"},
			want: []string{"unattended-upgrades (Unattended-Upgrade::Automatic-Reboot in /etc/apt/apt.conf.d/50unattended-upgrades)" +
				`|set Unattended-Upgrade::Automatic-Reboot "false" in /etc/apt/apt.conf.d/50unattended-upgrades`},
		},
		"settings of a package that is removed": {files: map[string]string{apt50: enabled}},
		"unattended-upgrades as Debian has it": {files: map[string]string{uu: "", apt50: `Unattended-Upgrade::Origins-Pattern {
        "origin=Debian,codename=${distro_codename},label=Debian";
};
// Automatically reboot *WITHOUT CONFIRMATION* if
//  the file /var/run/reboot-required is found after the upgrade
//Unattended-Upgrade::Automatic-Reboot "false";
//Unattended-Upgrade::Automatic-Reboot-WithUsers "true";
`}},
		"a later file says no":      {files: map[string]string{uu: "", apt50: enabled, "/etc/apt/apt.conf.d/99local": `unattended-upgrade { /* "true"; */ automatic-reboot "no"; };`}},
		"a later file clears it":    {files: map[string]string{uu: "", apt50: enabled, "/etc/apt/apt.conf.d/99local": "#comment\n#clear Unattended-Upgrade;\n"}},
		"a file that apt ignores":   {files: map[string]string{uu: "", apt50 + ".ucf-dist": enabled, "/etc/apt/apt.conf.d/99local.txt": enabled}},
		"a comment of another kind": {files: map[string]string{uu: "", apt50: "#" + enabled + "\n/*\n" + enabled + "\n*/"}},
		"the main file says yes": {
			files: map[string]string{uu: "", apt50: strings.Replace(enabled, "true", "false", 1), "/etc/apt/apt.conf": "#comment\nUnattended-Upgrade { Automatic-Reboot 1; };"},
			want:  []string{`unattended-upgrades (Unattended-Upgrade::Automatic-Reboot in /etc/apt/apt.conf)|set Unattended-Upgrade::Automatic-Reboot "false" in /etc/apt/apt.conf`},
		},

		"zincati": {
			units: units{"zincati.service": active},
			want:  []string{"zincati.service (updates.strategy in /etc/zincati/config.d)|let it ask `hostler server`: /usr/share/doc/hostler/docs/howto/reboots.md"},
		},
		"zincati that does not run":   {units: units{"zincati.service": {"ActiveState": "inactive"}}},
		"zincati that waits its turn": {units: units{"zincati.service": active}, files: map[string]string{zincati: "[updates]\nstrategy = \"fleet_lock\"\n[updates.fleet_lock]\nbase_url = \"https://reboots.example:9757/\"\n"}},
		"zincati that does nothing":   {units: units{"zincati.service": active}, files: map[string]string{zincati: "[updates] \nenabled = false # for now\n"}},
		"a file that hides the strategy": {
			units: units{"zincati.service": active},
			files: map[string]string{"/usr/lib/zincati/config.d/50-updates-strategy.toml": "updates.strategy = 'fleet_lock'", zincati: ""},
			want:  []string{"zincati.service (updates.strategy in /etc/zincati/config.d)|let it ask `hostler server`: /usr/share/doc/hostler/docs/howto/reboots.md"},
		},

		"dnf-automatic": {
			units: units{"dnf-automatic-install.timer": timer("dnf-automatic-install.service")}, files: map[string]string{"/etc/dnf/automatic.conf": "[commands]\n# never\nreboot = when-needed\n"},
			want: []string{"dnf-automatic-install.timer (reboot in /etc/dnf/automatic.conf)|set reboot = never under [commands] in /etc/dnf/automatic.conf"},
		},
		"dnf-automatic that never reboots": {units: units{"dnf5-automatic.timer": timer("dnf5-automatic.service")}, files: map[string]string{"/etc/dnf/automatic.conf": "[commands]\nreboot = never\n[other]\nreboot = when-needed"}},
		"dnf-automatic that is not active": {units: units{"dnf-automatic.timer": {}}, files: map[string]string{"/etc/dnf/automatic.conf": "[commands]\nreboot=when-changed"}},

		"rpm-ostree": {
			units: units{"rpm-ostreed-automatic.timer": timer("rpm-ostreed-automatic.service")}, files: map[string]string{"/etc/rpm-ostreed.conf": "[Daemon]\nAutomaticUpdatePolicy=apply\n"},
			want: []string{"rpm-ostreed-automatic.timer (AutomaticUpdatePolicy in /etc/rpm-ostreed.conf)|set AutomaticUpdatePolicy=stage in /etc/rpm-ostreed.conf"},
		},
		"rpm-ostree that stages": {units: units{"rpm-ostreed-automatic.timer": timer("rpm-ostreed-automatic.service")}, files: map[string]string{"/etc/rpm-ostreed.conf": "[Daemon]\nAutomaticUpdatePolicy=stage\n"}},

		"transactional-update": {
			units: units{"transactional-update.timer": timer("transactional-update.service"), "transactional-update.service": service("/usr/sbin/transactional-update", "cleanup", "dup", "reboot")},
			want:  []string{"transactional-update.timer (REBOOT_METHOD in /etc/transactional-update.conf)|set REBOOT_METHOD=kured in /etc/transactional-update.conf, which creates /run/reboot-required instead"},
		},
		"transactional-update that creates the file": {units: units{"transactional-update.timer": timer("transactional-update.service")}, files: map[string]string{"/etc/transactional-update.conf": "REBOOT_METHOD=\"kured\"\n"}},
		"rebootmgr, which transactional-update asks": {
			units: units{"transactional-update.timer": timer("transactional-update.service"), "rebootmgr.service": active},
			want:  []string{"rebootmgr.service|rebootmgrctl set-strategy off"},
		},
		"rebootmgr that is off": {units: units{"rebootmgr.service": active}, files: map[string]string{"/etc/rebootmgr.conf": "[rebootmgr]\nstrategy=off\n"}},

		"locksmith": {units: units{"locksmithd.service": active}, want: []string{"locksmithd.service|systemctl mask --now locksmithd.service"}},

		"a timer of a command": {
			units: units{"weekly.timer": timer("weekly.service"), "weekly.service": service("/usr/bin/systemctl", "--no-block", "reboot")},
			want:  []string{"weekly.timer (which starts weekly.service)|systemctl disable --now weekly.timer"},
		},
		"a timer of a script": {
			units: units{"weekly.timer": timer("w.service"), "w.service": service("/usr/local/sbin/weekly")}, files: map[string]string{"/usr/local/sbin/weekly": "#!/bin/bash -e\napt-get update\n[ -e /run/reboot-required ] && /sbin/shutdown -r +5 'for updates'\n"},
			want: []string{"weekly.timer (which starts w.service)|systemctl disable --now weekly.timer"},
		},
		"a timer of a target": {
			units: units{"weekly.timer": timer("reboot.target"), "reboot.target": {}},
			want:  []string{"weekly.timer (which starts reboot.target)|systemctl disable --now weekly.timer"},
		},
		"a timer of a service that ends in a reboot": {
			units: units{"weekly.timer": timer("w.service"), "w.service": {"SuccessAction": "reboot-force"}},
			want:  []string{"weekly.timer (which starts w.service)|systemctl disable --now weekly.timer"},
		},
		"timers that do not":                   {units: units{"daily.timer": timer("d.service"), "d.service": service("/usr/bin/logger", "reboot"), "stopped.timer": {"Unit": "r.service"}, "r.service": service("/sbin/reboot")}},
		"a timer of another language's script": {units: units{"a.timer": timer("a.service"), "a.service": service("/usr/share/a")}, files: map[string]string{"/usr/share/a": "#!/usr/share/python3\nreboot\n"}},

		"cron jobs": {
			files: map[string]string{
				"/etc/crontab":                      "SHELL=/bin/sh\n# m h dom mon dow user command\n17 * * * * root cd / && run-parts --report /etc/cron.hourly\n",
				"/etc/cron.d/nightly":               "30 3 * * 7 root test -e /run/reboot-required && /sbin/reboot\n",
				"/etc/cron.d/old.dpkg-old":          "30 3 * * 7 root reboot\n",
				"/etc/cron.d/boot":                  "@reboot root /usr/local/bin/start reboot\n",
				"/etc/cron.weekly/updates":          "#!/bin/sh\nif needs-restarting -r; then exit 0; fi\nshutdown -r now\n",
				"/etc/cron.daily/logs":              "#!/bin/sh\n# reboot\necho 'done; reboot later'; grep reboot /var/log/syslog || shutdown -c\n",
				"/var/spool/cron/crontabs/root":     "@weekly sudo -n systemctl reboot\n",
				"/etc/needrestart/notify.d/400-own": "#!/bin/sh\n. /usr/lib/needrestart/notify.d.sh\nexec reboot\n",
			},
			want: []string{
				"a command in /etc/cron.d/nightly|remove that command from /etc/cron.d/nightly",
				"a command in /var/spool/cron/crontabs/root|remove that command from /var/spool/cron/crontabs/root",
				"a command in /etc/cron.weekly/updates|remove that command from /etc/cron.weekly/updates",
				"a command in /etc/needrestart/notify.d/400-own|remove that command from /etc/needrestart/notify.d/400-own",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
			fake.SetManager(systemdtest.ManagerState{Units: tt.units})
			h := rebooters.Host{Root: t.TempDir(), Proc: t.TempDir(), Files: new(bounded.Files)}
			for path, text := range tt.files {
				write(t, filepath.Join(h.Root, path), text)
			}
			found, err := h.Find(t.Context())
			if err != nil {
				t.Errorf("Find() = %v, want no error", err)
			}
			err = systemd.NewManager(fake.ManagerSocket()).Ask(t.Context(), func(ctx context.Context, talk *systemd.Talk) {
				units, err := h.FindUnits(ctx, talk)
				if err != nil {
					t.Errorf("FindUnits() = %v, want no error", err)
				}
				found = append(found, units...)
			})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range found {
				got = append(got, r.Name+"|"+r.Off)
			}
			if g, w := strings.Join(got, "\n"), strings.Join(tt.want, "\n"); g != w {
				t.Errorf("finds\n%s\nwant\n%s", g, w)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestKuredIsFoundByItsProcess(t *testing.T) {
	const pod = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope"
	proc := trusttest.Proc(t, trusttest.Process{PID: 41, Name: "kured", UID: 1000, Cgroup: pod},
		trusttest.Process{PID: 42, Name: "kured", Cgroup: pod, Confined: true}, trusttest.Process{PID: 43, Name: "kured", Mounts: "own", Cgroup: pod})
	found, err := rebooters.Host{Root: t.TempDir(), Proc: proc, Files: new(bounded.Files)}.Find(t.Context())
	if err != nil || len(found) != 1 || found[0].Name != "kured (process kured, pid 43)" {
		t.Errorf("Find() = %v, %v, want the one that runs as root and can reboot the host", found, err)
	}
}

// A user can have the read of a script hang that root's cron job or timer runs for them.
func TestAScriptThatHangsHidesNoOtherReboot(t *testing.T) {
	h := rebooters.Host{Root: t.TempDir(), Proc: t.TempDir(), Files: new(bounded.Files)}
	script := filepath.Join(h.Root, "/home/alice/job.sh")
	write(t, script, "#!/bin/sh\nreboot\n")
	write(t, filepath.Join(h.Root, "/etc/cron.d/a"), "@daily alice /home/alice/job.sh\n")
	write(t, filepath.Join(h.Root, "/etc/cron.d/b"), "@daily root reboot\n")
	recovers := make(chan struct{})
	defer close(recovers)
	ended, end := context.WithCancel(t.Context())
	end()
	_, _ = h.Files.Read(ended, script, func(string) ([]byte, error) { <-recovers; return nil, nil })

	found, err := h.Find(t.Context())
	if late, ok := errors.AsType[*bounded.LateError](err); !ok || late.Path != script || len(found) != 1 {
		t.Errorf("Find() = %v, %v, want the other cron job, and that the script is late", found, err)
	}
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	fake.SetManager(systemdtest.ManagerState{Units: units{"a.timer": timer("a.service"), "a.service": service("/home/alice/job.sh"), "b.timer": timer("reboot.target")}})
	asked := systemd.NewManager(fake.ManagerSocket()).Ask(t.Context(), func(ctx context.Context, talk *systemd.Talk) {
		found, err = h.FindUnits(ctx, talk)
	})
	if _, late := errors.AsType[*bounded.LateError](err); asked != nil || !late || len(found) != 1 {
		t.Errorf("FindUnits() = %v, %v, want the other timer, and that the script is late (%v)", found, err, asked)
	}
}
