//go:build integration

package machine_test

import (
	"strings"
	"testing"

	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
)

// TestContainersOfAUsersOwnPodmanAreLeftAlone has a user's own Podman with containers, beside the
// host's. hostler stops and collects only the host's, and doctor says so. The user's containers end
// with her session.
func TestContainersOfAUsersOwnPodmanAreLeftAlone(t *testing.T) {
	onDebian(t, machine.Debian13, func(t *testing.T, o machine.Options) {
		o.Config = "imageGC: {minimumAge: 0s}\ncontainerGC: {minimumAge: 0s}\n"
		o.Files = machine.PodmanFiles()
		m := machine.Boot(t, o)
		m.Run(`set -e
			systemctl enable --now podman.socket
			useradd --create-home --uid 1234 anna
			loginctl enable-linger anna
			podman load --quiet --input ` + job.ImageArchive + `
			podman run --quiet --detach --name theirs ` + job.Image + ` ` + heeds + `
			podman run --quiet --name ended ` + job.Image + ` true`)
		m.Eventually("anna has a folder for what runs", func() bool { return m.Run("ls -d /run/user/1234 2>/dev/null; true") != "" })
		hers := func(command string) string {
			t.Helper()
			return m.Run("cd / && runuser -u anna -- env HOME=/home/anna XDG_RUNTIME_DIR=/run/user/1234 podman " + command)
		}
		hers("load --quiet --input " + job.ImageArchive)
		hers("run --quiet --detach --name hers " + job.Image + " " + heeds)
		hers("run --quiet --name ended " + job.Image + " true")
		m.Eventually("the host's own is listed", func() bool { return strings.Contains(m.Run("hostler ps || true"), "theirs") })

		if pods := m.Run("hostler ps"); strings.Contains(pods, "hers") {
			t.Errorf("hostler ps lists the container of a user's own Podman:\n%s", pods)
		}
		if text := doctorSays(m, "-o wide"); !strings.Contains(text, "rootless Podman containers are not managed: systemd stops them with the user sessions (user IDs 1234)") {
			t.Errorf("hostler doctor says\n%s\nwant it to report the containers of user 1234", text)
		}
		const names, running = "ps --all --sort names --format '{{.Names}}'", "ps --sort names --format '{{.Names}}'"
		m.Run("hostler drain --all")
		if theirs, her := m.Run("podman "+running), hers(running); theirs != "" || her != "hers\n" {
			t.Errorf("after a drain there run %q of the host's Podman and %q of anna's, want none, and hers", theirs, her)
		}
		m.Run("hostler gc run --containers --all-unused")
		if theirs, her := m.Run("podman "+names), hers(names); theirs != "theirs\n" || her != "ended\nhers\n" {
			t.Errorf("after a collection of dead containers there are %q of the host's Podman and %q of anna's, want what was drained, and all that she had", theirs, her)
		}
		if got := hers("images --quiet"); strings.TrimSpace(got) == "" {
			t.Error("anna's image is gone")
		}

		m.GoesDown("systemctl reboot")
		if last := m.LastShutdown(); last == nil || !last.Graceful {
			t.Errorf("LastShutdown() = %+v, want it to be graceful", last)
		}
	})
}
