package cli_test

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/reboots"
)

// diskFull is a host whose disks are full, and whose collections free nothing.
func diskFull() api.Status {
	s := healthy()
	turn(&s, corev1.NodeDiskPressure, corev1.ConditionTrue, 25*time.Minute, status.ReasonNodeFilesystemSpace,
		"/ (ext4 on /dev/nvme0n1p2) has 1% free, threshold 10%; /var/lib/containerd (xfs on /dev/nvme1n1) has 6% free, threshold 15%")
	fs := &s.ImageGC.Filesystems[0]
	fs.AvailableBytes, fs.UsedPercent = 58<<30, 94
	s.ImageGC.Unused = 0
	s.ImageGC.LastRun.Removed, s.ImageGC.LastRun.FreedBytes = 0, 0
	s.ImageGC.LastRun.Warnings = []string{
		"image filesystem /var/lib/containerd (/dev/nvme1n1) is 94% full, inodes 1%; target 80%, inodes 85% (high thresholds 85%, inodes 90%): nothing more to remove; " +
			"images kept: 3 in-use, 3.0 GiB (container shop/web-6f7d/web (Running), container shop/db-0/postgres (Exited)); " +
			"largest folders on it: /var/lib/containerd/leftover (40.0 GiB, 12 inodes); run `du -xah /var/lib/containerd | sort -h | tail -20` to see what else fills it",
		"image filesystem /srv/images (/dev/sdb1) is 91% full, inodes 2%; target 80%, inodes 85% (high thresholds 85%, inodes 90%): two removals in a row freed nothing; images kept: none",
	}
	s.State.Persisted, s.State.Message = false, "not persisted: write /var/lib/hostler/leases.state: no space left on device"
	return s
}

// noRuntime is a host whose container runtime is missing, so that a shutdown cannot stop pods.
func noRuntime() api.Status {
	s := healthy()
	s.Runtimes = []api.Runtime{}
	turn(&s, corev1.NodeReady, corev1.ConditionFalse, 5*time.Minute+20*time.Second, status.ReasonNoRuntime,
		"no container runtime found on this host, though there is /run/containerd/containerd.sock, where none answers; check its service, since 2026-11-20T03:06:40Z")
	turn(&s, status.ShutdownProtected, corev1.ConditionFalse, 5*time.Minute+20*time.Second, status.ReasonPodsOutOfReach,
		"a shutdown waits for the pods, but hostler could not stop any: no container runtime was found")
	s.ImageGC.Filesystems, s.ImageGC.Images, s.ImageGC.Unused = nil, 0, 0
	s.ContainerGC.Containers, s.ContainerGC.Dead = 0, 0
	return s
}

// rebooted is a host after a power failure.
func rebooted() api.Status {
	s := healthy()
	const cause = "the host went down without a drain"
	s.Shutdown.Last = &journal.Record{BootID: bootID, Trigger: journal.TriggerUnknown, AsOf: ago(20 * time.Minute), Error: cause, Pods: []journal.PodRecord{
		{Namespace: "shop", Name: "web-6f7d", Outcome: journal.Left}, {Namespace: "shop", Name: "db-0", Outcome: journal.Left},
	}}
	for i := range s.Node.Status.Conditions {
		s.Node.Status.Conditions[i].LastTransitionTime = metav1.NewTime(ago(11 * time.Minute))
	}
	s.Reboots.BootedAt, s.Reboots.Unexpected = ago(12*time.Minute), 2
	s.Reboots.Last = &reboots.Reboot{BootID: kernelID, Verdict: reboots.Unexpected, Graceful: new(false), Error: cause}
	return s
}

// longWords is a host with long names and messages, and many of them.
func longWords() api.Status {
	s := runtimeDown()
	s.Node.Name = "rack3-" + strings.Repeat("very-long-name-", 14) + "node07.example.net"
	long := strings.Repeat("x", 200)
	turn(&s, corev1.NodeReady, corev1.ConditionFalse, time.Minute, status.ReasonRuntimeDown,
		"runtime containerd at unix:///run/"+long+"/containerd.sock is not ready: "+strings.Repeat("接続が拒否されました", 20)+", since 2026-11-20T03:11:00Z")
	s.Node.Status.Conditions = append(s.Node.Status.Conditions, corev1.NodeCondition{
		Type: corev1.NodeConditionType("example.net/" + strings.Repeat("Battery", 9)), Status: corev1.ConditionTrue,
		Reason: strings.Repeat("ChargeBelowThreshold", 4), Message: strings.Repeat("e\u0301", 100), LastTransitionTime: s.Node.CreationTimestamp,
	})
	s.Runtimes, s.ImageGC.Filesystems = nil, nil
	for i := range 8 {
		name := fmt.Sprintf("containerd-%d", i)
		s.Runtimes = append(s.Runtimes, api.Runtime{Name: name, Version: "v2.1.4", Ready: i > 0})
		s.ImageGC.Filesystems = append(s.ImageGC.Filesystems, gc.FilesystemStatus{Filesystem: "/srv/" + long[:i*20] + "/" + name, UsedPercent: 10 * i, Runtimes: []string{name}})
	}
	advise(&s)
	s.Shutdown.State, s.Shutdown.Reason = shutdown.Disarmed, "ログイン管理が応答しません"+long
	s.Loops = append(s.Loops, api.Loop{Health: loop.Health{Name: "events", LastError: strings.Repeat("ab ", 100) + long}})
	s.ControlPlane.Endpoint = "https://" + long + ":6443"
	s.Cordon = &maintenance.Cordon{Unschedulable: true, By: long, At: ago(time.Minute), Pending: true}
	return s
}

// paced is a host of a large fleet, whose control plane requests a longer Lease duration.
func paced() api.Status {
	s := adrift()
	s.Node.Spec.Unschedulable, s.Drift = false, nil
	s.Lease.Spec.LeaseDurationSeconds = new(int32(1200))
	s.LeasePace = &api.LeasePace{Duration: seconds(1200), By: "the control plane's setting for all hosts"}
	return s
}

// pacedWrongly is a host whose Node requests an invalid duration.
func pacedWrongly() api.Status {
	s := paced()
	s.Lease.Spec.LeaseDurationSeconds = new(int32(40))
	s.LeasePace = &api.LeasePace{Duration: seconds(40), Faults: []api.Drift{{
		Message: `annotation hostler.io/lease-duration of the Node requests a lease of "20 minutes", which is ignored: not a duration such as 2m or 90s`,
		Fix:     "`kubectl annotate node rack3-node07.example.net hostler.io/lease-duration-` takes it off",
	}}}
	return s
}
