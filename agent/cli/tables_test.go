package cli_test

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/history"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

func sha(c string) string { return "sha256:" + strings.Repeat(c, 64) }

// fullBackend is a host with data for every table.
func fullBackend() *backend {
	removal := func(kind, id, name, pod string, reason gc.Reason) runs.Removal {
		return runs.Removal{Kind: kind, ID: id, Names: []string{name}, Pod: pod, Runtime: "containerd", Reason: reason, SizeBytes: 1 << 30}
	}
	dead := removal(runs.KindContainer, "c0ffee0123456789", "init", "shop/db-0", gc.OverLimit)
	over := runs.Removal{Kind: runs.KindPod, ID: strings.Repeat("4", 64), Names: []string{"shop/job-7"}, Runtime: "containerd", Reason: gc.PodDead}
	logs := runs.Removal{Kind: runs.KindLog, ID: "/var/log/pods/shop_job-6_u6", Names: []string{"/var/log/pods/shop_job-6_u6"}, Pod: "shop/job-6", Reason: gc.PodGone, SizeBytes: 3 << 20}
	old := removal(runs.KindImage, sha("a"), "registry.example.net/shop/web:1.4", "", gc.LRU)
	stuck := removal(runs.KindImage, sha("b"), "registry.example.net/shop/api:0.9", "", gc.LRU)
	used := removal(runs.KindImage, sha("c"), "registry.example.net/shop/db:16", "", gc.InUse)
	return &backend{
		status: healthy(),
		pods: api.PodList{Pods: []api.Pod{
			{
				Runtime: "containerd", ID: strings.Repeat("1", 64), UID: "u1", Namespace: "shop", Name: "web-6f7d", Ready: true, Labels: []string{"hostler.io/keep=true"},
				Phase: "regular", Grace: seconds(20), CreatedAt: ago(72 * time.Hour),
				Containers:   []api.Container{{Name: "web", State: "Running", ExitCode: new(int32)}, {Name: "log", State: "Running", ExitCode: new(int32)}},
				LastShutdown: &journal.PodRecord{Outcome: journal.Stopped},
			},
			{
				Runtime: "containerd", ID: strings.Repeat("2", 64), UID: "u2", Namespace: "shop", Name: "db-0", Ready: true,
				Phase: "critical", Priority: 2000000000, Grace: seconds(10), CreatedAt: ago(26 * time.Hour),
				Containers: []api.Container{{Name: "init", State: "Exited"}, {Name: "postgres", State: "Running", ExitCode: new(int32)}},
			},
			{
				Runtime: "podman", ID: strings.Repeat("3", 64), Namespace: "", Name: "backup", CreatedAt: ago(40 * time.Second),
				Containers: []api.Container{},
			},
		}, Message: "runtime docker: list containers: deadline exceeded"},
		images: api.ImageList{Images: queued()},
		plan: api.CollectPlan{Decisions: gc.Decisions{
			Filesystems: []gc.FilesystemDecision{
				{FilesystemStatus: healthy().ImageGC.Filesystems[0], BytesToFree: 5 << 30},
				{FilesystemStatus: gc.FilesystemStatus{Filesystem: "/mnt/far", Mountpoint: "/mnt/far", Device: "nas:/far", Runtimes: []string{"podman"}, Message: "usage unknown: statfs /mnt/far: stale file handle"}},
				{FilesystemStatus: gc.FilesystemStatus{Filesystem: "/srv", Mountpoint: "/srv", Device: "/dev/sdb1", Runtimes: []string{"docker", "runc"}, CapacityBytes: 1 << 40, AvailableBytes: 1 << 39, UsedPercent: 50}},
			},
			Images: images(),
			Containers: []gc.ContainerDecision{
				{ID: "c0ffee0123456789", Name: "init", Pod: "shop/db-0", ExitedAt: ago(26 * time.Hour), Action: gc.Remove, Reason: gc.OverLimit, Runtime: "containerd"},
				{ID: "decade0123456789", Name: "postgres", Pod: "shop/db-0", Action: gc.Keep, Reason: "running", Runtime: "containerd"},
			},
			Pods: []gc.PodDecision{
				{ID: strings.Repeat("4", 64), UID: "u4", Name: "job-7", Namespace: "shop", CreatedAt: ago(26 * time.Hour), Action: gc.Remove, Reason: gc.PodDead, Runtime: "containerd"},
				{ID: strings.Repeat("5", 64), UID: "u5", Name: "job-8", Namespace: "shop", CreatedAt: ago(2 * time.Hour), Action: gc.Keep, Reason: gc.InUse, Detail: "container job stays (newest)", Runtime: "containerd"},
			},
			Logs: []gc.LogDecision{
				{Path: "/var/log/pods/shop_job-6_u6", Pod: "shop/job-6", UID: "u6", ModifiedAt: ago(72 * time.Hour), SizeBytes: 3 << 20, Action: gc.Remove, Reason: gc.PodGone},
				{Path: "/var/log/containers/job-6_shop_job-cafe.log", Pod: "shop/job-6", UID: "u6", ModifiedAt: ago(72 * time.Hour), Action: gc.Remove, Reason: gc.Dangling},
			},
		}},
		steps: []runs.Progress{
			{Waiting: true},
			{Removal: dead, Action: gc.Remove, Done: 1, Total: 4},
			{Removal: old, Action: gc.Remove, Done: 2, Total: 4},
			{Removal: stuck, Action: gc.Keep, Err: errors.New("remove image: device busy"), Done: 3, Total: 4},
			{Removal: used, Action: gc.Keep, Done: 4, Total: 4},
			{Removal: over, Action: gc.Remove, Done: 5, Total: 6},
			{Removal: logs, Action: gc.Remove, Done: 6, Total: 6},
		},
		report: runs.Report{
			StartedAt: ago(2 * time.Second), Duration: seconds(2), Trigger: "person",
			RequestedBytes: 5 << 30, EstimatedBytes: 2 << 30, FreedBytes: 1 << 30, Filesystems: []string{"/var/lib/containerd (/dev/sdb1)"},
			Removed: []runs.Removal{dead, over, logs, old}, Kept: map[gc.Reason]int{gc.InUse: 1},
			Errors: []string{`remove image "registry.example.net/shop/api:0.9": device busy`}, Warnings: []string{"/var/lib/containerd is still above the low threshold"},
			Ended: "nothing left to remove",
		},
		history: api.CollectHistory{Runs: []history.Run{
			{
				Kind: history.Images, Trigger: "DiskPressure", Candidates: 61, EstimatedBytes: 9 << 30, Kept: map[gc.Reason]int{gc.InUse: 82}, RemovedBy: map[gc.Reason]int{gc.LRU: 9, gc.MaxAge: 1, gc.OverLimit: 2},
				Summary:         runs.Summary{StartedAt: ago(4 * time.Minute), Duration: seconds(2), RequestedBytes: 5 << 30, FreedBytes: 6 << 30, Removed: 12, RemovedKinds: map[string]int{runs.KindImage: 10, runs.KindContainer: 2}, Errors: []string{"remove image registry.example.net/shop/api:0.9: device busy"}},
				RequestedInodes: 1000, EstimatedInodes: 900, FreedInodes: 1200, Filesystems: []string{"/var/lib/containerd (/dev/sdb1)"}, Ended: "low threshold reached",
			},
			{
				Kind: history.Containers, Trigger: "interval", RemovedBy: map[gc.Reason]int{gc.OverLimit: 3}, Kept: map[gc.Reason]int{gc.Newest: 2},
				Summary: runs.Summary{StartedAt: ago(26 * time.Hour), Duration: seconds(1), FreedBytes: 1 << 20, Removed: 3, Errors: []string{}}, Ended: "nothing more to remove",
			},
		}},
		phases:  phases(),
		drained: drained(),
	}
}

