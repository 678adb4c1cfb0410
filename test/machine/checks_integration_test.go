//go:build integration

package machine_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/test/machine"
)

// TestChecksDoNotBlockTheirAgent restarts an agent while a check runs. Another check has left a
// process that does not end on SIGTERM.
func TestChecksDoNotBlockTheirAgent(t *testing.T) {
	onDebian(t, machine.Debian12, func(t *testing.T, o machine.Options) {
		o.Config = workloadConfig()
		m := machine.Boot(t, o)
		const folder = "/etc/hostler/conditions.d/"
		m.Write(folder+"leaves", `#!/bin/sh
# hostler:
#   interval: 1h
#   timeout: 10m
#   user: root
setsid sh -c 'trap "" TERM; echo $$ >/run/left; while :; do sleep 1000; done' </dev/null >/dev/null 2>&1 &
until [ -s /run/left ]; do sleep 0.1; done
`)
		m.Write(folder+"runs", `#!/bin/sh
# hostler:
#   interval: 1s
#   timeout: 1h
#   user: root
trap 'echo told >/run/told' TERM
[ -e /run/hold ] || exit 0
touch /run/held
sleep 3000
`)
		m.Run("chmod 755 " + folder + "*")
		for _, kind := range []corev1.NodeConditionType{"hostler.io/Leaves", "hostler.io/Runs"} {
			awaitCondition(t, m, "its check has run", kind, corev1.ConditionFalse)
		}
		m.Run("touch /run/hold; until [ -e /run/held ]; do sleep 0.1; done")
		left := strings.TrimSpace(m.Read("/run/left"))
		// Whoever waits for what a check left behind waits for all of this time.
		m.Run("mkdir -p /run/systemd/system/hostler.service.d; printf '[Service]\nTimeoutStopSec=20min\n' >/run/systemd/system/hostler.service.d/patient.conf; systemctl daemon-reload")
		before := time.Now()
		m.Run("systemctl restart hostler")
		if took := time.Since(before); took > 5*time.Minute {
			t.Errorf("the restart took %v, want none of the 20 minutes that the service has for its end", took)
		}
		m.AwaitArmed()
		if state := m.Run("ps -o stat=,args= -p " + left + " || true"); state != "" {
			t.Errorf("what a check left behind is still there: %s", state)
		}
		if output := m.Run("cat /run/told 2>/dev/null || true"); output != "" {
			t.Error("systemd ended a check, which is the agent's to end: a check that was cut off is no answer")
		}
		if log := m.Journal(0, "-u hostler"); strings.Contains(log, "type=hostler.io/Runs status=Unknown") {
			t.Errorf("the restart has a condition change:\n%s", grep(log, "hostler.io/Runs"))
		}
		if policy := m.Run("systemctl show -P OOMPolicy hostler"); policy != "continue\n" {
			t.Errorf("OOMPolicy is %q, want that the agent continues when the kernel kills a check that takes all memory", policy)
		}
	})
}
