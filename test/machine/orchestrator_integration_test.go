//go:build integration

package machine_test

import (
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/machine"
)

// orchestratorUnit stops like k3s's own unit: only its main process. That runs containerd as a
// child that dies with it, and restarts ended pods.
const orchestratorUnit = `[Unit]
Description=stands in for k3s
After=network-online.target
[Service]
Type=notify
ExecStart=/usr/local/bin/guest orchestrator
KillMode=process
Delegate=yes
TimeoutStartSec=0
Restart=always
RestartSec=5s
`

// orchestrated returns the options of a Debian whose containerd belongs to k3s.
func orchestrated(o machine.Options) machine.Options {
	o.Config = strings.Replace(workloadConfig(), "{", "{enabled: true, stopFirst: [k3s.service], ", 1)
	o.Files = map[string]string{
		"etc/systemd/system/k3s.service":                  orchestratorUnit,
		"etc/systemd/system/multi-user.target.d/k3s.conf": "[Unit]\nWants=k3s.service\n",
		"etc/systemd/system/containerd.service":           "", // masks it
	}
	return o
}

// TestAnOrchestratorIsStoppedFirst shuts hosts down whose service runs both the runtime and a
// kubelet, which would restart each pod that hostler stops.
func TestAnOrchestratorIsStoppedFirst(t *testing.T) {
	onDebian(t, machine.Debian12, func(t *testing.T, o machine.Options) {
		m := machine.Boot(t, orchestrated(o))
		t.Run("systemctl reboot", func(t *testing.T) {
			expectStoppedFirst(t, m, closeOrchestrated(t, m, workload(), "systemctl reboot", journal.TriggerShutdown))
		})
		t.Run("systemctl start reboot.target", func(t *testing.T) {
			c := closeOrchestrated(t, m, workload(), "systemctl start reboot.target", journal.TriggerServiceStop)
			if len(c.last.StoppedFirst) > 0 { // otherwise systemd was faster
				expectStoppedFirst(t, m, c)
			}
		})
		t.Run("systemctl start reboot.target, hostler ordered to stop before", func(t *testing.T) {
			m.Run("mkdir -p /etc/systemd/system/hostler.service.d")
			m.Write("/etc/systemd/system/hostler.service.d/k3s.conf", "[Unit]\nAfter=k3s.service\n")
			m.Run("systemctl daemon-reload")
			expectStoppedFirst(t, m, closeOrchestrated(t, m, workload(), "systemctl start reboot.target", journal.TriggerServiceStop))
		})
		t.Run("systemctl reboot, hostler killed while the service stops", func(t *testing.T) { hostlerIsKilled(t, m) })
		t.Run("systemctl reboot, hostler killed while pods stop", func(t *testing.T) { orchestratedResumed(t, m) })
		t.Run("cancelled", func(t *testing.T) { orchestratorComesBack(t, m) })
		// It is the last one, because it removes the setting.
		t.Run("without the setting", func(t *testing.T) { orchestratorFights(t, m) })
	})
}

// closeOrchestrated shuts a machine down on which nothing must be restarted.
func closeOrchestrated(t *testing.T, m *machine.Machine, pods []machine.Pod, how string, trigger journal.Trigger) closed {
	t.Helper()
	m.Deploy(pods...)
	// Facts of pods are collected while their runtime answers.
	m.Eventually("hostler has written down what runs", func() bool { return len(writtenDown(t, m)) == len(pods) })
	if plan := m.Hostler("shutdown", "plan"); !strings.Contains(plan, "stopped before the phases") || !strings.Contains(plan, "k3s.service") {
		t.Errorf("hostler shutdown plan does not say what is stopped first:\n%s", plan)
	}
	before := m.BootID()
	m.GoesDown(how)
	c := readBack(t, m, before)
	c.logFindings(t, how)
	checkWorkload(t, c, pods, trigger)
	for _, pod := range pods {
		expectTerms(t, c.work, pod.Name, 1)
	}
	return c
}

