//go:build integration

package machine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler.io/hostler/test/machine"
)

// failed is a test that its machine treats as failed, and that ends on request. Failures of the
// machine are the real test's failures.
type failed struct {
	testing.TB
	cleanups []func()
}

func (f *failed) Failed() bool { return true }

func (f *failed) Cleanup(cleanup func()) { f.cleanups = append(f.cleanups, cleanup) }

func (f *failed) end() {
	for len(f.cleanups) > 0 {
		last := len(f.cleanups) - 1
		cleanup := f.cleanups[last]
		f.cleanups = f.cleanups[:last]
		cleanup()
	}
}

// TestAFailingScenarioLeavesItsJournalAndItsConsole also covers a machine that is off by then.
func TestAFailingScenarioLeavesItsJournalAndItsConsole(t *testing.T) {
	t.Parallel()
	dist := filepath.Join("..", "..", "dist", "machine")
	t.Cleanup(func() {
		if !t.Failed() {
			if err := os.RemoveAll(filepath.Join(dist, t.Name())); err != nil {
				t.Error(err)
			}
		}
	})
	for _, tt := range []struct {
		name  string
		off   bool
		boots int // on the console
	}{
		{"a machine that answers", false, 2},
		{"a machine that is off", true, 3}, // it is booted again, to read its journal
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			scenario := &failed{TB: t}
			t.Cleanup(scenario.end) // if the test does not reach the call below
			m := machine.Boot(scenario, machine.Options{Release: machine.Debian13, Bed: machine.Container})
			say := func(what string) {
				m.Run("echo '" + what + "' | systemd-cat; until journalctl --boot --quiet | grep -q '" + what + "'; do sleep 0.1; done")
			}
			say("said in the first boot")
			m.GoesDown("systemctl reboot")
			say("said in the second boot")
			if tt.off {
				m.CutPower()
			}
			scenario.end()

			left := filepath.Join(dist, t.Name(), m.String())
			journal, err := os.ReadFile(filepath.Join(left, "journal.txt"))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"said in the first boot", "said in the second boot", `msg="agent started"`} {
				if !strings.Contains(string(journal), want) {
					t.Errorf("the journal that was left lacks %q:\n%s", want, journal)
				}
			}
			console, err := os.ReadFile(filepath.Join(left, "console.txt"))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(console), "Welcome to "); n != tt.boots {
				t.Errorf("the console that was left has %d boots, want %d:\n%s", n, tt.boots, console)
			}
		})
	}
}
