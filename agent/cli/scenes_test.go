package cli_test

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/conditions"
	"hostler.io/hostler/status/probe"
	"hostler.io/hostler/status/reboots"
)

func delay(n int) plan.Delay { return plan.Delay{Duration: time.Duration(n) * time.Second} }

func seconds(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Second} }

const (
	kernelID    = "9b0a4f6e-21d7-4c55-8f0e-5d6f1c3a7b42"
	bootID      = "2f1c6c0e-6f0a-4b0e-9d53-3b0f5a2f0c11@1795140000"
	stateFolder = "/var/lib/hostler"
)

// scenes are example hosts, mostly with problems.
func scenes() map[string]api.Status {
	return map[string]api.Status{
		"healthy":          healthy(),
		"on-request":       onRequest(),
		"beside-docker":    besideDocker(),
		"address-missing":  addressMissing(),
		"not-ready":        runtimeDown(),
		"draining":         draining(),
		"disarmed":         disarmed(),
		"beside-a-kubelet": besideKubelet(),
		"starting":         starting(),
		"much-is-wrong":    muchIsWrong(),
		"switched-off":     switchedOff(),
		"overridden":       overriddenDelay(),
		"adrift":           adrift(),
		"waiting":          waiting(),
		"left":             left(),
		"not-accepted":     notAccepted(),
		"overdue":          expiredLease(),
		"unavailable":      unavailable(),
		"contended":        contended(),
		"about-to-drain":   aboutToDrain(),
		"reboot-waits":     rebootsAt(controlplane.RebootWaiting, "all slots of the group are held: rack3-node02 since 2026-11-20T03:05:00Z"),
		"reboot-stuck":     rebootStuck(),
		"reboot-ignored":   rebootIgnored(),
		"reboot-broken":    rebootBroken(),
		"reboot-reasons":   rebootReasons(),
		"reboot-left-pods": rebootLeftPods(),
		"reboot-verifies":  rebootsAt(controlplane.RebootVerifying, "containers that ran before the reboot do not run yet: db"),
		"drains-itself":    drainsItself(),
		"drained-itself":   drainedItself(),
		"kept-its-pods":    keptItsPods(),
		"drained-before":   drainedBefore(),
		"disk-full":        diskFull(),
		"no-runtime":       noRuntime(),
		"rebooted":         rebooted(),
		"long-words":       longWords(),
		"own-conditions":   ownConditions(),
		"paced":            paced(),
		"paced-wrongly":    pacedWrongly(),
		"served":           served(night.Add(60*24*time.Hour), ""),
		"served-no-more":   served(ago(3*time.Hour), "api.tls.certificate: /etc/hostler/tls/host.crt: the certificate has ended on 2026-11-20 09:00 UTC"),
	}
}