// shortOfSpace is a host whose collection did not free enough.
func shortOfSpace() *backend {
	return &backend{report: runs.Report{
		StartedAt: ago(2 * time.Second), Duration: seconds(2), RequestedBytes: 5 << 30, RequestedInodes: 4000,
		Removed: []runs.Removal{}, Kept: map[gc.Reason]int{gc.InUse: 3, gc.Protected: 1}, Errors: []string{}, Ended: "nothing more to remove",
		Short: []string{"/var/lib/containerd"},
		Warnings: []string{"image filesystem /var/lib/containerd (/dev/sdb1) is 92% full, inodes 12%; target 80%, inodes 85% (high thresholds 85%, inodes 90%): nothing more to remove; " +
			"images kept: 3 in-use, 3.0 GiB (container shop/web-6f7d/web (Running), container shop/db-0/postgres (Exited)), 1 protected, 1.0 MiB (sandbox image); " +
			"largest folders on it: /var/lib/containerd/leftover (40.0 GiB, 12 inodes); run `du -xah /var/lib/containerd | sort -h | tail -20` to see what else fills it"},
		Holders: []runs.Holder{
			{Filesystem: "/var/lib/containerd", Reason: gc.InUse, Images: 3, SizeBytes: 3 << 30, By: []string{"container shop/web-6f7d/web (Running)", "container shop/db-0/postgres (Exited)"}},
			{Filesystem: "/var/lib/containerd", Reason: gc.Protected, Images: 1, SizeBytes: 1 << 20, By: []string{"sandbox image"}},
		},
		Folders: []gc.Folder{{Filesystem: "/var/lib/containerd", Path: "/var/lib/containerd/leftover", SizeBytes: 40 << 30, Inodes: 12}},
	}}
}

// rubbish is a host with a filesystem whose mount is unknown, and logs of removed pods.
func rubbish() *backend {
	return &backend{plan: api.CollectPlan{Decisions: gc.Decisions{
		Filesystems: []gc.FilesystemDecision{{FilesystemStatus: gc.FilesystemStatus{Filesystem: "/data/images", Runtimes: []string{"cri-o"}, Message: "capacity is 0"}}},
		Logs:        fullBackend().plan.Logs,
	}}}
}

