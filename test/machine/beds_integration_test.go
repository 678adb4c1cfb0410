//go:build integration

package machine_test

import (
	"cmp"
	"os"
	"testing"

	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine"
)

// bed returns the bed of scenarios: containers in `make test`, VMs in `make test-machine`.
func bed() machine.Bed {
	return cmp.Or(machine.Bed(os.Getenv("HOSTLER_TEST_BED")), machine.Container)
}

// runsAll reports whether scenarios run on both releases that `make test` runs on one.
func runsAll() bool { return bed() == machine.VM || lab.Long() }

// releases returns both releases, or in `make test` the given one.
func releases(everyday machine.Release) []machine.Release {
	if runsAll() {
		return machine.Releases()
	}
	return []machine.Release{everyday}
}

// onDebian runs a scenario on both releases, or in `make test` on the given one. Each release is
// given for half of the scenarios.
func onDebian(t *testing.T, everyday machine.Release, scenario func(t *testing.T, o machine.Options)) {
	t.Helper()
	onDebians(t, releases(everyday), bed(), scenario)
}

// onBothDebians runs a scenario on both releases, because their programs differ in its subject.
func onBothDebians(t *testing.T, scenario func(t *testing.T, o machine.Options)) {
	t.Helper()
	onDebians(t, machine.Releases(), bed(), scenario)
}

// inVMs runs a scenario on both releases that changes something that a container shares with its
// host.
func inVMs(t *testing.T, scenario func(t *testing.T, o machine.Options)) {
	t.Helper()
	if bed() != machine.VM {
		t.Skip("needs a VM: run make test-machine")
	}
	onBothDebians(t, scenario)
}

// aloneOnDebian is onDebian for a scenario that keeps a whole host busy: it runs on one release
// after the other, before the parallel scenarios.
func aloneOnDebian(t *testing.T, everyday machine.Release, scenario func(t *testing.T, o machine.Options)) {
	t.Helper()
	onEach(t, releases(everyday), bed(), scenario)
}

// onDebians runs a scenario on some releases, in parallel with others.
func onDebians(t *testing.T, releases []machine.Release, bed machine.Bed, scenario func(t *testing.T, o machine.Options)) {
	t.Helper()
	t.Parallel()
	onEach(t, releases, bed, func(t *testing.T, o machine.Options) {
		t.Parallel()
		scenario(t, o)
	})
}

func onEach(t *testing.T, releases []machine.Release, bed machine.Bed, scenario func(t *testing.T, o machine.Options)) {
	t.Helper()
	for _, release := range releases {
		t.Run("debian"+string(release)+"-"+string(bed), func(t *testing.T) {
			scenario(t, machine.Options{Release: release, Bed: bed})
		})
	}
}
