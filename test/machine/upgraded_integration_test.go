//go:build integration

package machine_test

import (
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
)

// TestRuntimesAreUpgraded upgrades containerd and Podman, as their packages do, while an agent
// runs: it reports the new versions and the same containers.
func TestRuntimesAreUpgraded(t *testing.T) {
	onDebian(t, machine.Debian12, func(t *testing.T, o machine.Options) {
		o.Files = machine.PodmanFiles()
		m := machine.Boot(t, o)
		m.Run("systemctl enable --now podman.socket && podman load --quiet --input " + job.ImageArchive +
			" && podman run --quiet --detach --name alone " + job.Image + " " + heeds)
		m.Deploy(machine.Pod{Name: "web"})
		version := func(runtime string) string {
			list := m.Status().Runtimes
			i := slices.IndexFunc(list, func(r api.Runtime) bool { return r.Name == runtime && r.Ready })
			if i < 0 {
				return ""
			}
			return list[i].Version
		}
		known := func() bool {
			var pods []string
			for _, p := range machine.Ask[api.PodList](m, "/v1/pods").Pods {
				pods = append(pods, p.Name)
			}
			slices.Sort(pods)
			return slices.Equal(pods, []string{"alone", "web"})
		}
		m.Eventually("both runtimes are known", func() bool { return version("containerd") != "" && version("podman") != "" && known() })
		agent := agentPID(m)
		for _, r := range []struct{ name, program, restart string }{
			{"containerd", "/usr/bin/containerd", "systemctl restart containerd"},
			{"podman", "/usr/bin/podman", "systemctl restart podman.socket"}, // no other restart is needed: each command is another process
		} {
			before := version(r.name)
			after := nextVersion(before)
			// The real programs with another version text.
			m.Run("sed 's/" + strings.ReplaceAll(before, ".", `\.`) + "/" + after + "/g' " + r.program + " >/root/new && chmod 755 /root/new && mv /root/new " + r.program + " && " + r.restart)
			m.Eventually(r.name+" is "+after, func() bool { return version(r.name) == after })
		}
		m.Eventually("the same containers are known", known)
		if pid := agentPID(m); pid != agent {
			t.Errorf("the agent has process ID %s, and had %s: want it to continue", pid, agent)
		}
		untouched(t, m, "the runtimes were upgraded")
	})
}

// nextVersion changes the last digit, but not the length.
func nextVersion(v string) string {
	number, rest, _ := strings.Cut(v, "~")
	other := "9"
	if strings.HasSuffix(number, other) {
		other = "8"
	}
	next := number[:len(number)-1] + other
	if rest != "" {
		next += "~" + rest
	}
	return next
}
