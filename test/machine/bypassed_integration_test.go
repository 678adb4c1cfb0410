//go:build integration

package machine_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status/reboots"
	"hostler.io/hostler/test/machine"
)

// TestShutdownsThatBypassLogind shuts a machine down in ways without logind notification. systemd
// then stops everything at once, and hostler, which is stopped before the runtime, drains first.
// Containers are in scopes of several slices. Without the order in their drop-in, systemd would
// stop them as well. TestAnAgentThatEndsTouchesNoContainer does the same without scopes.
func TestShutdownsThatBypassLogind(t *testing.T) {
	onBothDebians(t, func(t *testing.T, o machine.Options) {
		o.Config, o.SystemdCgroup = workloadConfig(), true
		m := machine.Boot(t, o)
		t.Run("systemctl start reboot.target", func(t *testing.T) { longGrace(t, m) })
		for i, way := range []shutdownKind{
			{name: "systemctl isolate reboot.target", down: by("systemctl isolate reboot.target")},
			{name: "Ctrl-Alt-Del", down: (*machine.Machine).CtrlAltDel},
		} {
			t.Run(way.name, func(t *testing.T) {
				pods := workload()
				spread(t, m, i+1, pods...)
				bypass(t, m, way, pods)
			})
		}
		t.Run("systemctl reboot -ff", func(t *testing.T) { uncaught(t, m) })
		// It is the last one, because it breaks the machine's protection.
		t.Run("without the scopes' drop-in", func(t *testing.T) { unordered(t, m) })
	})
}

// spread runs pods in the slices in which runtimes create their scopes, in turn, starting with one
// of them. systemd would stop those in the first two at once.
func spread(t *testing.T, m *machine.Machine, from int, pods ...machine.Pod) {
	t.Helper()
	slices := []string{"kubepods.slice", "machine.slice", "system.slice"}
	for i, pod := range pods {
		m.Options.CgroupParent = slices[(from+i)%len(slices)]
		m.Deploy(pod)
		expectGroup(t, m, pod.Name, m.Options.CgroupParent+"/cri-containerd-", ".scope")
	}
}

// expectGroup checks that a pod's only container is in a cgroup with that beginning and end of its
// path, and the container's ID between them.
func expectGroup(t *testing.T, m *machine.Machine, pod, begins, ends string) {
	t.Helper()
	group := strings.TrimSpace(m.Run(`grep '^0::' /proc/$(pgrep -xf '/guest work -name default/` + pod + `/main .*')/cgroup`))
	id, found := strings.CutPrefix(group, "0::/"+begins)
	if id = strings.TrimSuffix(id, ends); !found || len(id) != 64 || group != "0::/"+begins+id+ends {
		t.Errorf("%s runs in the control group %s, want 0::/%sID%s", pod, group, begins, ends)
	}
}

// bypass shuts the machine down without logind notification.
func bypass(t *testing.T, m *machine.Machine, kind shutdownKind, pods []machine.Pod) closed {
	t.Helper()
	before := m.BootID()
	if down := kind.down(m); down.Off || !down.NewKernel {
		t.Errorf("the machine went down as %+v, want a new boot", down)
	}
	c := readBack(t, m, before)
	c.logFindings(t, kind.name)
	checkWorkload(t, c, pods, journal.TriggerServiceStop)
	expectReboot(t, m, reboots.Expected)
	during, after := unmounts(m)
	t.Logf("seen: %s: systemd unmounted %d of the containers' file systems before hostler had ended, %d after", kind.name, during, after)
	if log := m.Journal(-1, "-u hostler"); !strings.Contains(log, "systemStopping=true") {
		t.Errorf("hostler did not see that the system stops:\n%s", log)
	}
	return c
}

// unmounts counts the mounts of containers that systemd unmounted in the last boot, before and
// after the end of hostler.
func unmounts(m *machine.Machine) (before, after int) {
	done := false
	for line := range strings.Lines(m.Journal(-1, "-o", "short-monotonic")) {
		switch {
		case strings.Contains(line, "Unmounted run-containerd-"), strings.Contains(line, "Unmounted var-lib-containerd"):
			if done {
				after++
			} else {
				before++
			}
		case strings.Contains(line, "Started hostler.service"): // as after a restart
			before, after, done = 0, 0, false
		case strings.Contains(line, "Stopped hostler.service"):
			done = true
		}
	}
	return before, after
}

