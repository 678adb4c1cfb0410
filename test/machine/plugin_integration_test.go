//go:build integration

package machine_test

import (
	"strings"
	"testing"

	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/page"
)

// TestAPluginIsAServiceOfItsOwn runs a control plane plugin with the unit of the example: it works
// within that unit's limits, is restarted, and is stopped after hostler.
func TestAPluginIsAServiceOfItsOwn(t *testing.T) {
	onDebian(t, machine.Debian12, func(t *testing.T, o machine.Options) {
		const docs = "../../docs/howto/control-plane-plugin.md"
		m := machine.Boot(t, o)
		m.Copy(machine.Built("serve"), "/usr/local/bin/fleet")
		m.Copy(machine.Built("plugin-https"), "/usr/local/bin/plugin-https")
		m.Write("/etc/systemd/system/fleet.service", "[Service]\nExecStart=/usr/local/bin/fleet -ca /etc/hostler/fleet-ca.crt\n")
		m.Copy("../../docs/examples/plugin-https/plugin-https.service", "/etc/systemd/system/plugin-https.service")
		m.Write("/etc/hostler/conf.d/plugin.yaml", page.Blocks(t, docs, "Try it", "yaml")[0])
		m.Run("systemctl daemon-reload; systemctl start fleet; until [ -s /etc/hostler/fleet-ca.crt ]; do sleep 0.1; done")
		m.Run(page.Blocks(t, docs, "Try it", "sh")[1] + "systemctl restart hostler")
		m.AwaitArmed()
		registered := func() bool {
			s := m.Status()
			return s.ControlPlane.Type == "plugin" && s.ControlPlane.Connected && s.Lease != nil
		}
		m.Eventually("the plugin has registered the Node", registered)
		if n := strings.TrimSpace(m.Run("curl -s --cacert /etc/hostler/fleet-ca.crt https://127.0.0.1:8443/nodes/machine | jq -r .metadata.name")); n != "machine" {
			t.Errorf("the fleet has a Node called %q, want machine", n)
		}
		if text := m.Hostler("doctor || true"); !strings.Contains(text, "plugin https 1.0.0") {
			t.Errorf("hostler doctor says nothing of the plugin:\n%s", text)
		}

		mainPID := func() string { return strings.TrimSpace(m.Run("systemctl show -P MainPID plugin-https")) }
		plugin := mainPID()
		limits := m.Run("grep -E '^(NoNewPrivs|Seccomp|CapBnd):' /proc/" + plugin + "/status")
		for _, want := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapBnd:\t0000000000000000"} {
			if !strings.Contains(limits, want) {
				t.Errorf("the plugin has the limits\n%swant those of its unit, %s", limits, want)
			}
		}
		if mode := m.Run("stat -c %a /run/plugin-https"); mode != "700\n" {
			t.Errorf("the folder of the plugin's socket has mode %s, want 700", mode)
		}

		m.Run("kill -KILL " + plugin)
		m.Eventually("the plugin is restarted", func() bool { pid := mainPID(); return pid != "0" && pid != plugin })
		m.Eventually("hostler reaches it", registered)

		after := strings.Fields(m.Run("systemctl show -P After hostler"))
		if !strings.Contains(strings.Join(after, "\n")+"\n", "plugin-https.service\n") {
			t.Errorf("hostler.service is ordered after %q, want plugin-https.service, which is stopped after it then", after)
		}
		m.Run("systemctl stop hostler")
		if mainPID() == "0" {
			t.Error("the plugin has ended with hostler, want it to run on")
		}
	})
}