// drained is a complete drain.
func drained() maintenance.DrainReport {
	pod := func(name, phase string, grace int, took time.Duration, outcome journal.Outcome) journal.PodRecord {
		p := journal.PodRecord{Runtime: "containerd", ID: name, Namespace: "shop", Name: name, Phase: phase, Grace: seconds(grace), Outcome: outcome}
		if outcome != journal.Skipped {
			p.StartedAt, p.FinishedAt = ago(time.Minute), ago(time.Minute-took)
		}
		return p
	}
	return maintenance.DrainReport{Node: "rack3-node07.example.net", Unschedulable: true, Record: journal.Record{
		BootID: bootID, Trigger: journal.TriggerManual, StartedAt: ago(time.Minute), FinishedAt: ago(55 * time.Second), Graceful: true,
		Pods: []journal.PodRecord{
			pod("web-6f7d", "regular", 20, 1234*time.Millisecond, journal.Stopped),
			pod("api-0", "regular", 5, 5*time.Second, journal.Killed),
			pod("dns", "critical", 10, 0, journal.Skipped),
		},
	}}
}

func images() []gc.ImageDecision {
	return []gc.ImageDecision{
		{ID: sha("a"), Names: []string{"registry.example.net/shop/web:1.4", "registry.example.net/shop/web@" + sha("d")}, SizeBytes: 1 << 30, FirstSeen: ago(240 * time.Hour), LastUsed: ago(100 * time.Hour), Action: gc.Remove, Reason: gc.LRU, Runtime: "containerd", Filesystem: "/var/lib/containerd"},
		{ID: sha("b"), Names: []string{"registry.example.net/shop/api:0.9", "shop-api:stable"}, SizeBytes: 300 << 20, FirstSeen: ago(90 * time.Hour), Action: gc.Keep, Reason: gc.BelowThreshold, Runtime: "containerd", Filesystem: "/var/lib/containerd"},
		{ID: sha("c"), Names: []string{"registry.example.net/shop/db:16"}, SizeBytes: 700, LastUsed: ago(time.Second), Action: gc.Keep, Reason: gc.InUse, Detail: "shop/db-0", Runtime: "containerd", Filesystem: "/var/lib/containerd"},
		{ID: sha("e"), SizeBytes: 1 << 20, LastUsed: ago(time.Hour), Action: gc.Keep, Reason: gc.Local, Runtime: "podman", Filesystem: "/mnt/far"},
	}
}

// queued are images as `hostler images` receives them.
func queued() []api.Image {
	list := make([]api.Image, len(images()))
	for i, d := range images() {
		list[i].ImageDecision = d
	}
	list[0].Place, list[1].Place = 1, 2
	return list
}

func phases() api.ShutdownPlan {
	return api.ShutdownPlan{State: shutdown.Armed, Reason: "shutdown lock held", Plan: plan.Plan{
		Phases: []plan.PlannedPhase{
			{Name: "regular", Grace: seconds(20), Pods: []plan.PlannedPod{
				{Runtime: "containerd", Sandbox: true, Namespace: "shop", Name: "web-6f7d", Grace: seconds(20), Containers: []plan.PlannedContainer{{Name: "web", Grace: seconds(20)}, {Name: "log", Grace: seconds(5), After: []string{"web"}}}},
			}},
			{Name: "critical", Priority: 2000000000, Grace: seconds(10), Pods: []plan.PlannedPod{}},
		},
		Total: seconds(30), Granted: delay(35),
		Notes: []plan.Note{{Namespace: "shop", Pod: "web-6f7d", Key: "hostler.io/grace-period", Value: "soon", Problem: `is not a duration such as "90s"`, Effect: "the grace period is 30s"}},
	}}
}

