package status_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

func TestReady(t *testing.T) {
	since := noon.Add(-3 * time.Minute)
	down := runtime.Health{Info: runtime.Info{Name: "docker", Endpoint: "unix:///run/docker.sock", Message: "connection refused"}, Since: since}
	for _, c := range []struct {
		name    string
		spoil   func(f *status.Facts)
		status  corev1.ConditionStatus
		reason  string
		message string
	}{
		{"everything works", func(f *status.Facts) {}, "True", "HostReady", "containerd 2.1.4 is ready"},
		{
			"a pod network that is not set up", func(f *status.Facts) {
				f.Runtimes[0].NetworkReady, f.Runtimes[0].NetworkMessage = false, "cni plugin not initialized"
			},
			"True", "HostReady", "containerd 2.1.4 is ready, but its pod network is not: cni plugin not initialized",
		},
		{"nothing asked yet", func(f *status.Facts) { f.RuntimesQueried, f.Runtimes = false, nil }, "Unknown", "Starting", "hostler has just started and has not contacted a container runtime yet"},
		{"no runtime", func(f *status.Facts) { f.Runtimes = nil }, "False", "NoRuntime", "no container runtime found on this host, since 2026-11-20T12:00:00Z"},
		{
			"no runtime but a socket", func(f *status.Facts) {
				f.Runtimes, f.Missing.Sockets = nil, []string{"/run/containerd/containerd.sock"}
			},
			"False", "NoRuntime", "no container runtime found on this host; found sockets /run/containerd/containerd.sock that do not answer; start their service, since 2026-11-20T12:00:00Z",
		},
		{
			"the only runtime is down", func(f *status.Facts) { f.Runtimes = []runtime.Health{down} }, "False", "RuntimeDown",
			"runtime docker at unix:///run/docker.sock is not ready: connection refused, since 2026-11-20T11:57:00Z",
		},
		{
			"one of two runtimes is down", func(f *status.Facts) { f.Runtimes = append(f.Runtimes, down) }, "False", "RuntimeDown",
			"runtime docker at unix:///run/docker.sock is not ready: connection refused, since 2026-11-20T11:57:00Z",
		},
		{
			"draining", func(f *status.Facts) {
				f.Draining = status.Draining{Active: true, Reason: "reboot asked by root", Since: since}
			},
			"False", "Draining", "node is shutting down: reboot asked by root, since 2026-11-20T11:57:00Z",
		},
		{
			"draining counts most, and the rest is reported", func(f *status.Facts) {
				f.Draining, f.Runtimes = status.Draining{Active: true}, []runtime.Health{{Info: runtime.Info{Name: "crio"}}}
			},
			"False", "Draining", "node is shutting down; runtime crio is not ready",
		},
		{
			"draining before any runtime was asked", func(f *status.Facts) {
				f.Draining, f.RuntimesQueried, f.Runtimes = status.Draining{Active: true}, false, nil
			},
			"False", "Draining", "node is shutting down",
		},
		{
			"no image filesystem named", func(f *status.Facts) { f.Filesystems = f.Filesystems[:1] },
			"False", "ImageFilesystemUnknown", "image filesystem unknown: not reported by any runtime, since 2026-11-20T12:00:00Z",
		},
		{
			"no image filesystem named yet", func(f *status.Facts) { f.Filesystems, f.Missing.Filesystems = f.Filesystems[:1], true },
			"Unknown", "Starting", "hostler has just started, and no container runtime has listed its image filesystems yet",
		},
		{
			"no image filesystem named yet, and another problem", func(f *status.Facts) {
				f.Filesystems, f.Missing.Filesystems, f.Draining = f.Filesystems[:1], true, status.Draining{Active: true}
			},
			"False", "Draining", "node is shutting down",
		},
		{
			"no image filesystem where there are no images", func(f *status.Facts) {
				f.Filesystems, f.Runtimes[0].Info = f.Filesystems[:1], runtime.Info{Name: "runc", Version: "1.1.5", Ready: true, NetworkReady: true, Imageless: true}
			},
			"True", "HostReady", "runc 1.1.5 is ready",
		},
		{
			"an image filesystem that does not answer", func(f *status.Facts) { f.Filesystems[1].Problem = "statfs /images: no answer" },
			"False", "ImageFilesystemUnknown", "image filesystem unknown: statfs /images: no answer, since 2026-11-20T12:00:00Z",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			facts := healthy()
			c.spoil(&facts)
			conditions, _ := status.Conditions(facts, policyOptions(), status.Memory{}, noon)
			got := condition(t, conditions, corev1.NodeReady)
			if got.Status != c.status || got.Reason != c.reason || got.Message != c.message {
				t.Errorf("Ready = %s %s %q, want %s %s %q", got.Status, got.Reason, got.Message, c.status, c.reason, c.message)
			}
		})
	}
}

