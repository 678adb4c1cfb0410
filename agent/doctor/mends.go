package doctor

import "fmt"

// mends are what a person types, or does, to have services run.
type mends struct {
	start, enable, restart, journal string // of hostler's own

	startBus, startLogind, restartLogind, kubelet, reboot string

	startRuntime func(service string) string
}

// mends are those of the service manager that this host has.
func (f Facts) mends() mends {
	if f.Systemd.Missing {
		return mends{
			start: "start `hostler agent`", restart: "restart `hostler agent`", journal: "see what it logs",
			startBus: "start the system bus, and a logind such as elogind: where neither runs, nobody can hold a shutdown back",
			// elogind answers to the same name on the bus.
			startLogind: "start a logind such as elogind: where none runs, nobody can hold a shutdown back", restartLogind: "restart logind",
			kubelet: "restart the kubelet; where that does not help, see what it logs of a shutdown", reboot: "loginctl reboot",
			startRuntime: func(service string) string { return fmt.Sprintf("start %s; where it runs, see what it logs", service) },
		}
	}
	const restartLogind = "systemctl restart systemd-logind" // locks outlive it
	return mends{
		start: "systemctl start hostler", enable: "systemctl enable --now hostler", restart: "systemctl restart hostler", journal: "journalctl -u hostler",
		startBus:      "systemctl start dbus.socket dbus.service && " + restartLogind, // logind ends with the bus, or runs on and does not come back to it
		startLogind:   restartLogind + "; where that fails: journalctl -u systemd-logind (its package is systemd, beside dbus)",
		restartLogind: restartLogind,
		kubelet:       "systemctl restart kubelet; where that does not help: journalctl -u kubelet | grep -i shutdown", reboot: "systemctl reboot",
		startRuntime: func(service string) string {
			return fmt.Sprintf("systemctl start %s; where it runs: journalctl -u %s", service, service)
		},
	}
}

// restartAgent is what starts it anew, for a person who fears for containers.
func (m mends) restartAgent() string { return m.restart + ", which stops no container" }