func TestTables(t *testing.T) {
	short := fullBackend()
	short.phases.Granted = delay(5)
	cut := fullBackend()
	cut.phases.Granted, cut.phases.Needed, cut.phases.Shortage = delay(8), seconds(36), overridden
	cut.phases.Phases[0].Grace, cut.phases.Phases[1].Grace = seconds(0), seconds(6)
	cut.phases.Phases[0].Wanted, cut.phases.Phases[1].Wanted = seconds(20), seconds(10)
	cut.phases.Phases[0].Pods[0].Grace = seconds(0)
	cut.phases.Phases[0].Pods[0].Containers = []plan.PlannedContainer{{Name: "web", Unit: "web.service", Wanted: seconds(60), Limit: "logind's delay"}}
	onlyCritical := fullBackend()
	onlyCritical.phases.Notes, onlyCritical.phases.Phases[0].Pods = nil, []plan.PlannedPod{}
	onlyCritical.phases.Phases[1].Unused = seconds(20)
	onlyCritical.phases.Phases[1].Pods = []plan.PlannedPod{{Runtime: "podman", Name: "dns", Grace: seconds(30), Containers: []plan.PlannedContainer{{Name: "dns", Grace: seconds(30)}}}}
	unknown := fullBackend()
	unknown.phases.Granted = delay(0)
	off := fullBackend()
	off.phases = api.ShutdownPlan{Plan: plan.Plan{Phases: []plan.PlannedPhase{}}}
	unguarded := fullBackend()
	unguarded.phases.State, unguarded.phases.Reason = shutdown.Disarmed, "logind stopped"
	delegated := fullBackend()
	delegated.phases.State, delegated.phases.Reason = shutdown.Delegated, besideKubelet().Shutdown.Reason
	incomplete := fullBackend()
	incomplete.drained.Graceful, incomplete.drained.Message = false, "saved on this host, and written to the control plane once it answers: control plane unavailable"
	incomplete.drained.Pods[1].Outcome, incomplete.drained.Pods[1].Stuck, incomplete.drained.Pods[1].Error = journal.Left, []string{"api"}, "stop container \"api\": runtime unavailable"
	limited := fullBackend()
	limited.drained.Pods[1].Limits = []journal.Limit{{Container: "api", Grace: seconds(5), Wanted: seconds(60), By: "unit api.service"}}
	withCritical := fullBackend()
	withCritical.phases.Phases[1].Pods = []plan.PlannedPod{{Runtime: "containerd", Sandbox: true, Namespace: "kube-system", Name: "dns", Priority: plan.CriticalPriority, Grace: seconds(10), Containers: []plan.PlannedContainer{{Name: "dns", Grace: seconds(10)}}}}
	byPriority := fullBackend()
	byPriority.phases.Phases = slices.Clone(byPriority.phases.Phases)
	byPriority.phases.Phases[0].Name, byPriority.phases.Phases[0].Priority = "priority-50", 50
	untimed := fullBackend()
	untimed.phases.Phases[0].Grace = seconds(0)
	untimed.phases.Phases[0].Pods[0].Grace, untimed.phases.Phases[0].Pods[0].Containers = seconds(0), []plan.PlannedContainer{{Name: "web"}}
	untimed.status.Shutdown.Untimed = []string{"regular"}
	cutOff := fullBackend()
	cutOff.status.Shutdown.Last = &journal.Record{BootID: bootID, Trigger: journal.TriggerUnknown, AsOf: time.Date(2026, 11, 17, 3, 11, 58, 0, time.UTC), Error: "the host went down without a drain", Pods: []journal.PodRecord{
		{Runtime: "containerd", ID: "a", UID: "u", Namespace: "shop", Name: "web-6f7d", Outcome: journal.Left},
		{Runtime: "containerd", ID: "b", Namespace: "shop", Name: "db-0", Outcome: journal.Left},
	}}
	cutOff.status.NotStarted = []string{"cache", "shop-db-1"}
	ofContainers := fullBackend()
	ofContainers.drained.Pods = []journal.PodRecord{
		{Runtime: "docker", ID: "shop", Name: "shop", Outcome: journal.Stopped, ContainerMaps: journal.ContainerMaps{Asked: map[string]time.Time{"1": ago(time.Minute), "2": ago(time.Minute)}, Names: map[string]string{"1": "web", "2": "db"}}},
		{Runtime: "docker", ID: "0123456789abcdef", Name: "batch", Outcome: journal.Killed, ContainerMaps: journal.ContainerMaps{Late: map[string]time.Time{"0123456789abcdef": ago(time.Minute)}}},
		{Runtime: "podman", ID: "q", Name: "quadlet", Outcome: journal.Stopped, ContainerMaps: journal.ContainerMaps{Asked: map[string]time.Time{"q": ago(time.Minute)}, ByUnit: []string{"q"}}},
		{Runtime: "runc", ID: "hand", Name: "hand", Outcome: journal.Stopped, ContainerMaps: journal.ContainerMaps{Late: map[string]time.Time{"hand": ago(time.Minute)}}},
		{Runtime: "docker", ID: "dns", Name: "dns", Outcome: journal.Skipped},
	}
	uncordoned := fullBackend()
	uncordoned.status.Shutdown.Drained = &ofContainers.drained.Record
	uncordoned.pods = api.PodList{Pods: []api.Pod{
		{Runtime: "docker", ID: "shop", Name: "shop", Containers: []api.Container{{ID: "1", State: "Running"}, {ID: "2", State: "Exited"}}},
		{Runtime: "podman", ID: "q2", Name: "quadlet", Containers: []api.Container{{ID: "q2", State: "Running"}}},
	}}
	rebootedAfterDrain, rebooted := fullBackend(), fullBackend()
	rebootedAfterDrain.status.Shutdown.Drained, rebootedAfterDrain.pods = uncordoned.status.Shutdown.Drained, uncordoned.pods
	rebooted.pods = uncordoned.pods
	rebootedAfterDrain.status.NotRestarted, rebooted.status.NotRestarted = []string{"hand", "kube-system/dns"}, []string{"kube-system/dns", "shop"}
	drainedTwice := fullBackend()
	secondDrain := ofContainers.drained.Record.Clone()
	secondDrain.Pods = []journal.PodRecord{
		{Runtime: "docker", ID: "dns", Namespace: "infra", Name: "dns", StartedAt: secondDrain.StartedAt, FinishedAt: secondDrain.FinishedAt, Outcome: journal.Stopped, ContainerMaps: journal.ContainerMaps{Asked: map[string]time.Time{"d": ago(time.Minute)}, Names: map[string]string{"d": "dns"}}},
	}
	secondDrain.Earlier = append(slices.Clone(ofContainers.drained.Pods[:4]),
		journal.PodRecord{Runtime: "docker", ID: "late", Name: "late", StartedAt: ago(2 * time.Minute), Outcome: journal.Left, ContainerMaps: journal.ContainerMaps{Asked: map[string]time.Time{"l": ago(2 * time.Minute)}, Names: map[string]string{"l": "late"}}})
	drainedTwice.status.Shutdown.Drained, drainedTwice.drained.Record = secondDrain, *secondDrain
	drainedTwice.pods = api.PodList{Pods: []api.Pod{
		{Runtime: "docker", ID: "shop", Name: "shop", Containers: []api.Container{{ID: "1", State: "Exited"}, {ID: "2", State: "Running"}}},
		{Runtime: "docker", ID: "dns", Namespace: "infra", Name: "dns", Containers: []api.Container{{ID: "d", State: "Exited"}}},
		{Runtime: "docker", ID: "late", Name: "late", Containers: []api.Container{{ID: "l", State: "Exited"}}},
	}}
	orchestrated := fullBackend()
	orchestrated.phases.StopFirst = []string{"k3s.service"}
	stoppedFirst := orchestrated.status.Shutdown.Last.Clone()
	stoppedFirst.StoppedFirst = []journal.Service{{Name: "k3s.service", Took: seconds(2)}, {Name: "k3s-agent.service", Took: seconds(10), Error: "still running after 10s"}}
	orchestrated.status.Shutdown.Last = stoppedFirst
	shortened := fullBackend()
	brief := shortened.status.Shutdown.Last.Clone()
	brief.Shortened = &journal.Shortened{Granted: seconds(8), Wanted: seconds(30), Had: seconds(6)}
	brief.Pods[0].Grace.Duration = 999876543 * time.Nanosecond
	brief.Pods[1].Limits = []journal.Limit{{Container: "postgres", Grace: seconds(10), Wanted: seconds(60), By: "logind's delay"}}
	shortened.status.Shutdown.Last = brief
	unseen := fullBackend()
	unseen.status.Shutdown.Last = &journal.Record{BootID: bootID, Trigger: journal.TriggerUnknown, AsOf: time.Date(2026, 11, 17, 3, 11, 58, 0, time.UTC), Error: "the host went down without a drain", Pods: []journal.PodRecord{}}
	ended := fullBackend()
	ended.status.Shutdown.Last = &journal.Record{BootID: bootID, Trigger: journal.TriggerShutdown, Kind: "reboot", StartedAt: ago(30 * time.Second), FinishedAt: ago(20 * time.Second), Graceful: true, Pods: []journal.PodRecord{
		{Runtime: "containerd", ID: "c", Namespace: "shop", Name: "cache", Phase: "critical", Grace: seconds(10), FinishedAt: ago(24 * time.Second), Outcome: journal.Stopped},
		{Runtime: "docker", ID: "v", Name: "vpn", Phase: "regular", Grace: seconds(15), StartedAt: ago(25 * time.Second), FinishedAt: ago(24 * time.Second), Outcome: journal.Stopped, After: []string{"web.service", "sidecar"}},
	}}
	outdated := fullBackend()
	outdated.status.Version = "1.2.2"
	emptied := fullBackend()
	emptied.status.Shutdown.Last = &journal.Record{BootID: bootID, Trigger: journal.TriggerShutdown, Kind: "reboot", StartedAt: ago(30 * time.Second), FinishedAt: ago(30*time.Second - 15*time.Millisecond), Graceful: true, Pods: []journal.PodRecord{}}
	emptied.status.Shutdown.Drained = &emptied.drained.Record
	powerCut := fullBackend()
	powerCut.status.Shutdown.Drained = &journal.Record{BootID: bootID, Trigger: journal.TriggerReboot, Cause: "reboot: new kernel", StartedAt: ago(time.Minute), CancelledAt: ago(20 * time.Second), Error: "the agent ended during the drain", Pods: []journal.PodRecord{
		{Runtime: "containerd", ID: "c", Namespace: "shop", Name: "web-6f7d", Phase: "regular", Grace: seconds(20), StartedAt: ago(time.Minute), Outcome: journal.Left},
	}}
	undone := fullBackend()
	undone.status.Shutdown.Drained = &journal.Record{BootID: bootID, Trigger: journal.TriggerReboot, Cause: "reboot: new kernel", StartedAt: ago(time.Minute), FinishedAt: ago(50 * time.Second), Graceful: true, CancelledAt: ago(20 * time.Second), UndoneAt: ago(20 * time.Second), Pods: []journal.PodRecord{
		{Runtime: "containerd", ID: "c", Namespace: "shop", Name: "web-6f7d", Phase: "regular", Grace: seconds(20), StartedAt: ago(time.Minute), FinishedAt: ago(50 * time.Second), Outcome: journal.Stopped},
	}}
	withdrawn := fullBackend()
	withdrawn.status = keptItsPods()
	cancelled := fullBackend()
	began := cancelled.status.Shutdown.Last.StartedAt.Add(48 * time.Hour)
	cancelled.status.Shutdown.Cancelled = &journal.Record{BootID: bootID, Trigger: journal.TriggerShutdown, Kind: "reboot", StartedAt: began, CancelledAt: began.Add(3 * time.Second), Pods: []journal.PodRecord{
		{Runtime: "containerd", ID: "c", Namespace: "shop", Name: "web-6f7d", Phase: "regular", Grace: seconds(20), StartedAt: began, FinishedAt: began.Add(time.Second), Outcome: journal.Stopped},
		{Runtime: "containerd", ID: "d", Namespace: "shop", Name: "db-0", Phase: "critical", Grace: seconds(10), Outcome: journal.Skipped},
	}}
	again := fullBackend()
	again.status.Shutdown.Restarts = []journal.Restart{
		{Runtime: "containerd", Pod: "a", ID: "1", Name: "web", Outcome: journal.Restarted},
		{Runtime: "containerd", Pod: "a", ID: "2", Name: "log", Outcome: journal.RestartFailed, Reason: "no such device"},
		{Runtime: "containerd", Pod: "b", ID: "0123456789abcdef", Reason: "waits for network-online.target"},
		{Runtime: "containerd", Pod: "b", ID: "3", Name: "job", Outcome: journal.LeftStopped, Reason: "it was removed"},
		{Runtime: "containerd", Pod: "b", ID: "4", Name: "quadlet", ByUnit: true},
		{Runtime: "containerd", Pod: "b", ID: "5", Name: "batch", Outcome: journal.LeftStopped, Reason: `its restart policy is "no"`},
	}
	once := again.status.Shutdown.Last.Clone()
	once.Pods = append(once.Pods, journal.PodRecord{Runtime: "runc", ID: "hand", Name: "hand", Phase: "regular", Grace: seconds(20), StartedAt: once.StartedAt, FinishedAt: once.StartedAt.Add(time.Second), Outcome: journal.Stopped, Once: true, ExitCodes: map[string]int32{"hand": 0}})
	again.status.Shutdown.Last = once
	afterBoot := fullBackend()
	afterBoot.phases.Phases = slices.Clone(afterBoot.phases.Phases)
	afterBoot.phases.Phases[0].Pods = []plan.PlannedPod{{Runtime: "docker", Name: "shop", Grace: seconds(20), Containers: []plan.PlannedContainer{
		{Name: "web", Grace: seconds(20), Restart: runtime.RestartUnlessStopped},
		{Name: "db", Grace: seconds(20), Restart: runtime.RestartUnlessStopped},
		{Name: "cache", Grace: seconds(20), Restart: runtime.RestartByRuntime},
		{Name: "quadlet", Unit: "quadlet.service", Grace: seconds(20), Restart: runtime.RestartByUnit},
		{Name: "hand", Grace: seconds(20), Restart: runtime.RestartElsewhere},
		{Name: "batch", Grace: seconds(20), Restart: runtime.RestartNotAtBoot},
		{Name: "job", Grace: seconds(20), Restart: runtime.RestartNever},
	}}}
	afterBoot.phases.RestartAfterBoot = "auto"
	neverAgain := fullBackend()
	neverAgain.phases = afterBoot.phases
	notOurs := fullBackend()
	notOurs.phases = afterBoot.phases
	notOurs.phases.State, notOurs.phases.Reason = delegated.phases.State, delegated.phases.Reason
	neverAgain.phases.RestartAfterBoot = "never"
	quiet := &backend{report: runs.Report{Removed: []runs.Removal{}, Errors: []string{}, Ended: "nothing left to remove"}}
	for name, c := range map[string]struct {
		backend *backend
		args    string
		code    int
	}{
		"ps":                          {fullBackend(), "ps", 0},
		"ps-wide":                     {fullBackend(), "ps -o wide", 0},
		"ps-json":                     {fullBackend(), "ps -o json", 0},
		"ps-empty":                    {&backend{}, "ps", 0},
		"ps-last-shutdown":            {fullBackend(), "ps --last-shutdown", 0},
		"ps-last-shutdown-json":       {fullBackend(), "ps --last-shutdown -o json", 0},
		"shutdown-report":             {fullBackend(), "shutdown report", 0},
		"shutdown-report-json":        {fullBackend(), "shutdown report -o json", 0},
		"shutdown-report-svg":         {fullBackend(), "shutdown report --svg", 0},
		"shutdown-report-first":       {orchestrated, "shutdown report", 0},
		"shutdown-report-cut-off":     {cutOff, "shutdown report", 0},
		"shutdown-report-none":        {&backend{}, "shutdown report", 0},
		"ps-last-shutdown-cut-off":    {cutOff, "ps --last-shutdown", 0},
		"ps-last-shutdown-unseen":     {unseen, "ps --last-shutdown", 0},
		"ps-last-shutdown-ended":      {ended, "ps --last-shutdown", 0},
		"ps-last-shutdown-first":      {orchestrated, "ps --last-shutdown", 0},
		"shutdown-plan-stop-first":    {orchestrated, "shutdown plan", 0},
		"ps-last-shutdown-shortened":  {shortened, "ps --last-shutdown", 0},
		"ps-last-shutdown-cancelled":  {cancelled, "ps --last-shutdown", 0},
		"ps-last-shutdown-drained":    {emptied, "ps --last-shutdown", 0},
		"ps-last-shutdown-power-cut":  {powerCut, "ps --last-shutdown", 0},
		"ps-last-shutdown-undone":     {undone, "ps --last-shutdown", 0},
		"shutdown-report-drained":     {emptied, "shutdown report", 0},
		"ps-last-shutdown-withdrawn":  {withdrawn, "ps --last-shutdown", 0},
		"status-drained":              {emptied, "status", 0},
		"status-outdated":             {outdated, "status", 0},
		"status-cancelled":            {cancelled, "status", 0},
		"ps-last-shutdown-restarts":   {again, "ps --last-shutdown", 0},
		"shutdown-plan-after-boot":    {afterBoot, "shutdown plan", 0},
		"shutdown-plan-not-ours":      {notOurs, "shutdown plan", 0},
		"shutdown-plan-never-again":   {neverAgain, "shutdown plan", 0},
		"shutdown-plan-by-priority":   {byPriority, "shutdown plan", 0},
		"ps-last-shutdown-none":       {&backend{}, "ps --last-shutdown", 0},
		"images":                      {fullBackend(), "images", 0},
		"images-wide":                 {fullBackend(), "images -o wide", 0},
		"images-yaml":                 {fullBackend(), "images -o yaml", 0},
		"images-empty":                {&backend{}, "images", 0},
		"gc-plan":                     {fullBackend(), "gc plan", 0},
		"gc-plan-wide":                {fullBackend(), "gc plan -o wide", 0},
		"gc-plan-all-unused":          {fullBackend(), "gc plan --all-unused", 0},
		"gc-plan-json":                {fullBackend(), "gc plan -o json", 0},
		"gc-plan-containers":          {fullBackend(), "gc plan --containers", 0},
		"gc-plan-rubbish":             {rubbish(), "gc plan", 0},
		"gc-run":                      {fullBackend(), "gc run", 1},
		"gc-run-json":                 {fullBackend(), "gc run -o json", 1},
		"gc-run-nothing-to-do":        {quiet, "gc run", 0},
		"gc-run-short-of-room":        {shortOfSpace(), "gc run", 1},
		"gc-history":                  {fullBackend(), "gc history", 0},
		"gc-history-wide":             {fullBackend(), "gc history -o wide", 0},
		"gc-history-json":             {fullBackend(), "gc history -o json", 0},
		"gc-history-containers":       {fullBackend(), "gc history --containers", 0},
		"gc-history-empty":            {quiet, "gc history", 0},
		"doctor":                      {&backend{doctor: diagnosis()}, "doctor", 1},
		"doctor-wide":                 {&backend{doctor: diagnosis()}, "doctor -o wide", 1},
		"doctor-json":                 {&backend{doctor: diagnosis()}, "doctor -o json", 1},
		"doctor-only-warns":           {&backend{doctor: onlyWarns()}, "doctor", 0},
		"doctor-plugin":               {&backend{doctor: pluginTrouble()}, "doctor", 1},
		"doctor-no-agent":             {&backend{doctor: noAgent()}, "doctor", 1},
		"doctor-other-version":        {&backend{doctor: otherVersion()}, "doctor", 0},
		"doctor-many-faults":          {&backend{doctor: manyFaults()}, "doctor", 0},
		"doctor-many-faults-wide":     {&backend{doctor: manyFaults()}, "doctor -o wide", 0},
		"doctor-all-well":             {&backend{doctor: allWell()}, "doctor", 0},
		"shutdown-plan-untimed":       {untimed, "shutdown plan", 0},
		"status-untimed":              {untimed, "status", 0},
		"shutdown-plan-overridden":    {cut, "shutdown plan", 0},
		"shutdown-plan":               {fullBackend(), "shutdown plan", 0},
		"shutdown-plan-wide":          {fullBackend(), "shutdown plan -o wide", 0},
		"shutdown-plan-json":          {fullBackend(), "shutdown plan -o json", 0},
		"shutdown-plan-unused":        {onlyCritical, "shutdown plan", 0},
		"shutdown-plan-too-long":      {short, "shutdown plan", 0},
		"shutdown-plan-grant-unknown": {unknown, "shutdown plan", 0},
		"shutdown-plan-disarmed":      {unguarded, "shutdown plan", 0},
		"shutdown-plan-delegated":     {delegated, "shutdown plan", 0},
		"shutdown-plan-switched-off":  {off, "shutdown plan", 0},
		"drain":                       {fullBackend(), "drain", 0},
		"drain-json":                  {fullBackend(), "drain -o json", 0},
		"drain-limited":               {limited, "drain", 0},
		"drain-incomplete":            {incomplete, "drain", 1},
		"drain-dry-run":               {withCritical, "drain --dry-run", 0},
		"drain-dry-run-all":           {withCritical, "drain --dry-run --all", 0},
		"reboot":                      {fullBackend(), "reboot --reason kernel", 0},
		"reboot-cancel":               {fullBackend(), "reboot --cancel", 0},
		"reboot-dry-run":              {withCritical, "reboot --dry-run", 0},
		"reboot-dry-run-now":          {withCritical, "reboot --dry-run --now --reason kernel", 0},
		"reboot-dry-run-json":         {withCritical, "reboot --dry-run -o json", 0},
		"drain-dry-run-json":          {withCritical, "drain --dry-run -o json", 0},
		"cordon":                      {fullBackend(), "cordon", 0},
		"cordon-json":                 {fullBackend(), "cordon -o json", 0},
		"leave":                       {fullBackend(), "leave", 0},
		"leave-json":                  {fullBackend(), "leave -o json", 0},
		"leave-undo":                  {fullBackend(), "leave --undo", 0},
		"leave-undo-nothing":          {&backend{member: true}, "leave --undo", 0},
		"uncordon-already":            {fullBackend(), "uncordon", 0},
		"uncordon-stopped":            {uncordoned, "uncordon", 0},
		"uncordon-stopped-rebooted":   {rebootedAfterDrain, "uncordon", 0},
		"uncordon-rebooted":           {rebooted, "uncordon", 0},
		"uncordon-drained-twice":      {drainedTwice, "uncordon", 0},
		"drain-twice":                 {drainedTwice, "drain --all", 0},
		"ps-last-shutdown-twice":      {drainedTwice, "ps --last-shutdown", 0},
		"drain-containers":            {ofContainers, "drain", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := hostler(serve(t, c.backend), strings.Fields(c.args)...)
			if got.code != c.code || got.stderr != "" {
				t.Errorf("hostler %s = code %d, %q, want code %d and nothing", c.args, got.code, got.stderr, c.code)
			}
			golden(t, "tables/"+name, got.stdout)
		})
	}
}