func TestReadySaysSinceWhenAFaultIsSeen(t *testing.T) {
	bad, well := healthy(), healthy()
	bad.Filesystems = bad.Filesystems[:1]
	check := func(memory status.Memory, facts status.Facts, at time.Time, want string) ([]corev1.NodeCondition, status.Memory) {
		t.Helper()
		conditions, next := status.Conditions(facts, policyOptions(), memory, at)
		message := condition(t, conditions, corev1.NodeReady).Message
		if got := strings.Contains(message, ", since "); got != (want != "") || !strings.HasSuffix(message, want) {
			t.Errorf("at %s Ready says %q, want %q at its end", at, message, want)
		}
		return conditions, next
	}
	_, memory := check(status.Memory{}, well, noon, "")
	_, memory = check(memory, bad, noon.Add(time.Minute), ", since 2026-11-20T12:01:00Z")
	before, memory := check(memory, bad, noon.Add(time.Hour), ", since 2026-11-20T12:01:00Z")
	check(status.Remember(before), bad, noon.Add(2*time.Hour), ", since 2026-11-20T12:01:00Z")
	_, memory = check(memory, well, noon.Add(3*time.Hour), "")
	check(memory, bad, noon.Add(4*time.Hour), ", since 2026-11-20T16:00:00Z")
}

func TestReadyIsUnknownAfterAHostWasMarkedLost(t *testing.T) {
	lost := []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status."}}
	facts := healthy()
	facts.RuntimesQueried, facts.Runtimes = false, nil
	conditions, _ := status.Conditions(facts, policyOptions(), status.Remember(lost), noon)
	if got := condition(t, conditions, corev1.NodeReady); got.Status != corev1.ConditionUnknown || got.Reason != status.ReasonStarting {
		t.Errorf("Ready = %+v, want that the agent has just started, and not what a cluster said of it", got)
	}
}

func TestReadyOutlivesARestartOfTheAgent(t *testing.T) {
	facts := healthy()
	before, _ := status.Conditions(facts, policyOptions(), status.Memory{}, noon)
	facts.RuntimesQueried, facts.Runtimes = false, nil
	after, _ := status.Conditions(facts, policyOptions(), status.Remember(before), noon.Add(time.Minute))
	want := condition(t, before, corev1.NodeReady)
	got := condition(t, after, corev1.NodeReady)
	if got.LastHeartbeatTime.Time != noon.Add(time.Minute) {
		t.Errorf("Ready has heartbeat %s, want now", got.LastHeartbeatTime)
	}
	got.LastHeartbeatTime = want.LastHeartbeatTime
	if got != want {
		t.Errorf("Ready after a restart = %+v, want %+v", got, want)
	}
}

