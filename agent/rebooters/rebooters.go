// Package rebooters finds what reboots this host besides hostler: update tools, timers and cron jobs.
//
// It reads configuration files and shell commands, and queries systemd. It runs no command, and changes
// nothing. It does not find other programs that reboot the host.
package rebooters

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/tree"
	"hostler.io/hostler/internal/trust"
	"hostler.io/hostler/systemd"
)

// Rebooter is a program, unit or job that reboots the host.
type Rebooter struct {
	Name string // with the file or unit where it is configured
	Off  string // the hint that switches it off
}

// Host is the host to search.
type Host struct {
	// Root is the root directory of the host's files: "/".
	Root string
	// Proc is the proc file system of the host: "/proc".
	Proc string
	// Files reads the files.
	Files *bounded.Files
}

// Find lists what reboots the host without its own unit. With a *bounded.LateError, the list may
// lack what a file names that was not read in time.
func (h Host) Find(ctx context.Context) ([]Rebooter, error) {
	s := h.search(ctx)
	return slices.Concat(s.unattendedUpgrades(), s.kured(), s.scripts()), s.late
}

// FindUnits lists the units that reboot the host. With an error, the list lacks the units that systemd
// did not report, or whose files were not read in time (*bounded.LateError).
func (h Host) FindUnits(ctx context.Context, talk *systemd.Talk) (found []Rebooter, err error) {
	s := h.search(ctx)
	active, err := talk.Active(ctx, "*.timer", zincati, rebootmgr, locksmith)
	if err != nil {
		return nil, err
	}
	isService := func(name string) bool { return strings.HasSuffix(name, ".service") }
	timers, err := talk.Timers(ctx, slices.DeleteFunc(slices.Clone(active), isService)...)
	for _, name := range active {
		if r := s.unit(name, active); r.Name != "" {
			found = append(found, r)
		}
	}
	for _, timer := range timers {
		if s.timerReboots(timer) {
			found = append(found, Rebooter{fmt.Sprintf("%s (which starts %s)", timer.Name, timer.Starts), "systemctl disable --now " + timer.Name})
		}
	}
	return found, errors.Join(err, s.late)
}

// unattendedUpgrades reads the files of apt.conf(5) in apt's order.
func (s *search) unattendedUpgrades() []Rebooter {
	const key = "Unattended-Upgrade::Automatic-Reboot"
	if !s.exists("/usr/bin/unattended-upgrade") {
		return nil
	}
	value, file := "", ""
	paths := slices.DeleteFunc(s.files("", "/etc/apt/apt.conf.d"), func(path string) bool {
		ext := filepath.Ext(path)
		return ext != "" && ext != ".conf"
	})
	for _, path := range append(paths, "/etc/apt/apt.conf") {
		if v, found := aptValue(s.read(path), key); found {
			value, file = v, path
		}
	}
	if !slices.Contains([]string{"1", "yes", "true", "with", "on", "enable"}, strings.ToLower(value)) { // as apt does
		return nil
	}
	return []Rebooter{{fmt.Sprintf("unattended-upgrades (%s in %s)", key, file), fmt.Sprintf("set %s \"false\" in %s", key, file)}}
}

// kured looks for the process of kured, which runs in a privileged pod of a DaemonSet, with the PIDs of the host.
func (s *search) kured() []Rebooter {
	for name, err := range tree.Names(s.Proc) {
		if err != nil {
			return nil
		}
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if comm, err := os.ReadFile(filepath.Join(s.Proc, name, "comm")); err != nil || string(comm) != "kured\n" {
			continue
		}
		if p, err := trust.Inspect(s.Proc, pid); err == nil && p.IsRoots() && p.Admin {
			return []Rebooter{{
				fmt.Sprintf("kured (%v)", p),
				"remove DaemonSet kured, or keep it off this Node: `kubectl get daemonsets -A | grep kured`",
			}}
		}
	}
	return nil
}

// The units of update tools, and the files of their settings.
const (
	zincati   = "zincati.service"
	rebootmgr = "rebootmgr.service"
	locksmith = "locksmithd.service"

	dnfFile           = "/etc/dnf/automatic.conf"
	transactionalFile = "/etc/transactional-update.conf"
	rpmOstreeFile     = "/etc/rpm-ostreed.conf"
)

