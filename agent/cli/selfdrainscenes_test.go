package cli_test

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/selfdrain"
	"hostler.io/hostler/shutdown/journal"
)

const maintenanceTaint = "taint example.com/maintenance=yes:NoExecute"

// aboutToDrain is a host that drains itself in four minutes, and has another cause that is due
// later.
func aboutToDrain() api.Status {
	s := healthy()
	s.Node.Spec.Taints = []corev1.Taint{{Key: "example.com/maintenance", Value: "yes", Effect: corev1.TaintEffectNoExecute}}
	s.SelfDrains = []selfdrain.Upcoming{
		{
			Trigger: journal.TriggerTaint, Cause: maintenanceTaint, Since: ago(time.Minute), DrainsAt: night.Add(4 * time.Minute), State: selfdrain.Scheduled,
			Hint: "remove the taint with `kubectl taint nodes n1 example.com/maintenance:NoExecute-`, or set node.onTaint: none and run `hostler reload`",
		},
		{
			Trigger: journal.TriggerLeaseLost, Cause: "lease not renewed", Since: ago(time.Minute), DrainsAt: night.Add(5 * time.Minute), State: selfdrain.Scheduled,
			Hint: "connect this host to its control plane, or set lease.onLost: none and run `hostler reload`",
		},
	}
	return s
}

// drainsItself is a host whose automatic drain is running.
func drainsItself() api.Status {
	s := aboutToDrain()
	s.SelfDrains = s.SelfDrains[:1]
	s.SelfDrains[0].State, s.SelfDrains[0].DrainsAt = selfdrain.Draining, ago(10*time.Second)
	s.Shutdown.ManualDrain = ownDrain()
	return s
}

// drainedItself is a host that has drained itself.
func drainedItself() api.Status {
	s := drainsItself()
	s.Shutdown.ManualDrain, s.SelfDrains[0].State = nil, selfdrain.Drained
	return s
}

// drainedBefore is a host whose taint was removed after the drain.
func drainedBefore() api.Status {
	s := healthy()
	s.Shutdown.Drained = ownDrain()
	return s
}

// keptItsPods is a host whose drain was withdrawn, and that can start one of its pods again.
func keptItsPods() api.Status {
	s := healthy()
	s.Shutdown.Drained = ownDrain()
	s.Shutdown.Drained.CancelledAt = ago(time.Second)
	s.Shutdown.Restarts = []journal.Restart{{Runtime: "docker", Pod: "shop", ID: "1", Name: "shop", Drained: true, Reason: "waits for its runtime to answer"}}
	return s
}

// ownDrain is an unfinished drain for a taint.
func ownDrain() *journal.Record {
	began := ago(10 * time.Second)
	return &journal.Record{BootID: bootID, Trigger: journal.TriggerTaint, Cause: maintenanceTaint, StartedAt: began, Pods: []journal.PodRecord{
		{Runtime: "containerd", ID: "c", Namespace: "shop", Name: "web-6f7d", Phase: "regular", Grace: seconds(20), StartedAt: began, FinishedAt: began.Add(time.Second), Outcome: journal.Stopped},
		{Runtime: "docker", ID: "shop", Name: "shop", Phase: "regular", Grace: seconds(20), StartedAt: began, FinishedAt: began.Add(time.Second), Outcome: journal.Stopped},
		{Runtime: "containerd", ID: "d", Namespace: "shop", Name: "db-0", Phase: "critical", Grace: seconds(10), Priority: 2000000000, Outcome: journal.Skipped},
	}}
}
