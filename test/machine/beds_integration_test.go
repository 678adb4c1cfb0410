//go:build integration

package machine_test

import (
	"os"
	"testing"

	"hostler.io/hostler/test/machine"
)

// allInVMs is the variable that has every scenario run in VMs, on all releases:
// `make test-machine` sets it.
const allInVMs = "HOSTLER_MACHINE_VM"

// eachMachine tells a story in a container of each release, and in a VM of one.
func eachMachine(t *testing.T, inVM machine.Release, story func(t *testing.T, o machine.Options)) {
	all := os.Getenv(allInVMs) != ""
	var machines []machine.Options
	for _, release := range machine.Releases() {
		if !all {
			machines = append(machines, machine.Options{Release: release, Bed: machine.Container})
		}
		if all || release == inVM {
			machines = append(machines, machine.Options{Release: release, Bed: machine.VM})
		}
	}
	for _, o := range machines {
		t.Run("debian"+string(o.Release)+"-"+string(o.Bed), func(t *testing.T) { story(t, o) })
	}
}
