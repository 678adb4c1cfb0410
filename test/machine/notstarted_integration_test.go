//go:build integration

package machine_test

import (
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
)

// TestWhatNobodyStartsAfterAPowerCutIsNamed cuts the power of a host on which Docker cannot start a
// container any more, because its bind mount is gone. No shutdown is on record.
func TestWhatNobodyStartsAfterAPowerCutIsNamed(t *testing.T) {
	if !runsAll() {
		t.Skip("a boot settles for two minutes: run make test-long")
	}
	onDebian(t, machine.Debian12, func(t *testing.T, o machine.Options) {
		o.Files = machine.DockerFiles(o)
		m := machine.Boot(t, o)
		m.Run("systemctl enable --now docker.socket docker.service && docker load --quiet --input " + job.ImageArchive)
		dockerRun(m, "well", "well", "always")
		m.Run("mkdir /srv/data && docker run --detach --name lost --network none --security-opt apparmor=unconfined --restart always --mount type=bind,src=/srv/data,dst=/data --volume " +
			strings.Join(diaryVolumes(), " --volume ") + " " + job.Image + " " + inDiary("lost"))
		m.Run("rmdir /srv/data && sync")
		m.CutPower()
		m.Start()
		settled := func() bool { return len(m.Status().NotStarted) > 0 }
		for range 3 { // a boot settles for two minutes
			if settled() {
				break
			}
			m.Run("sleep 45")
		}
		m.Eventually("the container that did not start is named", settled)
		if got := m.Status().NotStarted; !slices.Equal(got, []string{"lost"}) {
			t.Errorf("hostler status names %q as not started, want lost alone:\n%s", got, m.Run("docker ps --all"))
		}
		report := machine.Answer[doctor.Report](m, "doctor")
		i := slices.IndexFunc(report.Checks, func(c doctor.Check) bool { return c.Name == "not-started" })
		if i < 0 || report.Checks[i].Status != doctor.Warn {
			t.Errorf("hostler doctor = %+v, want a warning of check not-started", report.Checks)
		}
		if text := m.Hostler("ps", "--last-shutdown"); !strings.Contains(text, "not started since boot, despite their restart policy: lost\n") {
			t.Errorf("hostler ps --last-shutdown does not name lost:\n%s", text)
		}
		t.Log(m.Hostler("status"))
	})
}
