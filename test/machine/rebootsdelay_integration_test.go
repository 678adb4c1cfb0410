//go:build integration

package machine_test

import (
	"testing"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/test/machine"
)

// TestARebootInTurnDoesNotNeedLogindsDelay has logind grant one second to shutdowns, while a critical database needs
// more. hostler calls the host not protected. A reboot in turn stops the database before, with its whole grace period.
func TestARebootInTurnDoesNotNeedLogindsDelay(t *testing.T) {
	t.Parallel()
	f := newFleet(t, machine.Container)
	m := f.hosts[0]
	m.Write("/etc/hostler/conf.d/shutdown.yaml", "shutdown: {gracePeriod: 20m, gracePeriodCriticalPods: 10m}\n")
	m.Write(ofAdmin+last, maximum(1))
	readAgain(m)
	dockerRunAs(m, "database", "unless-stopped", append(diaryCommand("database"), "-ends-slowly", "15s"), "hostler.io/critical=true", "hostler.io/grace-period=60s")
	m.Run("systemctl restart hostler")
	m.Eventually("hostler calls the host not protected", func() bool {
		s, err := m.TryStatus()
		return err == nil && s.Shutdown.State == shutdown.Armed && !machine.Ask[doctor.Report](m, "/v1/doctor").Protected
	})
	boot := m.BootID()
	f.rebootAll(f.hosts, "touch "+sentinel)
	if work := m.Work().Boot(boot); !work.Ended("database") || !work.GoneBefore("web", "database") {
		t.Errorf("work before the reboot = %+v, want that the database ended by itself, after web", work)
	}
	m.Eventually("all containers run again", func() bool {
		return m.Run("docker ps --format '{{.Names}}' | sort") == "database\nslow\nweb\n"
	})
}
