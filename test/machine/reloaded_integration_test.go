//go:build integration

package machine_test

import (
	"context"
	"strings"
	"testing"

	"hostler.io/hostler/test/machine"
)

// TestAReloadThatIsRefused checks that the reload command reports it, and that the agent stays as
// it is.
func TestAReloadThatIsRefused(t *testing.T) {
	onDebian(t, machine.Debian13, func(t *testing.T, o machine.Options) {
		o.Config = workloadConfig()
		m := machine.Boot(t, o)
		before := agentPID(m)
		for _, step := range []struct{ what, text, message string }{
			{"what cannot change live", "shutdown: {gracePeriod: 45s}\n", "shutdown.gracePeriod"},
			{"a file with a fault", "imageGC: {keep: [x\n", "/etc/hostler/conf.d/it.yaml"},
			{"what can change live", "imageGC: {minimumAge: 3m}\n", ""},
		} {
			m.Write("/etc/hostler/conf.d/it.yaml", step.text)
			ctx, cancel := context.WithTimeout(t.Context(), machine.Patience)
			r, err := m.Try(ctx, "systemctl reload hostler")
			cancel()
			if refused := step.message != ""; err != nil || refused != (r.Code != 0) {
				t.Errorf("systemctl reload with %s = %+v, %v, want it to fail = %t", step.what, r, err, refused)
			}
			m.Eventually("the journal says "+step.message+" after a reload with "+step.what, func() bool {
				return strings.Contains(m.Journal(0, "-u hostler"), step.message)
			})
			if status := m.Hostler("status"); step.message != "" && !strings.Contains(status, "configuration") {
				t.Errorf("hostler status says nothing of %s:\n%s", step.what, status)
			}
			m.AwaitArmed()
			if pid := agentPID(m); pid != before {
				t.Errorf("the agent has process ID %s after a reload with %s, want %s as before", pid, step.what, before)
			}
		}
	})
}
