//go:build integration

package machine_test

import (
	"cmp"
	"os"
	"testing"

	"hostler.io/hostler/test/machine"
)

// bed is what stories run in: containers in `make test`, VMs in `make test-machine`.
func bed() machine.Bed {
	return cmp.Or(machine.Bed(os.Getenv("HOSTLER_TEST_BED")), machine.Container)
}

// runsAll reports whether stories run on both releases that `make test` runs on one.
func runsAll() bool { return bed() == machine.VM || os.Getenv("HOSTLER_TEST_LONG") != "" }

// releases are both, and in `make test` the one that is given.
func releases(everyday machine.Release) []machine.Release {
	if runsAll() {
		return machine.Releases()
	}
	return []machine.Release{everyday}
}

// onDebian runs a story on both releases, and in `make test` on the one that is given. Half of the
// stories are given either.
func onDebian(t *testing.T, everyday machine.Release, scenario func(t *testing.T, o machine.Options)) {
	t.Helper()
	onDebians(t, releases(everyday), bed(), scenario)
}

// onBothDebians runs a story on both releases whose programs differ in what the story is about.
func onBothDebians(t *testing.T, scenario func(t *testing.T, o machine.Options)) {
	t.Helper()
	onDebians(t, machine.Releases(), bed(), scenario)
}

// inVMs runs a story on both releases that a container cannot run, because it changes
// what a container shares with its host.
func inVMs(t *testing.T, scenario func(t *testing.T, o machine.Options)) {
	t.Helper()
	if bed() != machine.VM {
		t.Skip("needs a VM: run make test-machine")
	}
	onBothDebians(t, scenario)
}

// aloneOnDebian is onDebian of a story that keeps a whole host busy: it runs on one release after
// the other, and before all stories that run beside each other.
func aloneOnDebian(t *testing.T, everyday machine.Release, scenario func(t *testing.T, o machine.Options)) {
	t.Helper()
	onEach(t, releases(everyday), bed(), scenario)
}

// onDebians runs a story on some releases, beside other stories.
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
