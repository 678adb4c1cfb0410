//go:build integration

package machine_test

import (
	"strings"
	"testing"

	"hostler.io/hostler/test/machine"
)

// TestAHostGetsItsNameLate boots a host without a name, like one that gets its name by DHCP, and
// renames it later.
func TestAHostGetsItsNameLate(t *testing.T) {
	onDebian(t, machine.Debian12, func(t *testing.T, o machine.Options) {
		m := machine.Boot(t, o)
		// The state of a boot without /etc/hostname, without an earlier Node.
		m.Run("systemctl stop hostler && rm -r /etc/hostname /var/lib/hostler/* && hostnamectl set-hostname --transient localhost && systemctl start hostler")
		m.AwaitArmed()
		if s := m.Status(); s.Lease != nil || s.NodeName == nil || s.Owners["node"].Name != "none" {
			t.Errorf("status without a name: lease %v, node name %+v, owners %v, want neither Node nor Lease, and why", s.Lease, s.NodeName, s.Owners)
		}
		for command, text := range map[string]string{"status": flat(m.Run("hostler status || true")), "doctor": doctorSays(m)} {
			if !strings.Contains(text, "Node and Lease are not written until it has one") || !strings.Contains(text, "hostnamectl set-hostname NAME") {
				t.Errorf("hostler %s says nothing of the name that lacks:\n%s", command, text)
			}
		}
		before := agentPID(m)
		called := func(name string) func() bool {
			return func() bool {
				s, err := m.TryStatus()
				return err == nil && s.Node != nil && s.Node.Name == name && s.Node.UID != "" && s.Lease != nil && s.Lease.Name == name
			}
		}
		m.Run("hostnamectl set-hostname --transient rack7-web1")
		m.Eventually("the Node is called by the first real name", called("rack7-web1"))
		if agentPID(m) == before {
			t.Error("the agent is the one that had no name")
		}
		m.AwaitArmed()
		if s := m.Status(); s.NodeName != nil {
			t.Errorf("status has node name %+v, want nothing of a name that is as it should be", s.NodeName)
		}
		if state := m.Run("systemctl show -P Result -P NRestarts hostler"); !strings.HasPrefix(state, "success\n") {
			t.Errorf("systemd says %q, want that the service did not fail", state)
		}

		m.Run("hostnamectl set-hostname rack7-web2")
		m.Eventually("status reports the later name", func() bool {
			s := m.Status()
			return s.NodeName != nil && strings.Contains(s.NodeName.Message, "rack7-web2") && s.Node.Name == "rack7-web1"
		})
		if text := doctorSays(m); !strings.Contains(text, "the host is now named rack7-web2") {
			t.Errorf("hostler doctor says nothing of the later name:\n%s", text)
		}
		m.Run("hostler leave; systemctl restart hostler") // as the hint says
		m.Eventually("the Node is called by the later name", called("rack7-web2"))
		if list := m.Hostler("nodes"); strings.Contains(list, "rack7-web1") {
			t.Errorf("hostler nodes has a Node of the name before:\n%s", list)
		}

		m.Run("systemctl stop hostler && hostname " + strings.Repeat("a", 31) + "." + strings.Repeat("b", 32)) // too long for a Node
		if text := doctorSays(m); !strings.Contains(text, "cannot be the value of label kubernetes.io/hostname") || !strings.Contains(text, "hostler.service is inactive") || !strings.Contains(text, "runtimes: ready") {
			t.Errorf("hostler doctor without an agent and a name has not all checks:\n%s", text)
		}
		m.Run("systemctl start hostler")
		m.AwaitArmed()
	})
}

// flat joins lines that were wrapped for a screen.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }
