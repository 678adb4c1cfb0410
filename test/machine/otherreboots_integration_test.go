//go:build integration

package machine_test

import (
	"testing"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/machine"
)

// TestOnlyHostlerRebootsAHost lets hostler reboot a host that other tools reboot, too, and disables
// these as hostler's hint says.
func TestOnlyHostlerRebootsAHost(t *testing.T) {
	onBothDebians(t, func(t *testing.T, o machine.Options) {
		o.Config = "reboot: {enabled: true}\n"
		m := machine.Boot(t, o)
		m.AwaitArmed()
		for _, a := range []ailment{
			{
				name: "an active timer", enter: "printf '[Timer]\nOnCalendar=2199-1-1\n' >/etc/systemd/system/weekly.timer && " +
					"printf '[Service]\nType=oneshot\nExecStart=/bin/sh -c \"sleep 1; systemctl reboot\"\n' >/etc/systemd/system/weekly.service && systemctl daemon-reload && systemctl start weekly.timer",
				message: "weekly.timer (which starts weekly.service) also reboots this host, without a reboot slot", fix: "systemctl disable --now weekly.timer",
			},
			{
				name: "unattended-upgrades", enter: "touch /usr/bin/unattended-upgrade && echo 'Unattended-Upgrade::Automatic-Reboot \"true\";' >/etc/apt/apt.conf.d/50unattended-upgrades",
				message: "unattended-upgrades (Unattended-Upgrade::Automatic-Reboot in /etc/apt/apt.conf.d/50unattended-upgrades) also reboots this host",
				fix:     `set Unattended-Upgrade::Automatic-Reboot "false" in /etc/apt/apt.conf.d/50unattended-upgrades`,
				leave:   "sed -i s/true/false/ /etc/apt/apt.conf.d/50unattended-upgrades",
			},
			{
				name: "a crontab of root", enter: "mkdir -p /var/spool/cron/crontabs && echo '@weekly /sbin/reboot' >/var/spool/cron/crontabs/root && chmod 600 /var/spool/cron/crontabs/root",
				message: "a command in /var/spool/cron/crontabs/root also reboots this host", leave: "rm /var/spool/cron/crontabs/root",
			},
			{
				name: "kured", enter: "cp /usr/bin/sleep /usr/local/bin/kured && systemd-run -q -p Type=exec --unit=kured-like /usr/local/bin/kured infinity",
				message: "kured (process kured", fix: "remove DaemonSet kured", leave: "systemctl stop kured-like",
			},
		} {
			a.reason, a.protected, a.check, a.verdict = status.ReasonArmed, true, "other-reboots", doctor.Warn
			m.Run(a.enter)
			expectAilment(t, m, a)
			leave := a.leave
			if leave == "" {
				leave = a.fix
			}
			m.Run(leave)
			expectAilment(t, m, ailment{
				name: "after " + a.name, reason: status.ReasonArmed, protected: true,
				check: "other-reboots", verdict: doctor.OK, message: "only hostler reboots this host",
			})
		}
	})
}