func TestAnInterruptedDrainIsAnErrorAndItsJSONHasTheReport(t *testing.T) {
	b := fullBackend()
	b.err = &api.Error{Message: "drain: a shutdown has cut it short", Hint: "look"}
	socket := serve(t, b)
	for _, c := range []struct{ args, want string }{{"drain", "stopped "}, {"drain -o json", `"graceful": `}} {
		got := hostler(socket, strings.Fields(c.args)...)
		if got.code != 1 || !strings.Contains(got.stderr, "cut it short\nhint: look") || !strings.Contains(got.stdout, c.want) {
			t.Errorf("hostler %s = code %d, %q, %q, want code 1, and %q in the output", c.args, got.code, got.stdout, got.stderr, c.want)
		}
	}
	b.drained = maintenance.DrainReport{} // the drain did not begin
	if got := hostler(socket, "drain", "-o", "json"); got.code != 1 || got.stdout != "" {
		t.Errorf("hostler drain -o json that is refused = code %d, %q, want code 1 and no report", got.code, got.stdout)
	}
}

func TestAnInterruptedDrainNamesWhatItLeavesAndWhetherTheNodeIsCordoned(t *testing.T) {
	cordoned := healthy()
	cordoned.Node.Spec.Unschedulable = true
	for name, c := range map[string]struct {
		backend *backend
		want    []string
	}{
		"cordoned":      {&backend{status: cordoned, phases: phases()}, []string{"still running or stopping: shop/web-6f7d\n", "node rack3-node07.example.net stays cordoned; to open it, run `hostler uncordon`\n"}},
		"not cordoned":  {&backend{status: healthy(), phases: phases()}, []string{"node rack3-node07.example.net is not cordoned\n"}},
		"nothing left":  {&backend{status: cordoned}, []string{"no pods left to stop\n"}},
		"no more agent": {&backend{err: errors.New("gone")}, []string{"cannot list the remaining pods: gone\n", "hint: run `hostler ps`"}},
	} {
		signals := make(chan os.Signal, 1)
		c.backend.drains = signals
		got := hostlerUntil(signals, serve(t, c.backend), "drain")
		if got.code != 1 || !strings.HasPrefix(got.stderr, "drain interrupted: waiting for it to end\n") || !strings.HasSuffix(got.stderr, "hostler: interrupted\n") {
			t.Errorf("%s: hostler drain, interrupted = %+v, want 1 and that it was", name, got)
		}
		for _, want := range c.want {
			if !strings.Contains(got.stderr, want) {
				t.Errorf("%s: hostler drain, interrupted = %s, want %q", name, got.stderr, want)
			}
		}
	}
}

