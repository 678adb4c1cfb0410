//go:build integration

package machine_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
)

// TestContainersOfAPodmanThatIsNotHeard has one run while nobody answers for it when hostler
// starts: a shutdown would cut it off, and whoever asks is told, also what to do.
func TestContainersOfAPodmanThatIsNotHeard(t *testing.T) {
	onBothDebians(t, machine.Container, func(t *testing.T, o machine.Options) {
		o.Files = podmanFiles()
		m := machine.Boot(t, o)
		m.Run(`set -e
			systemctl enable --now podman.socket
			podman load --quiet --input ` + job.ImageArchive + `
			podman run --quiet --detach --name theirs ` + job.Image + ` ` + heeds + `
			systemctl stop podman.socket podman.service
			systemctl restart hostler`)
		m.Eventually("hostler knows that it does not hear Podman", func() bool {
			s, err := m.TryStatus()
			return err == nil && protection(s).Status == corev1.ConditionFalse && protection(s).Reason == "PodsOutOfReach"
		})
		if said := protection(m.Status()).Message; !strings.Contains(said, "podman") {
			t.Errorf("the condition says %q, want it to name Podman", said)
		}
		if said := m.Hostler("status"); !strings.Contains(said, "systemctl status podman.socket") {
			t.Errorf("hostler status says\n%s\nwant what to look at", said)
		}
		if said := m.Run("hostler doctor || true"); !strings.Contains(said, "podman.socket") {
			t.Errorf("hostler doctor says\n%s\nwant it to name podman.socket", said)
		}

		m.Run("systemctl start podman.socket")
		m.Eventually("hostler hears Podman", func() bool {
			return protection(m.Status()).Status == corev1.ConditionTrue && strings.Contains(m.Hostler("ps"), "theirs")
		})
		if said := m.Hostler("status"); strings.Contains(said, "NOT READY") {
			t.Errorf("hostler status says\n%s\nwant no runtime that is not ready", said)
		}
	})
}
