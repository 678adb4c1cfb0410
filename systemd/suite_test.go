package systemd_test

import (
	"testing"

	"hostler.io/hostler/systemd/systemdtest"
)

func TestLogindOverTheFake(t *testing.T) {
	for name, options := range map[string]systemdtest.FakeOptions{
		"of systemd 252": {},
		"of systemd 257": {Metadata: true, CanReload: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // its cases mostly wait
			systemdtest.Run(t, func(t *testing.T) systemdtest.Bed { return systemdtest.NewFake(t, options) })
		})
	}
}