// unit returns the Rebooter if a unit is an update tool and its settings make it reboot the host; else
// the zero value.
func (s *search) unit(name string, active []string) Rebooter {
	switch {
	case name == zincati:
		files := s.files(".toml", "/usr/lib/zincati/config.d", "/run/zincati/config.d", "/etc/zincati/config.d")
		// With strategy fleet_lock, it waits for a slot.
		if s.setting("updates.enabled", files...) != "false" && s.setting("updates.strategy", files...) != "fleet_lock" {
			return Rebooter{name + " (updates.strategy in /etc/zincati/config.d)", "let it ask `hostler server`: /usr/share/doc/hostler/docs/howto/reboots.md"}
		}
	case name == rebootmgr:
		if s.setting("rebootmgr.strategy", "/etc/rebootmgr.conf", "/etc/rebootmgr/rebootmgr.conf") != "off" {
			return Rebooter{name, "rebootmgrctl set-strategy off"}
		}
	case name == locksmith:
		return Rebooter{name, "systemctl mask --now " + name}
	case name == "transactional-update.timer":
		files := append(s.files("", "/usr/etc/transactional-update.conf.d"), transactionalFile)
		method := s.setting("REBOOT_METHOD", files...)
		if slices.Contains([]string{"kured", "notify", "none", "rebootmgr"}, method) || slices.Contains(active, rebootmgr) {
			return Rebooter{} // rebootmgr is reported itself
		}
		return Rebooter{fmt.Sprintf("%s (REBOOT_METHOD in %s)", name, transactionalFile), "set REBOOT_METHOD=kured in " + transactionalFile + ", which creates /run/reboot-required instead"}
	case name == "rpm-ostreed-automatic.timer":
		if s.setting("Daemon.AutomaticUpdatePolicy", rpmOstreeFile) == "apply" {
			return Rebooter{fmt.Sprintf("%s (AutomaticUpdatePolicy in %s)", name, rpmOstreeFile), "set AutomaticUpdatePolicy=stage in " + rpmOstreeFile}
		}
	case strings.HasPrefix(name, "dnf-automatic") || strings.HasPrefix(name, "dnf5-automatic"):
		if strings.HasPrefix(s.setting("commands.reboot", "/usr/share/dnf5/dnf5-plugins/automatic.conf", dnfFile), "when-") {
			return Rebooter{fmt.Sprintf("%s (reboot in %s)", name, dnfFile), "set reboot = never under [commands] in " + dnfFile}
		}
	}
	return Rebooter{}
}

// timerReboots reports whether a timer starts a reboot.
func (s *search) timerReboots(t systemd.Timer) bool {
	if isRebootUnit(t.Starts) || slices.Contains(rebootVerbs, strings.TrimSuffix(strings.TrimSuffix(t.SuccessAction, "-force"), "-immediate")) {
		return true
	}
	return slices.ContainsFunc(t.Commands, s.commandReboots)
}

// scripts finds cron jobs and scripts of needrestart that reboot the host.
func (s *search) scripts() (found []Rebooter) {
	add := func(path string) {
		found = append(found, Rebooter{"a command in " + path, "remove that command from " + path})
	}
	for _, path := range append(s.files("", "/etc/cron.d"), "/etc/crontab", "/var/spool/cron/crontabs/root", "/var/spool/cron/root") {
		jobs := cronJobs(s.read(path), !strings.HasPrefix(path, "/var/spool/"))
		if slices.ContainsFunc(jobs, func(job string) bool { return slices.ContainsFunc(commands(job), s.commandReboots) }) {
			add(path)
		}
	}
	for _, folder := range []string{"/etc/cron.hourly", "/etc/cron.daily", "/etc/cron.weekly", "/etc/cron.monthly", "/etc/needrestart/notify.d", "/etc/needrestart/restart.d"} {
		for _, path := range s.files("", folder) {
			if slices.ContainsFunc(commands(s.script(path)), reboots) {
				add(path)
			}
		}
	}
	return found
}

// commandReboots reports whether a command, or the script that it runs, reboots the host.
func (s *search) commandReboots(words []string) bool {
	return reboots(words) || slices.ContainsFunc(commands(s.script(scriptOf(words))), reboots)
}
