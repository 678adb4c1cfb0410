package cli_test

import (
	"slices"

	"hostler.io/hostler/agent/doctor"
)

// diagnosis is a host with several problems.
func diagnosis() doctor.Report {
	return doctor.Report{Checks: append([]doctor.Check{
		{Name: "protection", Status: doctor.Fail, Message: "a shutdown would wait for the pods, but less time than configured", Hint: "see the checks below"},
		{
			Name: "delay", Status: doctor.Fail,
			Message: "logind grants 8s, set by /etc/systemd/logind.conf.d/zzz.conf, of the 36s that the phases take: they are shortened to regular 4s, then critical 2s",
			Hint:    "/etc/systemd/logind.conf.d/zzz.conf sets InhibitDelayMaxSec= to 8s and is read after /run/systemd/logind.conf.d/zz-hostler.conf: raise it there to 36 or more, or remove the line; then systemctl restart systemd-logind",
		},
	}, onlyWarns().Checks...)}
}

func onlyWarns() doctor.Report {
	return doctor.Report{Protected: true, Checks: append([]doctor.Check{
		{Name: "unit", Status: doctor.Warn, Message: "hostler.service is disabled: it will not start at the next boot", Hint: "systemctl enable hostler"},
	}, slices.DeleteFunc(allWell().Checks, func(c doctor.Check) bool { return c.Name == "unit" })...)}
}

// pluginTrouble is a host whose control-plane plug-in does not answer.
func pluginTrouble() doctor.Report {
	return doctor.Report{Protected: true, Checks: append([]doctor.Check{
		{
			Name: "plugin", Status: doctor.Fail,
			Message: "the plugin's socket /run/fleet/plugin.sock: nobody serves it: is the plugin running?",
			Hint:    "start the service of the plugin, or correct controlPlane.plugin.socket; hostler connects automatically",
		},
		{Name: "plugin-node", Status: doctor.Fail, Message: "the lease has expired: not renewed for 52s, valid for 40s", Hint: "see the checks of the plugin"},
	}, allWell().Checks...)}
}

func allWell() doctor.Report {
	return doctor.Report{Protected: true, Checks: []doctor.Check{
		{Name: "dbus", Status: doctor.OK, Message: "the system bus answers"},
		{Name: "lock", Status: doctor.OK, Message: "hostler shutdown lock held, as pid 812"},
		{Name: "unit", Status: doctor.OK, Message: "hostler.service is active and enabled, and keeps the lock across its restarts"},
		{Name: "other-locks", Status: doctor.OK, Message: `a shutdown also waits for unattended-upgrades (pid 1011, user 0, "Stop ongoing upgrades or perform upgrades before shutdown")`},
	}}
}

// noAgent is a host whose agent was stopped.
func noAgent() doctor.Report {
	unknown := func(name string) doctor.Check {
		return doctor.Check{Name: name, Status: doctor.Unknown, Message: "not checked: the agent is not running", Hint: "see check agent"}
	}
	return doctor.Report{Message: "no agent answers; checks that need it are unknown", Checks: append([]doctor.Check{
		{
			Name: "agent", Status: doctor.Fail,
			Message: "hostler.service is inactive, so that a shutdown would not wait for the pods: no agent answers at /run/hostler/hostler.sock: connect: no such file or directory",
			Hint:    "systemctl start hostler; if that fails: journalctl -u hostler",
		}, unknown("protection"), unknown("lock"),
	}, slices.DeleteFunc(allWell().Checks, func(c doctor.Check) bool { return c.Name == "lock" })...)}
}

// otherVersion is a host whose upgrade left the old agent running.
func otherVersion() doctor.Report {
	r := allWell()
	r.Version = "1.2.2"
	return r
}

// manyFaults is a host whose files have several faults.
func manyFaults() doctor.Report {
	return doctor.Report{Protected: true, Checks: append([]doctor.Check{{
		Name: "configuration", Status: doctor.Warn,
		Message: "the files are invalid, and an agent would not start with them: \n/etc/hostler/hostler.yaml:2: imageGC.highThresholdPercent: \"much\" is not a whole number\n/etc/hostler/hostler.yaml:4: node.nme: unknown field; did you mean name?",
		Hint:    "correct the files until `hostler config check` finds no error",
	}}, allWell().Checks...)}
}
