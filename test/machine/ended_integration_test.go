//go:build integration

package machine_test

import (
	"strings"
	"testing"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
)

// TestWhatHasEndedBeforeIsNotWaitedFor reboots hosts on which Docker was stopped a moment earlier:
// with all its containers, and with containers that continue to run without it.
func TestWhatHasEndedBeforeIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]bool{"ended": false, "live": true} {
		t.Run(name, func(t *testing.T) {
			onDebian(t, machine.Debian13, func(t *testing.T, o machine.Options) {
				o.Config = "shutdown: {gracePeriod: 30s, gracePeriodCriticalPods: 10s}\nruntimes: [{type: docker, endpoint: /run/docker.sock}]\n"
				o.Files = machine.DockerFiles(o)
				m := machine.Boot(t, o)
				if kept {
					m.Run(`mkdir -p /etc/systemd/system/docker.service.d && printf '[Service]\nExecStart=\nExecStart=/usr/sbin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock --live-restore\n' >/etc/systemd/system/docker.service.d/live.conf && systemctl daemon-reload`)
				}
				m.Run("systemctl enable --now docker.socket docker.service && docker load --quiet --input " + job.ImageArchive)
				for _, container := range []string{"web", "db"} {
					m.Run("docker run --detach --network none --security-opt apparmor=unconfined --name " + container + " " + job.Image + " " + heeds)
				}
				m.Eventually("both are on record", func() bool { return len(writtenDown(t, m)) == 2 })
				m.AwaitArmed()
				m.Run("systemctl stop docker.socket docker.service")

				m.GoesDown("systemctl reboot")
				last := m.LastShutdown()
				if last == nil || last.Graceful == kept {
					t.Fatalf("LastShutdown() = %+v, want that it was graceful = %t", last, !kept)
				}
				for _, p := range last.Pods {
					if p.Outcome != journal.Stopped && !kept || p.Outcome != journal.Left && kept {
						t.Errorf("%s is %s on record", strings.TrimPrefix(p.Name, "/"), p.Outcome)
					}
				}
				if took := last.FinishedAt.Sub(last.StartedAt); !kept {
					t.Logf("seen: down in %v", took)
				}
			})
		})
	}
}
