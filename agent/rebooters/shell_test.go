package rebooters_test

import (
	"testing"

	"hostler.io/hostler/agent/rebooters"
)

func TestCommandsThatReboot(t *testing.T) {
	for script, want := range map[string]bool{
		"reboot":                                             true,
		"/sbin/reboot -f":                                    true,
		"  /usr/sbin/shutdown -r now":                        true,
		"shutdown -fr +5 'for updates'":                      true,
		"shutdown --reboot":                                  true,
		"systemctl reboot":                                   true,
		"systemctl --force soft-reboot":                      true,
		"systemctl -q start reboot.target":                   true,
		"systemctl start systemd-reboot.service":             true,
		"init 6":                                             true,
		"telinit 6":                                          true,
		"kexec -e":                                           true,
		"bootc upgrade --apply --quiet":                      true,
		"/usr/lib/systemd/systemd-sysupdate reboot":          true,
		"apt-get -y upgrade && reboot":                       true,
		"needs-restarting -r || shutdown -r now":             true,
		"if [ -f /run/reboot-required ]; then\n\treboot\nfi": true,
		"while ! ready; do sleep 1; done; exec reboot":       true,
		"sh -c 'sleep 60; reboot'":                           true,
		`bash -lc "systemctl reboot"`:                        true,
		"sudo -n /sbin/reboot":                               true,
		"LANG=C nice -n 19 reboot":                           true,
		"flock -n /run/lock/a timeout 60 systemctl reboot":   true,
		"(sleep 5; reboot) &":                                true,
		"systemctl \\\n  reboot":                             true,
		"update() {\n  reboot; }":                            true,
		"nsenter -m/proc/1/ns/mnt -- /bin/systemctl reboot":  true,
		"":                                     false,
		"# reboot":                             false,
		"echo a#b; true # reboot":              false,
		"echo reboot":                          false,
		"echo 'updates are installed; reboot'": false,
		`logger "reboot; now"`:                 false,
		"grep -q reboot /var/log/syslog":       false,
		"rm -f /run/reboot-required":           false,
		"[ -f /run/reboot-required ] && touch /run/reboot": false,
		"last reboot":                             false,
		"shutdown -c":                             false,
		"shutdown -h now":                         false,
		"systemctl status reboot.target":          false,
		"systemctl restart hostler":               false,
		"systemctl list-jobs":                     false,
		"kexec -l /boot/vmlinuz":                  false,
		"init q":                                  false,
		"sh /usr/local/bin/reboot":                false,
		"hostler reboot --reason updates":         false,
		"unterminated 'reboot":                    false,
		"transactional-update cleanup dup reboot": false,
		"needrestart -r a; dnf needs-restarting --reboothint -r": false,
	} {
		if got := rebooters.Reboots(script); got != want {
			t.Errorf("Reboots(%q) = %t, want %t", script, got, want)
		}
	}
}
