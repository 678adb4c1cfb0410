package cli_test

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/fleet"
	"hostler.io/hostler/status"
)

// host returns a healthy host of a fleet, whose Lease was renewed that long ago.
func host(name, address string, renewed time.Duration, change ...func(*fleet.Member)) fleet.Member {
	s := healthy()
	s.Node.Name, s.Lease.Name, s.Lease.Spec.HolderIdentity = name, name, &name
	s.Node.Labels = map[string]string{"kubernetes.io/hostname": name, "example.com/rack": "r3"}
	s.Node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: address}}
	s.Node.Status.NodeInfo = corev1.NodeSystemInfo{
		MachineID: strings.Repeat("1", 32), SystemUUID: "aaaaaaaa-0000-4000-8000-000000000001", BootID: kernelID, Architecture: "amd64",
		KubeletVersion: "v1.2.3+hostler", ContainerRuntimeVersion: "containerd://v2.1.4", OSImage: "Debian GNU/Linux 13 (trixie)", KernelVersion: "6.12.57+deb13-amd64",
	}
	at := metav1.NewMicroTime(ago(renewed))
	s.Lease.Spec.RenewTime = &at
	m := fleet.Member{Node: s.Node, Lease: s.Lease, ReadAt: night}
	for _, c := range change {
		c(&m)
	}
	return m
}

// says changes a condition of the host.
func says(kind corev1.NodeConditionType, is corev1.ConditionStatus, since time.Duration, reason, message string) func(*fleet.Member) {
	return func(m *fleet.Member) {
		turn(&api.Status{Node: m.Node}, kind, is, since, reason, message)
	}
}

func withoutLease(m *fleet.Member) { m.Lease = nil }

func cordoned(m *fleet.Member) { m.Node.Spec.Unschedulable = true }

// fleets are example fleets, named by what is special about them.
func fleets() map[string]*backend {
	cluster := fleet.Fleet{Type: "kubernetes", Endpoint: "https://192.0.2.2:6443", Node: "rack3-node07"}
	store := fleet.Fleet{Type: "etcd", Endpoint: "https://192.0.2.3:2379", Node: "rack3-node07", LeasesEnd: true}
	of := func(f fleet.Fleet, hosts ...fleet.Member) *backend { return &backend{fleet: f, hosts: hosts} }
	const cause = "runtime containerd at unix:///run/containerd/containerd.sock is not ready: ask runtime version: runtime unavailable: dial unix /run/containerd/containerd.sock: connect: connection refused"
	down := says(corev1.NodeReady, corev1.ConditionFalse, 5*time.Minute+20*time.Second, status.ReasonRuntimeDown, cause)
	return map[string]*backend{
		"well":  of(cluster, host("rack3-node06", "192.0.2.16", 9*time.Second), host("rack3-node07", "192.0.2.17", 4*time.Second)),
		"none":  of(cluster),
		"alone": of(fleet.Fleet{Type: "embedded", Endpoint: stateFolder, Node: "rack3-node07"}, host("rack3-node07", "192.0.2.17", 4*time.Second)),
		"much-is-wrong": of(cluster,
			host("rack1-node01", "192.0.2.11", 3*time.Second, cordoned),
			host("rack1-node02", "192.0.2.12", 12*time.Second, down),
			host("rack1-node03", "192.0.2.13", 14*time.Minute, says(corev1.NodeReady, corev1.ConditionUnknown, 13*time.Minute, "NodeStatusUnknown", "Kubelet stopped posting node status.")),
			host("rack1-node04", "192.0.2.14", time.Second, says(corev1.NodeMemoryPressure, corev1.ConditionTrue, 90*time.Second, status.ReasonInsufficientMemory, "52Mi of 251.6Gi memory available, less than 100Mi"),
				says(status.ShutdownProtected, corev1.ConditionFalse, time.Hour, status.ReasonNoBus, "a shutdown will not wait for the pods to stop"), cordoned),
			host("rack2-node05", "192.0.2.15", 8*time.Second, func(m *fleet.Member) {
				m.Node.Status.NodeInfo.KubeletVersion = "v1.36.3"
				m.Node.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}, {Key: "example.com/maintenance", Value: "yes", Effect: corev1.TaintEffectNoExecute}}
			}),
			host("rack2-node06", "192.0.2.16", -2*time.Minute),
			host("rack2-node08", "192.0.2.18", 0, withoutLease),
			host("rack2-node09", "", 0, func(m *fleet.Member) { m.Node.Status = corev1.NodeStatus{} }),
			host("rack3-node07", "192.0.2.17", 4*time.Second),
		),
		"ended": of(store, host("rack3-node06", "192.0.2.16", 0, withoutLease), host("rack3-node07", "192.0.2.17", 4*time.Second)),
		"long-names": of(cluster,
			host("a-host-with-quite-a-long-name.of-a-department.of-a-company.example.net", "2001:db8:4f:1022:a0ff:fe12:3456:789a", 3*time.Second),
			host(strings.Repeat("x", 63)+"."+strings.Repeat("y", 63)+".example.net", "2001:db8:40:a::11", 40*24*time.Hour, down),
			host("short", "192.0.2.1", 3*time.Second, func(m *fleet.Member) { m.Node.Status.NodeInfo.KubeletVersion = "v1.2.3-rc.1+hostler.20261120.8f8a98c" }),
		),
	}
}

// many returns a fleet of n hosts, one in ten of them not ready.
func many(n int) *backend {
	b := &backend{fleet: fleet.Fleet{Type: "kubernetes", Endpoint: "https://192.0.2.2:6443", Node: "node-00007"}}
	for i := range n {
		m := host(fmt.Sprintf("node-%05d", i), fmt.Sprintf("10.0.%d.%d", i/250, i%250), time.Second)
		if i%10 == 3 {
			says(corev1.NodeReady, corev1.ConditionFalse, time.Minute, status.ReasonRuntimeDown, "runtime containerd is not ready")(&m)
		}
		b.hosts = append(b.hosts, m)
	}
	return b
}
