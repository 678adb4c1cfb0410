//go:build integration

package machine_test

import (
	"strings"
	"testing"

	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
)

// TestADrainThatIsInterruptedLeavesItsServicesRunning interrupts a drain while the stop of a
// service is held, because its container does not end. systemd must have no stop job, and the
// service continues to run.
func TestADrainThatIsInterruptedLeavesItsServicesRunning(t *testing.T) {
	onDebian(t, machine.Debian12, func(t *testing.T, o machine.Options) {
		o.Config = "shutdown: {gracePeriod: 6m, gracePeriodCriticalPods: 1m}\n"
		o.Files = machine.DockerFiles(o)
		m := machine.Boot(t, o)
		m.Run("systemctl enable --now docker.socket docker.service && docker load --quiet --input " + job.ImageArchive)
		m.Run("docker create --name held --stop-signal WINCH --stop-timeout 300 --network none --security-opt apparmor=unconfined --volume " + // it ignores WINCH
			strings.Join(diaryVolumes(), " --volume ") + " " + job.Image + " " + inDiary("held"))
		client(m, "held", "/usr/bin/docker start --attach held")
		m.Eventually("the plan names the service", func() bool {
			return strings.Contains(m.Hostler("shutdown", "plan"), "by held.service")
		})
		lives := "docker inspect --format '{{.State.Running}} {{.State.StartedAt}}' held; systemctl show -p ActiveState,NRestarts,MainPID held"
		before := m.Run(lives)

		m.Run("systemd-run --quiet --unit drain hostler drain --all")
		m.Eventually("the stop of the service is held", func() bool {
			return strings.Contains(m.Run("systemctl list-jobs --no-legend"), "held.service") &&
				strings.Contains(m.Run("systemctl list-units --all --no-legend 'hostler-hold-*'"), "deactivating")
		})
		m.Run("systemctl kill --signal INT drain")
		m.Eventually("nothing is held or queued", func() bool {
			return strings.TrimSpace(m.Run("systemctl list-units --all --no-legend 'hostler-hold-*'; systemctl list-jobs --no-legend")) == ""
		})
		if after := m.Run(lives); after != before {
			t.Errorf("after the drain was interrupted the service is\n%s\nwant it as before:\n%s", after, before)
		}
	})
}