func healthy() api.Status {
	lists := func(cpu, memory, disk string) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
			corev1.ResourceEphemeralStorage: resource.MustParse(disk), corev1.ResourcePods: resource.MustParse("110"),
		}
	}
	renewed, duration, holder := metav1.NewMicroTime(ago(4*time.Second)), int32(40), "rack3-node07.example.net"
	return api.Status{
		Version: "1.2.3",
		Node: &corev1.Node{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{Name: holder, UID: "8d0f9f3e-30b1-4d39-8f53-1a7b8f0b7c11", CreationTimestamp: metav1.NewTime(ago(90 * 24 * time.Hour))},
			Status: corev1.NodeStatus{
				Capacity:    lists("64", "263836520Ki", "1875Gi"),
				Allocatable: lists("63500m", "261739368Ki", "1687Gi"),
				Addresses: []corev1.NodeAddress{
					{Type: corev1.NodeInternalIP, Address: "192.0.2.17"},
					{Type: corev1.NodeInternalIP, Address: "2001:db8:40:a::11"},
					{Type: corev1.NodeHostName, Address: holder},
				},
				Conditions: []corev1.NodeCondition{
					good(corev1.NodeMemoryPressure, status.ReasonSufficientMemory, "198Gi of 251.6Gi memory available"),
					good(corev1.NodeDiskPressure, status.ReasonSufficientDisk, "/ (ext4 on /dev/nvme0n1p2) has 61% free"),
					good(corev1.NodePIDPressure, status.ReasonSufficientPIDs, "99% of 4194304 PIDs available (kernel.pid_max)"),
					good(corev1.NodeNetworkUnavailable, status.ReasonNetworkAvailable, "192.0.2.17 on bond0"),
					good(status.ShutdownProtected, status.ReasonArmed, "a shutdown waits for the pods to stop: shutdown lock held"),
					good(corev1.NodeReady, status.ReasonHostReady, "containerd v2.1.4 is ready"),
				},
			},
		},
		Lease: &coordinationv1.Lease{
			TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			ObjectMeta: metav1.ObjectMeta{Name: holder, Namespace: "kube-node-lease"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed, LeaseDurationSeconds: &duration},
		},
		ControlPlane: api.ControlPlane{Type: "embedded", Endpoint: stateFolder, Connected: true},
		Runtimes:     []api.Runtime{{Name: "containerd", Version: "v2.1.4", Endpoint: "unix:///run/containerd/containerd.sock", Ready: true}},
		Owners:       owners(owner.Owner{Name: owner.Hostler, Evidence: "no other owner found"}, "node", "lease", "shutdown", "imageGC", "containerGC"),
		Topology:     status.Topology{CPUs: 64, MemoryBytes: 263836520 << 10, SwapBytes: 8 << 30, CgroupVersion: 2},
		Shutdown: shutdown.Status{
			State: shutdown.Armed, Reason: "shutdown lock held", GracePeriod: seconds(30), GracePeriodCriticalPods: seconds(10),
			InhibitDelayMax: delay(35), InhibitDelaySource: "/run/systemd/logind.conf.d/zz-hostler.conf",
			Last: &journal.Record{
				BootID: bootID, Trigger: journal.TriggerShutdown, Kind: "reboot", Graceful: true,
				StartedAt: ago(72 * time.Hour), FinishedAt: ago(72*time.Hour - 12345*time.Millisecond),
				Pods: []journal.PodRecord{
					{Runtime: "containerd", ID: "a", Namespace: "shop", Name: "web-6f7d", Phase: "regular", Grace: seconds(20), StartedAt: ago(72 * time.Hour), FinishedAt: ago(72*time.Hour - 2*time.Second), Outcome: journal.Stopped, ExitCodes: map[string]int32{"web": 143}},
					{Runtime: "containerd", ID: "b", Namespace: "shop", Name: "db-0", Phase: "critical", Grace: seconds(10), StartedAt: ago(72*time.Hour - 2*time.Second), FinishedAt: ago(72*time.Hour - 12*time.Second), Outcome: journal.Killed, Error: "killed at the end of its grace", Stuck: []string{"postgres"}},
				},
			},
		},
		ImageGC: api.ImageGC{
			Filesystems: []gc.FilesystemStatus{{
				Filesystem: "/var/lib/containerd", Mountpoint: "/var/lib/containerd", Device: "/dev/nvme1n1", Runtimes: []string{"containerd"},
				CapacityBytes: 960 << 30, AvailableBytes: 278 << 30, UsedPercent: 72, InodesUsedPercent: 4,
			}},
			HighThresholdPercent: 85, LowThresholdPercent: 80, Images: 143, Unused: 61,
			LastRun: &runs.Summary{StartedAt: ago(4 * time.Minute), Duration: seconds(2), RequestedBytes: 5 << 30, FreedBytes: 6 << 30, Removed: 9, Errors: []string{}},
		},
		ContainerGC: api.ContainerGC{Containers: 57, Dead: 3, LastRun: &runs.Summary{StartedAt: ago(30 * time.Second), Errors: []string{}}},
		Loops:       loops("lease", "status", "image-gc", "container-gc", "last-used", "shutdown-guard"),
		State:       api.State{Path: "/var/lib/hostler", Persisted: true},
		Addresses: []status.Choice{
			{Type: corev1.NodeInternalIP, Address: "192.0.2.17", Interface: "bond0", Reason: "source of the default route via bond0"},
			{Type: corev1.NodeInternalIP, Address: "2001:db8:40:a::11", Interface: "bond0", Reason: "source of the default route via bond0"},
			{Type: corev1.NodeHostName, Address: holder, Reason: "name of the Node"},
		},
		Reboots: reboots.Status{
			BootID: kernelID, BootedAt: ago(72*time.Hour - time.Minute),
			Counts: reboots.Counts{Since: ago(80 * 24 * time.Hour), Expected: 14},
			Last: &reboots.Reboot{
				BootID: kernelID, Verdict: reboots.Expected, Trigger: journal.TriggerShutdown, Kind: "reboot", Graceful: new(true),
				Drain: new(metav1.Duration{Duration: 12345 * time.Millisecond}), Gap: new(seconds(48)),
			},
		},

		CustomConditions: api.CustomConditions{Directory: conditions.DefaultFolder, Checks: []conditions.Check{}, Faults: []conditions.Fault{}},
	}
}

