package doctor

import "fmt"

// fixes are the hints that start and restart services.
type fixes struct {
	start, enable, restart, journal string // of hostler.service

	startBus, startLogind, restartLogind, kubelet string

	startRuntime func(service string) string
}

// fixes returns the hints for this host's service manager.
func (f Facts) fixes() fixes {
	if f.Systemd.Missing {
		return fixes{
			start: "start `hostler agent`", restart: "restart `hostler agent`", journal: "see its log",
			startBus: "start the system bus, and a logind such as elogind: without them, nothing can delay a shutdown",
			// elogind has the same name on the bus.
			startLogind: "start a logind such as elogind: without it, nothing can delay a shutdown", restartLogind: "restart logind",
			kubelet: "restart the kubelet; if that does not help, see its log",
			startRuntime: func(service string) string {
				return fmt.Sprintf("start %s; if it runs already, see its log; if it hangs, restart it", service)
			},
		}
	}
	const restartLogind = "systemctl restart systemd-logind" // locks survive it
	return fixes{
		start: "systemctl start hostler", enable: "systemctl enable --now hostler", restart: "systemctl restart hostler", journal: "journalctl -u hostler",
		startBus:      "systemctl start dbus.socket dbus.service && " + restartLogind, // without the bus, logind ends, or keeps running and does not reconnect
		startLogind:   restartLogind + "; if that fails: journalctl -u systemd-logind (packages systemd and dbus)",
		restartLogind: restartLogind,
		kubelet:       "systemctl restart kubelet; if that does not help: journalctl -u kubelet | grep -i shutdown",
		startRuntime: func(service string) string {
			stops := ""
			if service == "docker" {
				stops = ", which stops its containers unless its live-restore is on"
			}
			return fmt.Sprintf("systemctl start %s; if it runs already: journalctl -u %s; if it hangs: systemctl restart %s%s", service, service, service, stops)
		},
	}
}

// restartAgent restarts the agent. The hint says that no container stops, because people may fear that.
func (m fixes) restartAgent() string { return m.restart + ", which stops no container" }
