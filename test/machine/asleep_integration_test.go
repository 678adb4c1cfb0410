//go:build integration

package machine_test

import (
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
)

// TestAPodmanThatMustNotBeStartedCostsNoTime shuts a machine down by the signal of a container
// manager, without logind notification, while podman.service does not run: it must not be started
// then. The critical pod of another runtime does not wait for Podman's container.
func TestAPodmanThatMustNotBeStartedCostsNoTime(t *testing.T) {
	onDebian(t, machine.Debian13, func(t *testing.T, o machine.Options) {
		o.Config = "shutdown: {gracePeriod: 6m, gracePeriodCriticalPods: 1m}\n"
		o.Files = machine.PodmanFiles()
		m := machine.Boot(t, o)
		m.Run("systemctl enable --now podman.socket && mkdir -p " + job.Dir + " && podman load --quiet --input " + job.ImageArchive)
		m.Run("podman run --quiet --detach --stop-timeout 240 --name web --restart no " + job.Image + " " + heeds)
		m.Deploy(machine.Pod{Name: "dns", Critical: true})
		m.Eventually("the guard knows both", func() bool { return len(writtenDown(t, m)) == 2 })
		m.Eventually("doctor promises no order for Podman's containers", func() bool {
			return strings.Contains(strings.Join(strings.Fields(m.Run("hostler doctor || true")), " "), "Exception: Podman containers without a unit")
		})
		m.Eventually("podman.service has ended", func() bool {
			return strings.TrimSpace(m.Run("systemctl is-active podman.service || true")) == "inactive"
		})
		before := m.BootID()
		m.GoesDown("kill -s RTMIN+5 1")
		last := m.LastShutdown()
		if last == nil || last.Trigger != journal.TriggerServiceStop || m.BootID() == before {
			t.Fatalf("LastShutdown() = %+v, want one past logind", last)
		}
		outcomes := map[string]journal.Outcome{}
		for _, p := range last.Pods {
			outcomes[p.Name] = p.Outcome
		}
		// systemd may have stopped the scope of Podman's container by the end.
		if outcomes["dns"] != journal.Stopped || outcomes["web"] == "" {
			t.Errorf("on record are %v, want dns stopped, and web as left or ended", outcomes)
		}
		for _, p := range last.Pods {
			// Podman's container would have had 4 minutes before that.
			if waited := p.StartedAt.Sub(last.StartedAt); p.Name == "dns" && waited >= 4*time.Minute {
				t.Errorf("dns was sent the stop signal after %v, want it not to wait for Podman", waited)
			}
		}
		t.Logf("seen: %v, drained in %v", outcomes, last.FinishedAt.Sub(last.StartedAt))
	})
}