// good is a condition of a host that has been healthy for three days.
func good(kind corev1.NodeConditionType, reason, message string) corev1.NodeCondition {
	c := corev1.NodeCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		LastHeartbeatTime: metav1.NewTime(ago(4 * time.Second)), LastTransitionTime: metav1.NewTime(ago(72 * time.Hour)),
	}
	if !(status.Transition{New: c}).Good() {
		c.Status = corev1.ConditionFalse
	}
	return c
}

// turn changes a condition of the scene.
func turn(s *api.Status, kind corev1.NodeConditionType, to corev1.ConditionStatus, since time.Duration, reason, message string) {
	for i := range s.Node.Status.Conditions {
		if c := &s.Node.Status.Conditions[i]; c.Type == kind {
			c.Status, c.Reason, c.Message, c.LastTransitionTime = to, reason, message, metav1.NewTime(ago(since))
		}
	}
	advise(s)
}

// advise sets the next steps for the conditions of the scene, as the agent does.
func advise(s *api.Status) {
	facts := status.Facts{Filesystems: []status.Filesystem{
		{Role: status.RoleNode, Filesystem: probe.Filesystem{Mountpoint: "/", CapacityBytes: 1}},
		{Role: status.RoleImage, Filesystem: probe.Filesystem{Mountpoint: "/var/lib/containerd", Type: "xfs", Device: "/dev/nvme1n1", CapacityBytes: 1}},
	}}
	for _, r := range s.Runtimes {
		facts.Runtimes = append(facts.Runtimes, runtime.Health{Info: runtime.Info{Name: r.Name, Ready: r.Ready}})
	}
	s.NextSteps = status.NextSteps(s.Node.Status.Conditions, facts)
}

func owners(who owner.Owner, jobs ...string) map[string]owner.Owner {
	m := map[string]owner.Owner{}
	for _, job := range jobs {
		m[job] = who
	}
	return m
}

func loops(names ...string) []api.Loop {
	var list []api.Loop
	for _, name := range names {
		success := ago(3 * time.Second)
		list = append(list, api.Loop{Health: loop.Health{Name: name, Healthy: true, LastSuccess: &success}})
	}
	return list
}

func fail(s *api.Status, loop, text string, cause api.Cause, runtimes ...string) {
	for i := range s.Loops {
		if s.Loops[i].Name == loop {
			s.Loops[i].Healthy, s.Loops[i].LastError, s.Loops[i].Cause, s.Loops[i].Runtimes = false, text, cause, runtimes
		}
	}
}

// onRequest is a host with Docker, Podman and runc, from which nothing is removed automatically.
// runc has no images.
func onRequest() api.Status {
	s := healthy()
	s.Runtimes = []api.Runtime{
		{Name: "docker", Version: "26.1.5", Endpoint: "unix:///run/docker.sock", Ready: true},
		{Name: "podman", Version: "5.4.2", Endpoint: "unix:///run/podman/podman.sock", Ready: true},
		{Name: "runc", Version: "1.1.15", Endpoint: "/run/runc", Ready: true},
	}
	s.ImageGC.LastRun = nil
	s.ImageGC.Filesystems[0].Filesystem, s.ImageGC.Filesystems[0].Runtimes = "/var/lib", []string{"docker", "podman"}
	s.Shutdown.Restarts = []journal.Restart{
		{Runtime: "docker", Pod: "compose:shop", ID: "a", Name: "shop-db-1", Outcome: journal.Restarted},
		{Runtime: "docker", Pod: "compose:shop", ID: "b", Name: "shop-web-1", Reason: "waits for mnt-nas.mount (/mnt/nas)"},
		{Runtime: "podman", Pod: "e", ID: "e", Name: "quadlet", ByUnit: true},
		{Runtime: "docker", Pod: "c", ID: "c", Name: "gpu", Outcome: journal.RestartFailed, Reason: `start container "gpu": no such device`},
		{Runtime: "docker", Pod: "d", ID: "d", Name: "job", Outcome: journal.LeftStopped, Reason: `its restart policy is "no"`},
	}
	s.ImageGC.OnRequest = &api.OnRequest{Runtimes: []string{"docker", "podman"}, Unused: 61, Bytes: 19 << 30, Setting: "imageGC: {enabled: true}"}
	s.ContainerGC.OnRequest = &api.OnRequest{Runtimes: []string{"docker", "podman", "runc"}, Unused: 1, Setting: "containerGC: {enabled: true, maximumAge: 168h}"}
	return s
}

