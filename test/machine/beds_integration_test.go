//go:build integration

package machine_test

import (
	"cmp"
	"os"
	"testing"

	"hostler.io/hostler/test/machine"
)

// forcedBed is the bed that the environment has every scenario run in, on both
// releases: `make test-machine` names the VM. Empty for the usual ones.
func forcedBed() machine.Bed { return machine.Bed(os.Getenv("HOSTLER_TEST_BED")) }

// onBothDebians runs a scenario on both releases, in the bed that it usually
// runs in, unless the environment forces another one.
func onBothDebians(t *testing.T, usual machine.Bed, scenario func(t *testing.T, o machine.Options)) {
	t.Helper()
	t.Parallel()
	bed := cmp.Or(forcedBed(), usual)
	for _, release := range machine.Releases() {
		t.Run("debian"+string(release)+"-"+string(bed), func(t *testing.T) {
			t.Parallel() // a machine that waits leaves the other one the host
			scenario(t, machine.Options{Release: release, Bed: bed})
		})
	}
}

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

// inVM tells a story that a container cannot, for it shares with its host what
// the story changes: in a VM of one release, or of each where the environment
// names that bed.
func inVM(t *testing.T, usual machine.Release, story func(t *testing.T, o machine.Options)) {
	t.Helper()
	t.Parallel()
	for _, release := range machine.Releases() {
		if release == usual || forcedBed() == machine.VM {
			t.Run("debian"+string(release)+"-vm", func(t *testing.T) {
				t.Parallel() // a machine that waits leaves the other one the host
				story(t, machine.Options{Release: release, Bed: machine.VM})
			})
		}
	}
}

// inBrief tells whether a story is to be shorter than it could be: in a VM, where
// all takes many times as long, as long as nobody asks for it.
func inBrief(o machine.Options) bool { return o.Bed == machine.VM && forcedBed() == "" }