func TestNetworkUnavailable(t *testing.T) {
	off := address("10.0.0.5", 24, "eth0")
	off.Up, off.Carrier = false, false
	unplugged := address("10.0.0.5", 24, "eth0")
	unplugged.Carrier = false
	v6 := address("2001:db8::5", 64, "eth1")
	v6Off := v6
	v6Off.Up, v6Off.Carrier = false, false
	with := func(change func(*probe.Network)) probe.Network {
		n := network(address("10.0.0.5", 24, "eth0"))
		change(&n)
		return n
	}
	for _, c := range []struct {
		name     string
		network  probe.Network
		internal []string
		status   corev1.ConditionStatus
		reason   string
		message  string
	}{
		{"an address and a way out", network(address("10.0.0.5", 24, "eth0")), nil, "False", "NetworkAvailable", "10.0.0.5 on eth0"},
		{
			"no way out",
			probe.Network{Addresses: []probe.Address{address("10.0.0.5", 24, "eth0")}},
			nil,
			"False", "NetworkAvailable", "10.0.0.5 on eth0; no default route",
		},
		{
			"nothing but loopback",
			probe.Network{Addresses: []probe.Address{address("127.0.0.1", 8, "lo")}},
			nil, "True", "NoAddress",
			"no interface has an address that other hosts can reach; configure the network, or set node.address.internal",
		},
		{
			"an address that is configured but not there", network(address("10.0.0.5", 24, "eth0")),
			[]string{"10.9.0.0/16"},
			"True", "AddressMissing",
			"node.address.internal: no interface has an address for 10.9.0.0/16",
		},
		{
			"one of two configured ones is there", network(address("10.0.0.5", 24, "eth0")),
			[]string{"eth0", "2001:db8::5"},
			"False", "NetworkAvailable",
			"10.0.0.5 on eth0; node.address.internal: no interface has an address for 2001:db8::5",
		},
		{"the cable pulled", network(unplugged), nil, "True", "NoCarrier", "10.0.0.5 on eth0, which has no carrier; check the cable, the switch or the bond"},
		{"switched off", network(off), nil, "True", "NoCarrier", "10.0.0.5 on eth0, which is down; set it up with: ip link set eth0 up"},
		{"both families' interfaces switched off", network(off, v6Off), nil, "True", "NoCarrier", "10.0.0.5 on eth0, which is down; 2001:db8::5 on eth1, which is down; set it up with: ip link set eth0 up && ip link set eth1 up"},
		{"one switched off, the other unplugged", network(unplugged, v6Off), nil, "True", "NoCarrier", "10.0.0.5 on eth0, which has no carrier; 2001:db8::5 on eth1, which is down; set it up with: ip link set eth1 up; for the others, check the cable, the switch or the bond"},
		{"one family's link is down", network(unplugged, v6), nil, "False", "NetworkAvailable", "2001:db8::5 on eth1; 10.0.0.5 on eth0, which has no carrier"},
		{
			"no way to the control plane", with(func(n *probe.Network) {
				n.ControlPlane = []probe.TargetRoute{noRouteTo("10.1.2.3", "network is unreachable"), noRouteTo("fd00::3", "network is unreachable")}
			}),
			nil, "False", "NetworkAvailable", "10.0.0.5 on eth0; no route to the control plane at 10.1.2.3: network is unreachable",
		},
		{
			"a way to one of the control plane's addresses", with(func(n *probe.Network) {
				n.ControlPlane = []probe.TargetRoute{noRouteTo("fd00::3", "network is unreachable"), to("10.1.2.3", "10.0.0.5", "eth0")}
			}),
			nil, "False", "NetworkAvailable", "10.0.0.5 on eth0",
		},
		{"unreadable", probe.Network{Problem: "list network interfaces: no"}, nil, "Unknown", "NotMeasured", "list network interfaces: no"},
	} {
		t.Run(c.name, func(t *testing.T) {
			facts, o := healthy(), policyOptions()
			facts.Network, o.Addresses.Internal = c.network, c.internal
			conditions, _ := status.Conditions(facts, o, status.Memory{}, noon)
			got := condition(t, conditions, corev1.NodeNetworkUnavailable)
			if got.Status != c.status || got.Reason != c.reason || got.Message != c.message {
				t.Errorf("NetworkUnavailable = %s %s %q, want %s %s %q", got.Status, got.Reason, got.Message, c.status, c.reason, c.message)
			}
		})
	}
}