// besideDocker is a host with containerd, which is collected automatically, and Docker.
func besideDocker() api.Status {
	s := healthy()
	s.Runtimes = append(s.Runtimes, api.Runtime{Name: "docker", Version: "26.1.5", Endpoint: "unix:///run/docker.sock", Ready: true})
	s.ImageGC.Filesystems = append(s.ImageGC.Filesystems, gc.FilesystemStatus{Filesystem: "/var/lib/docker", Runtimes: []string{"docker"}, UsedPercent: 91})
	s.ImageGC.OnRequest = &api.OnRequest{Runtimes: []string{"docker"}, Unused: 61, Bytes: 19 << 30, Setting: "imageGC: {enabled: true}"}
	return s
}

func addressMissing() api.Status {
	s := healthy()
	s.AddressMissing = "node.address.internal: no interface has an address for 2001:db8::5"
	return s
}

func runtimeDown() api.Status {
	s := healthy()
	const cause = "runtime unavailable: dial unix /run/containerd/containerd.sock: connect: connection refused"
	s.Runtimes[0].Ready, s.Runtimes[0].Message = false, "ask runtime version: "+cause
	turn(&s, corev1.NodeReady, corev1.ConditionFalse, 5*time.Minute+20*time.Second, status.ReasonRuntimeDown,
		"runtime containerd at unix:///run/containerd/containerd.sock is not ready: ask runtime version: "+cause+", since 2026-11-20T03:06:40Z")
	fail(&s, "image-gc", "runtime containerd: list images: "+cause, "", "containerd")
	fail(&s, "container-gc", "runtime containerd: list containers: "+cause, "", "containerd")
	fail(&s, "last-used", "runtime containerd: list images: "+cause, "", "containerd")
	s.ImageGC.Filesystems, s.ImageGC.Images, s.ImageGC.Unused = nil, 0, 0
	s.ContainerGC.Containers, s.ContainerGC.Dead = 0, 0
	return s
}

func draining() api.Status {
	s := healthy()
	turn(&s, corev1.NodeReady, corev1.ConditionFalse, 6*time.Second, status.ReasonDraining,
		"node is shutting down: a shutdown (reboot) was announced, since 2026-11-20T03:11:54Z")
	turn(&s, status.ShutdownProtected, corev1.ConditionTrue, 72*time.Hour, status.ReasonShuttingDown, "a shutdown is waiting for the pods to stop")
	s.Shutdown.State, s.Shutdown.Reason = shutdown.Draining, "a shutdown (reboot) was announced"
	s.Shutdown.Deadline = night.Add(26 * time.Second)
	s.Shutdown.Current = &journal.Record{BootID: bootID, Trigger: journal.TriggerShutdown, Kind: "reboot", StartedAt: ago(6 * time.Second), Pods: []journal.PodRecord{
		{Namespace: "shop", Name: "web-6f7d", Outcome: journal.Stopped},
		{Namespace: "shop", Name: "web-77aa", Outcome: journal.Killed},
		{Namespace: "shop", Name: "api-0"},
		{Namespace: "shop", Name: "db-0"},
	}}
	return s
}

func disarmed() api.Status {
	s := healthy()
	const cause = "watch logind: connect to unix:path=/run/dbus/system_bus_socket: cannot reach the system bus: dial unix /run/dbus/system_bus_socket: connect: no such file or directory"
	s.Shutdown.State, s.Shutdown.Reason, s.Shutdown.InhibitDelayMax = shutdown.Disarmed, cause, delay(0)
	turn(&s, status.ShutdownProtected, corev1.ConditionFalse, 40*time.Minute, status.ReasonNoBus, "a shutdown will not wait for the pods to stop: "+cause)
	fail(&s, "shutdown-guard", cause, api.CauseShutdown)
	return s
}