// hostlerIsKilled checks that the next process continues although no runtime answers.
func hostlerIsKilled(t *testing.T, m *machine.Machine) {
	slow := "/etc/systemd/system/k3s.service.d/slow.conf"
	m.Run("mkdir -p /etc/systemd/system/k3s.service.d")
	// By then its containerd has ended. The machine does it itself, because commands from outside take
	// too long.
	m.Write(slow, "[Service]\nExecStopPost=sh -c 'kill -9 $$(systemctl show -P MainPID hostler); sleep 5'\n")
	m.Run("systemctl daemon-reload")
	pods := workload()
	m.Deploy(pods...)
	m.Eventually("hostler has written down what runs", func() bool { return len(writtenDown(t, m)) == len(pods) })
	before := m.BootID()
	m.GoesDown("systemctl reboot")
	m.Run("rm " + slow + "; systemctl daemon-reload")
	c := readBack(t, m, before)
	expectKilled(t, m)
	checkWorkload(t, c, pods, journal.TriggerShutdown)
	for _, pod := range pods {
		expectTerms(t, c.work, pod.Name, 1)
	}
	expectStoppedFirst(t, m, c)
}

// expectKilled checks in the previous boot's journal that the agent was killed: otherwise the
// scenario shows nothing.
func expectKilled(t *testing.T, m *machine.Machine) {
	t.Helper()
	if out := m.Journal(-1, "-u hostler"); strings.Count(out, "code=killed, status=9/KILL") != 1 {
		t.Errorf("hostler was not killed, or more than once:\n%s", out)
	}
}

// orchestratedResumed checks that the next process continues in the middle of the drain although
// CRI does not answer, with the journal and runc.
func orchestratedResumed(t *testing.T, m *machine.Machine) {
	grace := actsWithin(m.Options.Bed)
	pods := []machine.Pod{
		{Name: "resumed-web"},
		{Name: "resumed-stubborn", Grace: grace, Containers: []machine.ContainerSpec{{Name: "main", IgnoresTERM: true}}},
		{Name: "resumed-db", Critical: true},
	}
	m.Deploy(pods...)
	m.Eventually("hostler has written down what runs", func() bool { return len(writtenDown(t, m)) == len(pods) })
	before := m.BootID()
	// In one command, because commands from outside take too long. A stop does not wait for the disk:
	// the next process knows it only if the journal was written before the agent is killed.
	m.GoesDown(`systemctl reboot
		until grep -q SIGTERM /var/lib/hostler-work/default_resumed-stubborn_main.events &&
			jq -e '.record.pods[]? | select(.name == "resumed-stubborn") | .late // .asked' /var/lib/hostler/shutdown.json >/dev/null; do sleep 0.1; done
		` + killAgent)
	c := readBack(t, m, before)
	expectKilled(t, m)
	for _, pod := range pods {
		expectTerms(t, c.work, pod.Name, 1)
	}
	if !c.work.Ended("resumed-web") || !c.work.Ended("resumed-db") || !c.work.GoneBefore("resumed-stubborn", "resumed-db") {
		t.Errorf("want resumed-stubborn to have ended before resumed-db is sent the stop signal:\n%s", c.work)
	}
	if p := c.pod("resumed-stubborn"); took(p) < grace {
		t.Errorf("LastShutdown() reports %+v, want it to have its grace of %v:\n%s", p, grace, c.work)
	}
	if !c.last.Graceful {
		t.Errorf("LastShutdown() = %+v, want it graceful", c.last)
	}
	expectStoppedFirst(t, m, c)
}

// expectStoppedFirst checks that the service had ended before any pod was sent the stop signal.
func expectStoppedFirst(t *testing.T, m *machine.Machine, c closed) {
	t.Helper()
	first := c.last.StoppedFirst
	if len(first) != 1 || first[0].Name != "k3s.service" || first[0].Error != "" {
		t.Fatalf("LastShutdown() has %+v stopped first, want k3s.service", first)
	}
	ended := first[0].AskedAt.Add(first[0].Took.Duration)
	for _, life := range c.work {
		if life.Term().Before(ended) {
			t.Errorf("%s got SIGTERM at %v, before k3s.service had ended at %v", life.Pod, life.Term(), ended)
		}
	}
	t.Logf("seen: k3s.service had ended after %v", first[0].Took.Duration.Round(time.Millisecond))
	for _, out := range []string{m.Hostler("ps", "--last-shutdown"), m.Hostler("status")} {
		if !strings.Contains(flat(out), "k3s.service stopped first") {
			t.Errorf("hostler does not say that k3s.service was stopped first:\n%s", out)
		}
	}
}

