//go:build integration

package machine_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
)

// TestContainersOfAPodmanThatDoesNotAnswer has a container of a Podman that does not answer when
// hostler starts: a shutdown would kill it. Status, doctor and plans say so, with a fix.
func TestContainersOfAPodmanThatDoesNotAnswer(t *testing.T) {
	onDebian(t, machine.Debian13, func(t *testing.T, o machine.Options) {
		o.Files = machine.PodmanFiles()
		m := machine.Boot(t, o)
		m.Run("systemctl enable --now podman.socket && podman load --quiet --input " + job.ImageArchive)
		m.Run("podman run --quiet --detach --name theirs " + job.Image + " " + heeds)
		theyAreOutOfReach(t, m, "podman", "podman.socket podman.service", "podman.socket", func() {
			if text := m.Run("hostler doctor || true"); !strings.Contains(text, "podman.socket") {
				t.Errorf("hostler doctor says\n%s\nwant it to name podman.socket", text)
			}
		})
	})
}

// TestContainersOfADockerThatDoesNotAnswer does the same with a Docker whose containers continue to
// run without it (live restore).
func TestContainersOfADockerThatDoesNotAnswer(t *testing.T) {
	onDebian(t, machine.Debian12, func(t *testing.T, o machine.Options) {
		o.Files = machine.DockerFiles(o)
		const settings = "etc/docker/daemon.json"
		o.Files[settings] = strings.Replace(o.Files[settings], "{", `{"live-restore": true, `, 1)
		m := machine.Boot(t, o)
		m.Run("systemctl enable --now docker.socket docker.service && docker load --quiet --input " + job.ImageArchive)
		dockerRun(m, "theirs", "theirs", "no")
		theyAreOutOfReach(t, m, "docker", "docker.socket docker.service", "docker", func() {})
	})
}

// theyAreOutOfReach stops the units of a runtime with a running container, and starts one of them
// again. hostler starts meanwhile and gets no answer; then more is called.
func theyAreOutOfReach(t *testing.T, m *machine.Machine, name, units, unit string, more func()) {
	t.Helper()
	m.Run("systemctl stop " + units + " && systemctl restart hostler")
	m.Eventually("hostler reports that it cannot reach "+name, func() bool {
		s, err := m.TryStatus()
		return err == nil && protection(s).Status == corev1.ConditionFalse && protection(s).Reason == "PodsOutOfReach"
	})
	if text := protection(m.Status()).Message; !strings.Contains(text, name) {
		t.Errorf("the condition says %q, want it to name %s", text, name)
	}
	if text := m.Hostler("status"); !strings.Contains(text, "systemctl status "+unit) {
		t.Errorf("hostler status says\n%s\nwant a hint", text)
	}
	for _, command := range []string{"hostler ps", "hostler shutdown plan", "hostler drain --all --dry-run", "hostler drain --all"} {
		if text := m.Run(command + " 2>&1 || test $? = 1"); !strings.Contains(text, name+": its containers run") {
			t.Errorf("`%s` says\n%s\nwant it to name %s", command, text, name)
		}
	}
	m.Hostler("uncordon")
	more()

	m.Run("systemctl start " + unit)
	m.Eventually("hostler reaches "+name, func() bool {
		return protection(m.Status()).Status == corev1.ConditionTrue && strings.Contains(m.Hostler("ps"), "theirs")
	})
	if text := m.Hostler("status"); strings.Contains(text, "NOT READY") {
		t.Errorf("hostler status says\n%s\nwant no runtime that is not ready", text)
	}
}