// overridden is why logind grants too little.
const overridden = "logind grants only 8s of the 36s needed, because /etc/systemd/logind.conf.d/zzz.conf sets InhibitDelayMaxSec= to 8s and is read after /run/systemd/logind.conf.d/zz-hostler.conf; raise it there to 36s or more, or remove it"

func overriddenDelay() api.Status {
	s := healthy()
	s.Shutdown.Reason = "shutdown lock held, but " + overridden
	s.Shutdown.InhibitDelayMax, s.Shutdown.InhibitDelaySource = delay(8), "/etc/systemd/logind.conf.d/zzz.conf"
	s.Shutdown.InhibitDelayNeeded, s.Shutdown.InhibitDelayShortage = seconds(36), overridden
	turn(&s, status.ShutdownProtected, corev1.ConditionFalse, 5*time.Minute, status.ReasonDelayTooShort,
		"a shutdown shortens the pods' phases: "+overridden)
	return s
}

func besideKubelet() api.Status {
	s := healthy()
	const evidence = "process kubelet, pid 812"
	s.Owners = owners(owner.Owner{Name: owner.Kubelet, Evidence: evidence}, "node", "lease", "imageGC", "containerGC")
	s.Owners["shutdown"] = owner.Owner{Name: owner.Kubelet, Evidence: `delay lock "Kubelet needs time to handle node shutdown" of pid 812`}
	s.ControlPlane.Connected = false // the Lease is from before the kubelet
	s.ImageGC.LastRun, s.ContainerGC.LastRun = nil, nil
	s.Shutdown.State, s.Shutdown.Reason = shutdown.Delegated, "kubelet: "+s.Owners["shutdown"].Evidence
	turn(&s, status.ShutdownProtected, corev1.ConditionTrue, time.Hour, status.ReasonDelegated, "another program on this host delays a shutdown for the pods: "+s.Shutdown.Reason)
	return s
}

func starting() api.Status {
	s := healthy()
	s.Node, s.Lease, s.Runtimes, s.Topology, s.Addresses = nil, nil, nil, status.Topology{}, nil
	s.ControlPlane.Connected = false
	s.Shutdown.State, s.Shutdown.Reason, s.Shutdown.InhibitDelayMax, s.Shutdown.Last = shutdown.Disarmed, "connecting to logind", delay(0), nil
	s.ImageGC.Filesystems, s.ImageGC.Images, s.ImageGC.Unused, s.ImageGC.LastRun = nil, 0, 0, nil
	s.ContainerGC = api.ContainerGC{}
	for i := range s.Loops {
		s.Loops[i].LastSuccess = nil
	}
	return s
}

func muchIsWrong() api.Status {
	s := healthy()
	turn(&s, corev1.NodeMemoryPressure, corev1.ConditionTrue, 90*time.Second, status.ReasonInsufficientMemory, "52Mi of 251.6Gi memory available, less than 100Mi")
	turn(&s, corev1.NodeNetworkUnavailable, corev1.ConditionUnknown, time.Minute, status.ReasonNotMeasured, "list addresses: netlink: too many open files")
	s.Node.Spec.Unschedulable = true
	s.Cordon = &maintenance.Cordon{Unschedulable: true, By: "alice", At: ago(10 * time.Minute)}
	s.Shutdown.ManualDrain = &journal.Record{Trigger: journal.TriggerManual, StartedAt: ago(5 * time.Second), Pods: []journal.PodRecord{{Name: "web-6f7d", Outcome: journal.Stopped}, {Name: "db-0"}, {Name: "dns", Priority: 2_000_000_000}}} // dns is critical and keeps running
	s.ControlPlane.Connected, s.ControlPlane.LastError = false, "update status of node \"rack3-node07.example.net\": disk full"
	s.ControlPlane.Causes = []api.Cause{api.CauseNode}
	fail(&s, "status", s.ControlPlane.LastError, api.CauseNode)
	fail(&s, "image-gc", "panic: index out of range [3] with length 3\ngoroutine 12 [running]:\nmain.main()", "")
	s.Loops[2].Restarts = 4
	s.State.Message = "an unusable state file was set aside as /var/lib/hostler/nodes.state.corrupt-20261120T031100Z"
	s.ImageGC.Filesystems[0].Message, s.ImageGC.Filesystems[0].UsedPercent = "usage unknown: statfs /var/lib/containerd: input/output error", 0
	return s
}

