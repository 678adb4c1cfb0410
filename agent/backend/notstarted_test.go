package backend

import (
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
)

// Each pod has the name of what is to be known of it.
func TestPodsThatHostlerDoesNotStartAfterItsReboot(t *testing.T) {
	booted := time.Now().Add(-time.Hour)
	before, since := booted.Add(-time.Hour), booted.Add(time.Minute)
	record := func(runtime, name string, outcome journal.Outcome, change ...func(*journal.PodRecord)) journal.PodRecord {
		p := journal.PodRecord{Runtime: runtime, ID: "id-" + name, Name: name, Outcome: outcome, StartedAt: before.Add(time.Minute)}
		for _, c := range change {
			c(&p)
		}
		return p
	}
	pod := func(r, name string, state runtime.ContainerState, started time.Time) runtime.Pod {
		return runtime.Pod{Runtime: r, ID: "new-" + name, Name: name, Containers: []runtime.Container{{Name: "c", State: state, StartedAt: started}}}
	}
	once := func(p *journal.PodRecord) { p.Once = true }
	pods := []runtime.Pod{
		pod("docker", "held", runtime.Exited, before), pod("docker", "earlier", runtime.Exited, before), pod("docker", "done-since", runtime.Exited, before.Add(2*time.Minute)),
		pod("containerd", "dead", runtime.Exited, before), pod("containerd", "critical", runtime.Exited, before),
		pod("containerd", "revived", runtime.Running, since), pod("containerd", "ran-since", runtime.Exited, since),
		pod("docker", "policy-no", runtime.Exited, before), pod("docker", "pending", runtime.Exited, before), pod("docker", "spared", runtime.Exited, before),
	}
	history := func(trigger journal.Trigger) journal.History {
		return journal.History{
			Drained: &journal.Record{BootID: "1", Trigger: trigger, StartedAt: before, Pods: []journal.PodRecord{
				record("containerd", "dead", journal.Stopped), record("containerd", "revived", journal.Killed), record("containerd", "ran-since", journal.Stopped),
				record("containerd", "removed", journal.Stopped), record("runc", "once", journal.Stopped, once), record("docker", "spared", journal.Skipped),
				record("docker", "policy-no", journal.Stopped), record("docker", "pending", journal.Stopped), record("containerd", "critical", journal.Skipped),
				record("docker", "held", journal.Stopped),
			}, Earlier: []journal.PodRecord{record("docker", "earlier", journal.Stopped), record("docker", "done-since", journal.Stopped)}},
			Last: &journal.Record{BootID: "1", Trigger: journal.TriggerShutdown, StartedAt: before.Add(time.Minute), Pods: []journal.PodRecord{record("containerd", "critical", journal.Stopped)}},
			Restarts: []journal.Restart{
				{Runtime: "docker", Pod: "id-policy-no", Outcome: journal.LeftStopped}, {Runtime: "docker", Pod: "id-pending"},
			},
		}
	}
	held := []journal.Restart{{Runtime: "docker", Pod: "id-held"}}
	if got, want := strings.Join(notRestarted(pods, booted, history(journal.TriggerReboot), held), " "), "critical dead earlier once policy-no"; got != want {
		t.Errorf("notRestarted() = %q, want %q", got, want)
	}
	if got := strings.Join(notRestarted(pods, booted, history(journal.TriggerManual), nil), " "); got != "critical" {
		t.Errorf("after a person's drain, notRestarted() = %q, want only the pod that the shutdown stopped", got)
	}
	plain := history(journal.TriggerReboot)
	plain.Drained = nil
	if got := strings.Join(notRestarted(pods, booted, plain, nil), " "); got != "critical" {
		t.Errorf("after another reboot, notRestarted() = %q, want the pod that it stopped", got)
	}
	running := history(journal.TriggerReboot)
	running.Drained.StartedAt, running.Last = booted.Add(time.Minute), nil
	if got := notRestarted(pods, booted, running, nil); len(got) > 0 {
		t.Errorf("before the reboot, notRestarted() = %q, want none", got)
	}
	cut := history(journal.TriggerReboot)
	cut.Drained, cut.Last = nil, &journal.Record{BootID: "1", Trigger: journal.TriggerUnknown, Pods: []journal.PodRecord{
		{Runtime: "containerd", Name: "critical", Outcome: journal.Left},
		{Runtime: "containerd", Name: "revived", Outcome: journal.Left},
		{Runtime: "docker", Name: "held", Outcome: journal.Left},
	}}
	pods[0].Containers[0].Restart = runtime.RestartByRuntime
	if got := strings.Join(notRestarted(pods, booted, cut, nil), " "); got != "critical" {
		t.Errorf("after a power cut, notRestarted() = %q, want the pod that has not run since and that its runtime does not start", got)
	}
}
