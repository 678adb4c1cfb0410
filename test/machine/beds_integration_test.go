//go:build integration

package machine_test

import (
	"os"
	"testing"

	"hostler.io/hostler/test/machine"
)

// forcedBed is the bed that the environment has every scenario run in, on both
// releases: `make test-machine` names the VM. Empty for the usual ones.
func forcedBed() machine.Bed { return machine.Bed(os.Getenv("HOSTLER_TEST_BED")) }

// eachMachine tells a story in a container of each release, and in a VM of one.
func eachMachine(t *testing.T, inVM machine.Release, story func(t *testing.T, o machine.Options)) {
	t.Helper()
	t.Parallel()
	var machines []machine.Options
	for _, release := range machine.Releases() {
		for _, bed := range []machine.Bed{machine.Container, machine.VM} {
			usual := bed == machine.Container || release == inVM
			if forced := forcedBed(); forced == bed || forced == "" && usual {
				machines = append(machines, machine.Options{Release: release, Bed: bed})
			}
		}
	}
	for _, o := range machines {
		t.Run("debian"+string(o.Release)+"-"+string(o.Bed), func(t *testing.T) {
			t.Parallel() // a machine that waits leaves the other one the host
			story(t, o)
		})
	}
}

// inBrief tells whether a story is to be shorter than it could be: in a VM, where
// all takes many times as long, as long as nobody asks for it.
func inBrief(o machine.Options) bool { return o.Bed == machine.VM && forcedBed() == "" }