func switchedOff() api.Status {
	s := healthy()
	off := owner.Owner{Name: owner.None, Evidence: "switched off in the configuration"}
	s.Owners["shutdown"], s.Owners["containerGC"] = off, off
	s.Shutdown = shutdown.Status{State: shutdown.Disarmed, Reason: "switched off in the configuration"}
	turn(&s, status.ShutdownProtected, corev1.ConditionFalse, 72*time.Hour, status.ReasonSwitchedOff, "a shutdown will not wait for the pods to stop: switched off in the configuration")
	s.ContainerGC.LastRun = nil
	return s
}

// ownConditions is a host with custom checks.
func ownConditions() api.Status {
	s := besideKubelet()
	add := func(kind corev1.NodeConditionType, is corev1.ConditionStatus, reason, message string) {
		s.Node.Status.Conditions = append(s.Node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: is, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(ago(time.Hour))})
		advise(&s)
	}
	raid := conditions.Fault{Path: "/etc/hostler/conditions.d/raid", Problem: "is not run because /etc/hostler/conditions.d/raid is writable by users other than root (-rwxrwxrwx)", Fix: "chmod go-w"}
	add("hostler.io/DiskFailing", corev1.ConditionTrue, "DiskFailing", "/dev/sda says that it is failing")
	add("hostler.io/Short", corev1.ConditionTrue, "Short", "it") // as in other messages
	add("hostler.io/RaidDegraded", corev1.ConditionUnknown, status.ReasonCheckNotRun, raid.String()+"; "+raid.Fix)
	add("example.com/Cooling", corev1.ConditionFalse, status.ReasonCheckPassed, "20 °C")
	s.CustomConditions = api.CustomConditions{
		Directory: "/etc/hostler/conditions.d",
		Checks: []conditions.Check{
			{Path: "/etc/hostler/conditions.d/cooling", Type: "example.com/Cooling", Answer: status.Passed, Message: "20 °C", LocalOnly: true},
			{Path: "/etc/hostler/conditions.d/disk-failing", Type: "hostler.io/DiskFailing", Answer: status.Problem, Message: "/dev/sda says that it is failing"},
			{Path: "/etc/hostler/conditions.d/kernel-problem", Type: "hostler.io/KernelProblem", Temporary: true, Answer: status.Problem, Message: "EXT4-fs error (device sda1)"},
			{Path: "/etc/hostler/conditions.d/net", Type: "hostler.io/Net", Temporary: true, Answer: status.TimedOut, Message: "the check did not end within 10s"},
			{Path: raid.Path, Type: "hostler.io/RaidDegraded", Answer: status.NotRun, Message: raid.String() + "; " + raid.Fix, Faulty: true, Fault: &raid},
		},
		Faults: []conditions.Fault{
			raid,
			{Path: "/etc/hostler/conditions.d/smart", Line: 4, Problem: "intervall: unknown key", Fix: "remove or correct it"},
		},
	}
	return s
}

// adrift is a host on a control plane with other writers.
func adrift() api.Status {
	s := healthy()
	s.ControlPlane.Type, s.ControlPlane.Endpoint = "kubernetes", "https://192.0.2.2:6443"
	s.Node.Spec.Unschedulable = true
	s.Drift = []api.Drift{{
		Message: "the Node lacks the configured taints gpu=a:NoSchedule, and a node may not change its own taints",
		Fix:     "kubectl taint nodes rack3-node07.example.net gpu=a:NoSchedule",
	}}
	return s
}

// waiting is a host whose Node another client must create.
func waiting() api.Status {
	s := adrift()
	s.Node.Spec.Unschedulable, s.Lease, s.Drift = false, nil, nil
	s.ControlPlane.Paused = "no Node rack3-node07.example.net exists yet: node.register is false, so another client has to create it"
	return s
}

// left is a host that was deregistered.
func left() api.Status {
	s := waiting()
	s.ControlPlane.Paused = "alice deregistered the Node on 2026-11-20 03:10 UTC with `hostler leave`; this persists across restarts; run `hostler leave --undo` to register it again"
	return s
}

