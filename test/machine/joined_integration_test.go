//go:build integration

package machine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
)

// TestContainersThatNeedOthersComeBack reboots hosts with containers that share the network, the
// processes, the memory or the volumes of others, or are linked to them, with any restart policy.
// One container's folder is missing.
func TestContainersThatNeedOthersComeBack(t *testing.T) {
	t.Parallel()
	for runtime, everyday := range map[string]machine.Release{"podman": machine.Debian12, "docker": machine.Debian13} {
		t.Run(runtime, func(t *testing.T) {
			onDebian(t, everyday, func(t *testing.T, o machine.Options) {
				o.Config = "shutdown: {gracePeriod: 6m, gracePeriodCriticalPods: 1m}\n"
				start, flags, broken := "podman.socket podman-restart.service", "", "unless-stopped" // that service fails for containers with always
				if o.Files = machine.PodmanFiles(); runtime == "docker" {
					o.Files = machine.DockerFiles(o)
					start, flags, broken = "docker.socket docker.service", " --security-opt apparmor=unconfined", "always"
				}
				m := machine.Boot(t, o)
				m.Run("systemctl enable --now " + start + " && mkdir -p /srv/gone " + job.Dir + " && " + runtime + " load --quiet --input " + job.ImageArchive)
				needs := map[string]string{"app": "vpn", "side": "app", "ps": "app", "mem": "vpn", "files": "mem", "agent": "vpn"}
				run := func(name, restart, more string) {
					m.Run(fmt.Sprintf("%s run --detach%s --stop-timeout %s --name %s --restart %s --volume %s %s %s %s", runtime, flags, graceSeconds, name, restart,
						strings.Join(diaryVolumes(), " --volume "), more, job.Image, inDiary(name)))
				}
				run("vpn", "unless-stopped", "--network none --ipc shareable")
				run("app", "always", "--network container:vpn")
				run("side", "on-failure", "--network container:app")
				m.Run(runtime + " run --detach --stop-timeout " + graceSeconds + " --name fails --restart on-failure --network container:app" + flags + " " + job.Image + ` sh -c "trap 'exit 3' TERM; while :; do sleep 0.2; done"`)
				m.Run(runtime + " run --detach --rm --stop-timeout " + graceSeconds + " --name brief --network none" + flags + " " + job.Image + " " + heeds)
				run("ps", "unless-stopped", "--network none --pid container:app")
				run("mem", "always", "--network none --ipc container:vpn")
				run("files", "unless-stopped", "--network none --volumes-from mem")
				run("agent", "always", "--network container:vpn --label hostler.io/critical=true")
				run("broken", broken, "--network none --mount type=bind,source=/srv/gone,target=/gone")
				m.Eventually("all are listed", func() bool { return strings.Count(m.Run("hostler ps || true"), "1 Running") == 10 })
				m.Run("rmdir /srv/gone")

				m.GoesDown("systemctl reboot")
				work := slices.DeleteFunc(m.Work(), func(l machine.Life) bool { return l.Term().IsZero() }) // of this boot
				for who, whom := range needs {
					if !work.GoneBefore(who, whom) {
						t.Errorf("%s got SIGTERM before %s, which depends on it, had ended:\n%s", whom, who, work)
					}
				}
				last := m.LastShutdown()
				for _, p := range last.Pods {
					if status := last.PodStatus(p); p.Name == "brief" && status.Phase != corev1.PodSucceeded {
						t.Errorf("brief, which is removed as it ends, is %+v, want that it ended well", status)
					}
				}
				m.Eventually("all is settled", func() bool {
					restarts := m.Status().Shutdown.Restarts
					return len(restarts) == 10 && !slices.ContainsFunc(restarts, func(r journal.Restart) bool { return r.Outcome == "" && r.Name != "broken" })
				})
				running := strings.Fields(m.Run(runtime + " ps --format '{{.Names}}'"))
				slices.Sort(running)
				want := []string{"agent", "app", "fails", "files", "mem", "ps", "vpn"} // side has ended successfully
				if runtime == "podman" {                                               // after a boot, nothing starts containers with on-failure
					want = slices.DeleteFunc(want, func(name string) bool { return name == "fails" })
				}
				if !slices.Equal(running, want) {
					t.Errorf("after the boot %v run, want %v; hostler has %+v", running, want, m.Status().Shutdown.Restarts)
				}
				for _, command := range []string{"status", "doctor", "ps --last-shutdown"} {
					m.Eventually("hostler "+command+" names broken, and why it does not run", func() bool {
						out := m.Run("hostler " + command + " || true")
						return strings.Contains(out, "broken") && (command == "doctor" || strings.Contains(out, "/srv/gone"))
					})
				}
			})
		})
	}
}
