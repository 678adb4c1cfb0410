package systemd_test

import (
	"testing"

	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/systemdtest"
)

func TestWhetherTheClockIsSetIsToldBySystemd(t *testing.T) {
	for _, want := range []bool{true, false} {
		fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
		if _, err := systemd.ClockSynchronized(t.Context(), fake.Address()); err == nil {
			t.Error("ClockSynchronized() tells where there is nobody to ask")
		}
		fake.KeepClock(want)
		if got, err := systemd.ClockSynchronized(t.Context(), fake.Address()); got != want || err != nil {
			t.Errorf("ClockSynchronized() = %t, %v, want %t", got, err, want)
		}
	}
}
