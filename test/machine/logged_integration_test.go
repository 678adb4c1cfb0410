//go:build integration

package machine_test

import (
	"strings"
	"testing"

	"hostler.io/hostler/test/machine"
)

// TestTheJournalFindsWhatALoopSaid has journald itself take the agent's entries, up to the
// last one, which it reads when the process may be gone.
func TestTheJournalFindsWhatALoopSaid(t *testing.T) {
	onBothDebians(t, machine.Container, func(t *testing.T, o machine.Options) {
		m := machine.Boot(t, o)
		m.AwaitArmed()
		m.Run("systemctl restart hostler")
		m.AwaitArmed()
		for arguments, want := range map[string]string{
			"-u hostler -o cat HOSTLER_LOOP=status":                 `msg="node registered"`,
			"-u hostler -o cat HOSTLER_LOOP=shutdown-guard -p info": "state=Armed",
			"-u hostler -o cat":                                     `msg="agent has ended"`,
			"-u hostler -o cat SYSLOG_IDENTIFIER=hostler -n 50":     `level=INFO msg="agent is up"`,
		} {
			m.Eventually("journalctl "+arguments+" has "+want, func() bool { return strings.Contains(m.Journal(0, arguments), want) })
		}
		if said := m.Journal(0, "-u hostler -o cat"); strings.Contains(said, "left raised") {
			t.Errorf("a restart says\n%s\nwant nothing of a delay that is left raised", said)
		}
		if said := m.Journal(0, "-u hostler -o cat HOSTLER_LOOP=status"); strings.Contains(said, "agent is up") {
			t.Errorf("journalctl HOSTLER_LOOP=status = %s, want what that loop said alone", said)
		}
	})
}