// notAccepted is a host whose certificate the cluster no longer accepts.
func notAccepted() api.Status {
	s := expiredLease()
	refused := "control plane unavailable: the server rejected this node's certificate: Unauthorized: see `hostler doctor`"
	s.ControlPlane.LastError = "renew lease \"rack3-node07.example.net\": " + refused
	s.ControlPlane.Overdue = "lease not renewed for 1m20s, valid for 40s only: " + s.ControlPlane.LastError
	s.ControlPlane.Causes, s.ControlPlane.OverdueCause, s.ControlPlane.CredentialsCause = []api.Cause{api.CauseRefused}, api.CauseRefused, api.CauseApproval
	fail(&s, "lease", s.ControlPlane.LastError, api.CauseRefused)
	s.ControlPlane.Credentials = "the server rejected this node's certificate, valid until 2027-05-01T09:00:00Z; requesting another with the bootstrap kubeconfig: certificate signing request node-csr-1f: not approved yet: check it with `kubectl get csr node-csr-1f`, then run `kubectl certificate approve node-csr-1f`"
	return s
}

// expiredLease is a host whose control plane is unreachable.
func expiredLease() api.Status {
	s := adrift()
	s.Node.Spec.Unschedulable, s.Drift = false, nil
	renewed := metav1.NewMicroTime(ago(80 * time.Second))
	s.Lease.Spec.RenewTime = &renewed
	failure := "renew lease \"rack3-node07.example.net\": control plane unavailable: connection refused"
	s.ControlPlane.Connected, s.ControlPlane.LastError = false, failure
	s.ControlPlane.Overdue = "lease not renewed for 1m20s, valid for 40s only: " + failure
	s.ControlPlane.Causes, s.ControlPlane.OverdueCause = []api.Cause{api.CauseLease}, api.CauseLease
	fail(&s, "lease", failure, api.CauseLease)
	return s
}

// unavailable is a host whose control plane has just become unreachable.
func unavailable() api.Status {
	s := adrift()
	s.Drift = nil
	const cause = "control plane unavailable: connect to https://192.0.2.3:2379: connection refused"
	s.ControlPlane.Connected, s.ControlPlane.LastError, s.ControlPlane.Causes = false, "get nodes/rack3-node07.example.net: "+cause, []api.Cause{api.CauseUnreachable}
	for _, loop := range []string{"lease", "status"} {
		fail(&s, loop, "get leases/rack3-node07.example.net: "+cause, api.CauseUnreachable)
	}
	return s
}

// contended is a host whose tasks wait for memory. Its kernel does not count that for disks, and it
// has less memory than is reserved.
func contended() api.Status {
	s := healthy()
	add := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) {
		s.Node.Status.Conditions = slices.Insert(s.Node.Status.Conditions, 3, corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(ago(3 * time.Minute)),
		})
		advise(&s)
	}
	add(status.IOContention, corev1.ConditionUnknown, status.ReasonPSIUnavailable, "the kernel provides no pressure stall information (/proc/pressure/io); boot it with psi=1 on its command line")
	add(status.MemoryContention, corev1.ConditionTrue, status.ReasonStallsAboveThreshold, "memory stalled full 34% of the last minute, threshold 20%")
	add(status.CPUContention, corev1.ConditionFalse, status.ReasonStallsBelowThreshold, "CPU stalled some 12.4% of the last 5 min")
	s.Shortage = "node.reserved.memory: 300Gi reserved, 100Mi kept free (pressure.memoryAvailable), of 263836520Ki there is; reserve less, or lower the threshold"
	s.Topology.SwapBytes, s.Topology.CgroupVersion = 0, 1
	s.Topology.HugePages = []probe.HugePages{{PageSizeBytes: 2 << 20, Pages: 512}, {PageSizeBytes: 1 << 30, Pages: 7}}
	s.Topology.NUMANodes = []probe.NUMANode{{ID: 0}, {ID: 1}}
	return s
}

// served is a host whose API is served over the network, with a certificate that expires.
func served(ends time.Time, message string) api.Status {
	s := healthy()
	s.Network = &api.Network{Listen: "192.0.2.7:9755", Metrics: "192.0.2.7:9754", Certificate: "/etc/hostler/tls/host.crt", Ends: &ends, Message: message}
	return s
}