// The JSON output is one value, without progress.
func TestGCRunJSONIsOneReport(t *testing.T) {
	b := fullBackend()
	var got, want any
	text := hostler(serve(t, b), "gc", "run", "-o", "json").stdout
	data, err := json.Marshal(b.report)
	if err != nil {
		t.Fatal(err)
	}
	if json.Unmarshal([]byte(text), &got) != nil || json.Unmarshal(data, &want) != nil {
		t.Errorf("gc run -o json = %s, want one JSON value", text)
	}
}

// Like `hostler ps`: a plan without pods would look like an empty host.
func TestAPlanFailsWhereNoPodIsKnown(t *testing.T) {
	one := api.ShutdownPlan{Plan: plan.Plan{Message: "list pods: runtime containerd: not ready", Phases: []plan.PlannedPhase{{Name: "regular", Pods: []plan.PlannedPod{{Name: "web"}}}}}}
	none := one
	none.Phases = []plan.PlannedPhase{{Name: "regular"}}
	empty := none
	empty.Message = ""
	off := none
	off.Phases = nil
	for name, c := range map[string]struct {
		plan api.ShutdownPlan
		code int
	}{"no pod is known": {none, 1}, "some are": {one, 0}, "there is none": {empty, 0}, "nothing would wait anyway": {off, 0}} {
		socket := serve(t, &backend{phases: c.plan})
		for _, command := range [][]string{{"shutdown", "plan"}, {"drain", "--dry-run"}} {
			if got := hostler(socket, command...); got.code != c.code || !strings.Contains(got.stdout, c.plan.Message) {
				t.Errorf("%s: hostler %v = %+v, want %d and the plan", name, command, got, c.code)
			}
		}
	}
}
