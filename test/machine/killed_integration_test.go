//go:build integration

package machine_test

import (
	"strings"

	"hostler.io/hostler/test/machine"
)

// Hostler's drop-in to logind's configuration, and what logind grants without it.
const (
	raisedBy = "/run/systemd/logind.conf.d/zz-hostler.conf"
	fallback = "5000000" // microseconds
)

// takenBack kills the agent in each way after which it is not restarted: logind then grants what it
// granted before.
func (h *packaged) takenBack() {
	h.t.Helper()
	const dropIn = "/etc/systemd/system/hostler.service.d/restart.conf"
	unit := func(directive string) {
		h.t.Helper()
		h.Write(dropIn, "[Service]\n"+directive+"\n")
		h.Run("systemctl daemon-reload && systemctl restart hostler")
		h.AwaitArmed()
	}
	kill := func() { h.Run("kill -KILL " + agentPID(h.Machine)) }
	file := func() string { return h.Run("stat --format %i " + raisedBy + " 2>/dev/null; true") }

	before, first := file(), agentPID(h.Machine)
	kill()
	h.Eventually("systemd has started an agent again that was killed", func() bool {
		pid := agentPID(h.Machine)
		return pid != first && pid != "0"
	})
	h.AwaitArmed()
	if after := file(); after != before || after == "" {
		h.t.Errorf("the drop-in of an agent that was killed and restarted is file %q, want %q as before", after, before)
	}

	unit("Restart=no")
	kill()
	h.Eventually("the service has failed", func() bool { return h.Run("systemctl is-failed hostler; true") == "failed\n" })
	h.lowered("its agent was killed and is not to be started again")

	unit("RestartSec=1h")
	h.Write("/etc/hostler/conf.d/faulty.yaml", "imageGC: {highThreshold: 5}\n")
	kill()
	h.Eventually("the service waits to start the agent again", func() bool { return h.waits() })
	h.Run("systemctl restart --no-block hostler")
	h.Eventually("its successor has refused the configuration", func() bool {
		return strings.Contains(h.Journal(0, "-u hostler"), "imageGC.highThreshold") && h.waits()
	})
	h.lowered("the successor of its agent refuses the configuration")
	h.Run("rm /etc/hostler/conf.d/faulty.yaml")

	unit("RestartSec=1h")
	kill()
	h.Eventually("the service waits to start the agent again", func() bool { return h.waits() })
	h.Run("systemctl stop hostler")
	if file() == "" {
		h.t.Error("a stop between an agent that was killed and the next one takes the drop-in away: docs/reference/doctor.md says that it is left")
	}
	h.Run("rm " + dropIn + " && rmdir --ignore-fail-on-non-empty $(dirname " + dropIn + ") && systemctl daemon-reload")
	h.dpkg("--remove hostler")
	h.lowered("it is removed after its agent was killed")
	h.dpkg("--install " + machine.Package)
	h.open("it is installed again after its agent was killed")
}

// waits reports whether systemd will start the agent again after a pause.
func (h *packaged) waits() bool {
	h.t.Helper()
	return h.Run("systemctl show --property=SubState --value hostler") == "auto-restart\n"
}

// lowered checks that hostler has left nothing with logind.
func (h *packaged) lowered(when string) {
	h.t.Helper()
	var left string
	h.Eventually("logind grants what it did before when "+when, func() bool {
		left = h.Run("busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager InhibitDelayMaxUSec; ls " + raisedBy + " 2>/dev/null; true")
		return left == "t "+fallback+"\n"
	})
	h.livesOn(when)
}