// active returns the state of k3s's service.
func active(m *machine.Machine) string {
	return strings.TrimSpace(m.Run("systemctl show -P ActiveState k3s"))
}

// orchestratorComesBack checks that hostler starts the service that it has stopped, and the service
// its pods.
func orchestratorComesBack(t *testing.T, m *machine.Machine) {
	m.Deploy(
		machine.Pod{Name: "back-web"},
		machine.Pod{Name: "back-stubborn", Grace: regularPeriod, Containers: []machine.ContainerSpec{{Name: "main", IgnoresTERM: true}}},
		machine.Pod{Name: "back-db", Critical: true},
	)
	m.Run("systemctl reboot")
	m.Eventually("back-stubborn is sent the stop signal", func() bool { return !m.Work().Pod("back-stubborn")[0].Term().IsZero() })
	// In one command: it can be cancelled during its grace period.
	if state := strings.TrimSpace(m.Run("systemctl show -P ActiveState k3s; systemctl reset-failed systemd-logind; " + restartLogind)); state == "active" {
		t.Errorf("k3s.service is %s while pods stop, want it stopped", state)
	}
	awaitState(t, m, shutdown.Armed)
	m.Eventually("k3s.service is back", func() bool { return active(m) == "active" })
	m.Eventually("it has started back-web again", func() bool { return len(m.Work().Pod("back-web")) == 2 })
	m.Eventually("hostler manages its pods again", func() bool {
		s, err := m.TryStatus()
		return err == nil && len(s.Runtimes) == 1 && s.Runtimes[0].Ready && strings.Contains(m.Run("hostler ps || true"), "back-web")
	})
	work := m.Work()
	expectTerms(t, work, "back-db", 0)
	for _, pod := range []string{"back-stubborn", "back-db"} {
		if lives := work.Pod(pod); len(lives) != 1 || !lives[0].CutOff() {
			t.Errorf("%s has ended, want it to run on:\n%s", pod, work)
		}
	}
	before := m.BootID()
	// Nothing starts back-stubborn again once k3s.service has ended.
	m.GoesDown(`systemctl reboot
		until systemctl show -P MainPID k3s | grep -qx 0; do sleep 0.2; done
		pkill -KILL -xf '/guest work -name default/back-stubborn/main .*'`)
	expectStoppedFirst(t, m, checkAgain(t, m, before))
}

// checkAgain is readBack for a boot with an earlier cancelled shutdown: only the last life of each
// pod counts.
func checkAgain(t *testing.T, m *machine.Machine, before string) closed {
	t.Helper()
	c := readBack(t, m, before)
	last := map[string]machine.Life{}
	for _, life := range c.work {
		last[life.Pod] = life
	}
	c.work = nil
	for name, life := range last {
		if name != "back-stubborn" { // the cancelled shutdown sent it the stop signal
			c.work = append(c.work, life)
		}
	}
	return c
}

// orchestratorFights shows that the other tests prove something: without the setting, pods are
// restarted during the shutdown.
func orchestratorFights(t *testing.T, m *machine.Machine) {
	m.Write("/etc/hostler/hostler.yaml", workloadConfig())
	m.Run(restartAgent)
	m.AwaitArmed()
	// A busy systemd may not report the service to doctor in time.
	m.Eventually("hostler doctor says what to set", func() bool { return strings.Contains(doctorSays(m), "stopFirst: [k3s.service]") })
	// The second pod gives the orchestrator time to notice that the first one has ended.
	m.Deploy(machine.Pod{Name: "web"}, lingering("batch", m.Options.Bed))
	before := m.BootID()
	m.GoesDown("systemctl reboot")
	if work := m.Work().Boot(before); len(work) <= 2 {
		t.Errorf("no pod was started again without the setting: the other tests prove nothing:\n%s", work)
	}
}
