package doctor_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/rebooters"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/systemd"
)

func TestWhatElseRebootsAHost(t *testing.T) {
	others := []rebooters.Rebooter{{Name: "a command in /etc/cron.d/a", Off: "remove that command"}, {Name: "rebootmgr.service", Off: "rebootmgrctl set-strategy off"}}
	for name, tt := range map[string]struct {
		reboots doctor.Reboots
		want    string // status|message|hint; empty without the check
	}{
		"nothing":           {doctor.Reboots{}, ""},
		"others alone":      {doctor.Reboots{Others: others}, "ok|this host is rebooted by a command in /etc/cron.d/a, rebootmgr.service; hostler does not reboot it, see reboot.enabled|"},
		"others, or no one": {doctor.Reboots{Err: context.DeadlineExceeded}, ""},
		"hostler alone":     {doctor.Reboots{Enabled: true}, "ok|only hostler reboots this host|"},
		"hostler, and others": {
			doctor.Reboots{Enabled: true, Others: others, Err: context.DeadlineExceeded},
			"warn|a command in /etc/cron.d/a also reboots this host, without a reboot slot; rebootmgr.service also reboots this host, without a reboot slot" +
				"|remove that command; rebootmgrctl set-strategy off",
		},
		"hostler, without systemd": {doctor.Reboots{Enabled: true, Err: systemd.ErrNotSystemd}, "ok|only hostler reboots this host|"},
		"hostler, and perhaps a timer": {
			doctor.Reboots{Enabled: true, Err: context.DeadlineExceeded},
			"unknown|cannot check which timers reboot this host: systemd did not answer: no answer within 5s (is the host busy?)",
		},
		"others, but a script that hangs": {
			doctor.Reboots{Err: &bounded.LateError{Path: "/home/a/b", Err: errors.New("no answer within 1s")}},
			"unknown|cannot check what reboots this host: read /home/a/b: no answer within 1s|check who can change /home/a/b, and its file system",
		},
		"hostler, and a script that hangs": {
			doctor.Reboots{Enabled: true, Err: errors.Join(systemd.ErrNotSystemd, &bounded.LateError{Path: "/home/a/b"})},
			"unknown|cannot check what reboots this host: read /home/a/b: an earlier read has not returned|check who can change /home/a/b",
		},
	} {
		f := healthy()
		f.Reboots = tt.reboots
		got := ""
		for _, c := range doctor.Examine(f).Checks {
			if c.Name == "other-reboots" {
				got = string(c.Status) + "|" + c.Message + "|" + c.Hint
			}
		}
		if got != tt.want && !(strings.HasPrefix(tt.want, "unknown") && strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s: check %q, want %q", name, got, tt.want)
		}
	}
}

func TestARebootThatDoesNotEnd(t *testing.T) {
	f := healthy()
	f.Reboots = doctor.Reboots{Enabled: true, Problem: "2 attempts failed, the last one: pods still run"}
	for _, c := range doctor.Examine(f).Checks {
		if c.Name == "reboot" {
			if c.Status != doctor.Warn || c.Message != f.Reboots.Problem || c.Hint != doctor.RebootFix {
				t.Errorf("check = %+v, want the problem as a warning", c)
			}
			return
		}
	}
	t.Error("doctor has no check reboot")
}

func TestChecksThatCannotRequestAReboot(t *testing.T) {
	f := healthy()
	f.Reboots = doctor.Reboots{Enabled: true, Broken: []doctor.Fix{
		{Message: "new-kernel: linux-version is not installed", Command: "new-kernel: to run it manually: /etc/hostler/reboot.d/new-kernel"},
		{Message: "open: is not run because others may write it", Command: "open: chmod go-w"},
	}}
	for _, problem := range []string{"", "no answer"} {
		want := "new-kernel: linux-version is not installed\nopen: is not run because others may write it"
		if f.Reboots.Problem = problem; problem != "" {
			want = problem + "\n" + want
		}
		found := false
		for _, c := range doctor.Examine(f).Checks {
			if c.Name == "reboot" {
				found = c.Status == doctor.Warn && c.Message == want && strings.HasSuffix(c.Hint, "new-kernel: to run it manually: /etc/hostler/reboot.d/new-kernel\nopen: chmod go-w")
				if !found {
					t.Errorf("check = %+v, want the message %q and its hints", c, want)
				}
			}
		}
		if !found {
			t.Errorf("with problem %q, doctor does not name the broken checks", problem)
		}
	}
}