// longGrace lets a container take longer to stop than the service may (TimeoutStopSec=30s), unless
// the agent requests more time.
func longGrace(t *testing.T, m *machine.Machine) {
	const needs = 35 * time.Second
	pods := workload()
	for i := range pods {
		if pods[i].Name == "batch" {
			pods[i].Grace, pods[i].Containers[0].EndsSlowly = needs+20*time.Second, needs
		}
	}
	spread(t, m, 0, pods...)
	c := bypass(t, m, shutdownKind{name: "systemctl start reboot.target, 35 s of grace", down: by("systemctl start reboot.target")}, pods)
	for _, life := range c.work.Pod("batch") {
		if lasted := life.Gone().Sub(life.Term()); lasted < needs {
			t.Errorf("batch lived for %v after SIGTERM, want the %v that it needs:\n%s", lasted, needs, c.work)
		}
	}
}

// writtenDown returns hostler's list of running pods, for the case that no runtime can be asked any
// more; none as long as it has written nothing.
func writtenDown(t *testing.T, m *machine.Machine) []journal.Ref {
	t.Helper()
	var file struct{ Watch struct{ Pods []journal.Ref } }
	text := m.Run("cat /var/lib/hostler/shutdown.json 2>/dev/null || echo {}")
	if err := json.Unmarshal([]byte(text), &file); err != nil {
		t.Fatalf("read hostler's journal: %v:\n%s", err, text)
	}
	return file.Watch.Pods
}

// uncaught ends a boot without stopping any container. The next boot reports it.
func uncaught(t *testing.T, m *machine.Machine) {
	pods := workload()
	spread(t, m, 0, pods...)
	m.Eventually("hostler has written down what runs", func() bool { return len(writtenDown(t, m)) == len(pods) })
	before := m.BootID()
	m.GoesDown("systemctl reboot -ff")
	c := readBack(t, m, before)
	expectReboot(t, m, reboots.Unexpected)
	if c.last.Graceful || c.last.Trigger != journal.TriggerUnknown || len(c.last.Pods) != len(pods) {
		t.Errorf("LastShutdown() = %+v, want one that was not graceful, for an unknown reason, of %d pods", c.last, len(pods))
	}
	for _, p := range c.last.Pods {
		if p.Outcome != journal.Left {
			t.Errorf("LastShutdown() reports %s: %+v, want it left", p.Name, p)
		}
	}
	for _, life := range c.work {
		if len(life.Signals) > 0 || !life.CutOff() {
			t.Errorf("%s was sent the stop signal:\n%s", life.Pod, c.work)
		}
	}
	for where, text := range map[string]struct{ out, want string }{
		"status":             {m.Hostler("status"), "NOT graceful"},
		"ps --last-shutdown": {m.Hostler("ps", "--last-shutdown"), "NOT graceful"},
		"log":                {m.Journal(0, "-u hostler"), "graceful=false"},
	} {
		if !strings.Contains(text.out, text.want) {
			t.Errorf("the %s does not say that the last shutdown was not graceful, by %q:\n%s", where, text.want, text.out)
		}
	}
}

// unordered shows that the other tests prove something: without the scopes' drop-in, systemd stops
// all containers at once.
func unordered(t *testing.T, m *machine.Machine) {
	m.Run("rm -r /usr/lib/systemd/system/*-.scope.d && systemctl daemon-reload")
	pods := workload()
	spread(t, m, 0, pods...)
	before := m.BootID()
	m.GoesDown("systemctl start reboot.target")
	work := m.Work().Boot(before)
	for _, pod := range pods {
		if lives := work.Pod(pod.Name); len(lives) != 1 || lives[0].Term().IsZero() {
			t.Errorf("%s was not sent the stop signal, want one run of it, with SIGTERM:\n%s", pod.Name, work)
		}
		// web may have ended before systemd stops db.
		if slow := pod.Name == "stubborn" || pod.Name == "batch"; slow && work.GoneBefore(pod.Name, "db") {
			t.Errorf("db was sent the stop signal after %s also without the drop-in: the other tests prove nothing:\n%s", pod.Name, work)
		}
	}
	t.Logf("seen: without the drop-in:\n%s", work)
}
