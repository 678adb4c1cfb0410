//go:build integration

package machine_test

import (
	"strings"
	"testing"

	"hostler.io/hostler/test/machine"
)

// TestAPluginOfTheServices has the service itself run a control plane's plugin, as docs/plugin.md
// shows it: it may do no more than the unit lets the agent do, and ends with the agent.
func TestAPluginOfTheServices(t *testing.T) {
	onBothDebians(t, machine.Container, func(t *testing.T, o machine.Options) {
		m := machine.Boot(t, o)
		m.Copy(machine.Built("serve"), "/usr/local/bin/fleet")
		m.Copy(machine.Built("plugin-https"), "/usr/local/bin/plugin-https")
		m.Write("/etc/systemd/system/fleet.service", "[Service]\nExecStart=/usr/local/bin/fleet -ca /etc/hostler/fleet-ca.crt\n")
		m.Write("/etc/hostler/conf.d/plugin.yaml", `controlPlane:
  type: plugin
  plugin:
    command: [/usr/local/bin/plugin-https, -url, "https://127.0.0.1:8443", -ca, /etc/hostler/fleet-ca.crt]
`)
		m.Run("systemctl daemon-reload; systemctl start fleet; until [ -s /etc/hostler/fleet-ca.crt ]; do sleep 0.1; done; systemctl restart hostler")
		m.AwaitArmed()
		m.Eventually("the plugin has registered the Node", func() bool {
			s := m.Status()
			return s.ControlPlane.Type == "plugin" && s.ControlPlane.Connected && s.Lease != nil
		})
		if n := strings.TrimSpace(m.Run("curl -s --cacert /etc/hostler/fleet-ca.crt https://127.0.0.1:8443/nodes/machine | jq -r .metadata.name")); n != "machine" {
			t.Errorf("the fleet has a Node called %q, want machine", n)
		}
		if said := m.Hostler("doctor || true"); !strings.Contains(said, "plugin https 1.0.0") {
			t.Errorf("hostler doctor says nothing of the plugin:\n%s", said)
		}

		plugin := strings.TrimSpace(m.Run("pgrep -x plugin-https"))
		bounds := m.Run("grep -E '^(NoNewPrivs|Seccomp|CapBnd):' /proc/" + plugin + "/status")
		for line := range strings.Lines(m.Run("grep -E '^(NoNewPrivs|Seccomp|CapBnd):' /proc/" + agentPID(m) + "/status")) {
			if !strings.Contains(bounds, line) {
				t.Errorf("the plugin has the bounds\n%swant, as the agent, %s", bounds, line)
			}
		}
		if !strings.Contains(bounds, "NoNewPrivs:\t1") || !strings.Contains(bounds, "Seccomp:\t2") {
			t.Errorf("the plugin has the bounds\n%swant those of the unit", bounds)
		}
		if r, err := m.Try(t.Context(), "nsenter -t "+plugin+" -m touch /usr/local/bin/written"); err != nil || r.Code == 0 {
			t.Errorf("a file was made in /usr where the plugin is = %+v, %v, want that nobody there may write", r, err)
		}

		m.Run("systemctl stop hostler")
		if left := m.Run("pgrep -x plugin-https || true"); left != "" {
			t.Errorf("the plugin runs on without its agent, as process %s", left)
		}
	})
}
