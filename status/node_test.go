package status_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	semver "k8s.io/apimachinery/pkg/util/version"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

func TestNodeName(t *testing.T) {
	for _, c := range []struct{ name, configured, host, want, message string }{
		{"the host's name, trimmed and lower-cased", "", " Web-01.Example.ORG\n", "web-01.example.org", ""},
		{"the configured one overrides", "db", "web", "db", ""},
		{"the configured one is taken as it is", "DB", "web", "", "node.name"},
		{"an underscore", "", "web_01", "", "hostnamectl set-hostname"},
		{"no host name", "", "", "", "set node.name"},
		{"what every host without a name is called", "", "localhost", "", "without a name; name the host"},
		{"the same in a domain", "", "LocalHost.localdomain.", "", "without a name"},
		{"a name for this host on every host", "", "me.localhost", "", "without a name"},
		{"a name that begins like it", "", "localhost-7", "localhost-7", ""},
		{"localhost, as somebody wants it", "localhost", "web", "localhost", ""},
		{"too long for a label", strings.Repeat("a", 64), "", "", "63"},
		{"a host name that is too long for a label", "", strings.Repeat("a", 64), "", "63"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := status.NodeName(c.configured, c.host)
			if got != c.want || (err == nil) != (c.message == "") || err != nil && !strings.Contains(err.Error(), c.message) {
				t.Errorf("NodeName(%q, %q) = %q, %v, want %q and an error with %q", c.configured, c.host, got, err, c.want, c.message)
			}
		})
	}
}

func TestNode(t *testing.T) {
	facts, o := healthy(), policyOptions()
	o.Version = "v1.2.3"
	o.Labels = map[string]string{"rack": "7"}
	o.Annotations = map[string]string{"note": "x"}
	o.Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}}
	o.Unschedulable, o.ProviderID = true, "metal://7"
	facts.Machine.SwapBytes = 5
	node, _ := status.Node(facts, o, status.Memory{}, noon)
	wantLabels := map[string]string{"rack": "7", "kubernetes.io/hostname": "h1", "kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"}
	if node.Name != "h1" || !reflect.DeepEqual(node.Labels, wantLabels) || node.Annotations["note"] != "x" {
		t.Errorf("Node() = %+v, want h1 with labels %v", node.ObjectMeta, wantLabels)
	}
	if !reflect.DeepEqual(node.Spec, corev1.NodeSpec{ProviderID: "metal://7", Unschedulable: true, Taints: o.Taints}) {
		t.Errorf("Node() has spec %+v", node.Spec)
	}
	if len(o.Labels) != 1 {
		t.Errorf("Node() changed the options: %v", o.Labels)
	}
	info := node.Status.NodeInfo
	if info.KubeletVersion != "v1.2.3+hostler" || info.ContainerRuntimeVersion != "containerd://2.1.4" || *info.Swap.Capacity != 5 {
		t.Errorf("Node() has info %+v", info)
	}
	facts.Runtimes[0].Version = ""
	bare := runtime.Health{Info: runtime.Info{Name: "runc", Version: "1.1.5", Ready: true, Imageless: true}}
	facts.Runtimes = append([]runtime.Health{bare}, facts.Runtimes...)
	if node, _ = status.Node(facts, o, status.Memory{}, noon); node.Status.NodeInfo.ContainerRuntimeVersion != "containerd://Unknown" {
		t.Errorf("Node() = %+v for a runtime that never answered, want containerd://Unknown", node.Status.NodeInfo)
	}
}

func TestANodeThatACloudInitializes(t *testing.T) {
	uninitialized := corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}
	for name, c := range map[string]struct {
		internal, external []string
		provided           string
		addresses          string
	}{
		"nothing given":        {nil, nil, "", "Hostname=h1"},
		"an address given":     {[]string{"10.1.0.0/16"}, nil, "10.1.2.3", "InternalIP=10.1.2.3 Hostname=h1"},
		"both families given":  {[]string{"fd00::/8", "10.1.2.3"}, nil, "10.1.2.3,fd00::3", "InternalIP=10.1.2.3 InternalIP=fd00::3 Hostname=h1"},
		"an external given":    {nil, []string{"192.0.2.7"}, "", "ExternalIP=192.0.2.7 Hostname=h1"},
		"one that is not here": {[]string{"172.16.0.0/12"}, nil, "", "Hostname=h1"},
	} {
		t.Run(name, func(t *testing.T) {
			facts, o := healthy(), policyOptions()
			facts.Network = network(address("10.1.2.3", 16, "eth0"), address("fd00::3", 64, "eth0"))
			o.ExternalCloud = true
			o.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
			o.Addresses = status.AddressOptions{Internal: c.internal, External: c.external}
			node, _ := status.Node(facts, o, status.Memory{}, noon)
			if !reflect.DeepEqual(node.Spec.Taints, append(o.Taints, uninitialized)) || len(o.Taints) != 1 {
				t.Errorf("Node() has taints %v, want those configured and the cloud's", node.Spec.Taints)
			}
			if got := node.Annotations["alpha.kubernetes.io/provided-node-ip"]; got != c.provided {
				t.Errorf("Node() provides IP %q, want %q", got, c.provided)
			}
			var addresses []string
			for _, a := range node.Status.Addresses {
				addresses = append(addresses, string(a.Type)+"="+a.Address)
			}
			if got := strings.Join(addresses, " "); got != c.addresses {
				t.Errorf("Node() has addresses %s, want %s", got, c.addresses)
			}
		})
	}
}

func TestKubeletVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v0.1.0":              "v0.1.0+hostler",
		"0.1.0":               "v0.1.0+hostler",
		"v0.1.0-rc.1":         "v0.1.0-rc.1+hostler",
		"v0.1.0+dirty.1":      "v0.1.0+hostler.dirty.1",
		"(devel)":             "v0.0.0+hostler.devel",
		"":                    "v0.0.0+hostler",
		"0123abc":             "v0.0.0+hostler.0123abc",
		"v1.2":                "v0.0.0+hostler.v1.2",
		"v0.0.0-2026-ab+d/rt": "v0.0.0-2026-ab+hostler.drt",
	} {
		got := status.KubeletVersion(version)
		if got != want {
			t.Errorf("KubeletVersion(%q) = %q, want %q", version, got, want)
		}
		if _, err := semver.ParseSemantic(got); err != nil {
			t.Errorf("KubeletVersion(%q) = %q, want a semantic version: %v", version, got, err)
		}
	}
}

func TestHostlerVersionIsParsedFromKubeletVersion(t *testing.T) {
	for reported, want := range map[string]string{
		"v0.1.0+hostler":         "0.1.0",
		"v0.1.0-rc.1+hostler":    "0.1.0-rc.1",
		"v0.1.0+hostler.dirty.1": "0.1.0+dirty.1",
		"v0.0.0+hostler.devel":   "devel",
		"v0.0.0+hostler":         "0.0.0",
		"v1.34.1+k3s1":           "",
		"":                       "",
	} {
		got, found := status.HostlerVersion(reported)
		if got != want || found != (want != "") {
			t.Errorf("HostlerVersion(%q) = %q, %t, want %q", reported, got, found, want)
		}
	}
}

func TestAllocatable(t *testing.T) {
	facts := healthy()
	facts.Machine.HugePages = []probe.HugePages{{PageSizeBytes: 2 << 20, Pages: 512}, {PageSizeBytes: 1 << 30, Pages: 1}}
	reserved := status.Reserved{CPU: resource.MustParse("500m"), Memory: resource.MustParse("1Gi"), EphemeralStorage: resource.MustParse("10Gi")}
	capacity := status.Capacity(facts, 110)
	for name, want := range map[corev1.ResourceName][2]string{
		"cpu":               {"4", "3500m"},
		"memory":            {"8Gi", "5020Mi"}, // minus 1Gi reserved, 100Mi threshold, 2Gi huge pages
		"pods":              {"110", "110"},
		"ephemeral-storage": {"100Gi", "80Gi"},
		"hugepages-2Mi":     {"1Gi", "1Gi"},
		"hugepages-1Gi":     {"1Gi", "1Gi"},
	} {
		total := capacity[name]
		left := status.Allocatable(capacity, reserved, status.DefaultPolicy())[name]
		if total.String() != want[0] || left.String() != want[1] {
			t.Errorf("%s: capacity %s, allocatable %s, want %s and %s", name, total.String(), left.String(), want[0], want[1])
		}
	}
	if len(capacity) != 6 {
		t.Errorf("Capacity() = %v, want 6 resources", capacity)
	}
	if err := status.CheckReserved(facts, reserved, status.DefaultPolicy()); err != nil {
		t.Errorf("CheckReserved() = %v, want no error", err)
	}
}

func TestReservationsBeyondTheCapacity(t *testing.T) {
	for _, c := range []struct {
		name     string
		reserved status.Reserved
		message  string
	}{
		{"CPU, of which no threshold keeps any", status.Reserved{CPU: resource.MustParse("5")}, "node.reserved.cpu: 5 reserved, of 4 in total; reserve less\n"},
		{"memory with the threshold", status.Reserved{Memory: resource.MustParse("8Gi")}, "node.reserved.memory: 8Gi reserved, 100Mi kept free (pressure.memoryAvailable), of 8Gi in total; reserve less, or lower the threshold"},
		{"disk", status.Reserved{EphemeralStorage: resource.MustParse("95Gi")}, "node.reserved.ephemeral-storage: 95Gi reserved, 10Gi kept free"},
		{"PIDs", status.Reserved{PIDs: 40000}, "node.reserved.pid: 40000 reserved, but kernel.pid_max allows only 32768"},
	} {
		t.Run(c.name, func(t *testing.T) {
			facts := healthy()
			err := status.CheckReserved(facts, c.reserved, status.DefaultPolicy())
			if err == nil || !strings.Contains(err.Error()+"\n", c.message) {
				t.Errorf("CheckReserved() = %v, want %q", err, c.message)
			}
			for name, q := range status.Allocatable(status.Capacity(facts, 1), c.reserved, status.DefaultPolicy()) {
				if q.Sign() < 0 {
					t.Errorf("Allocatable() has %s of %s, want none below zero", q.String(), name)
				}
			}
		})
	}
	if err := status.CheckReserved(status.Facts{}, status.Reserved{CPU: resource.MustParse("5")}, status.DefaultPolicy()); err != nil {
		t.Errorf("CheckReserved() of an unmeasured host = %v, want no judgement", err)
	}
}

func TestOptionsValidate(t *testing.T) {
	for _, c := range []struct {
		name    string
		spoil   func(*status.Options)
		message string
	}{
		{"nothing wrong", func(*status.Options) {}, ""},
		{"all images", func(o *status.Options) { o.MaxImages = -1 }, ""},
		{"a bad name", func(o *status.Options) { o.Name = "A b" }, "node.name"},
		{"negative pods", func(o *status.Options) { o.MaxPods = -1 }, "node.maxPods"},
		{"negative images", func(o *status.Options) { o.MaxImages = -2 }, "status.maxImages"},
		{"a label key", func(o *status.Options) { o.Labels = map[string]string{"a b": "c"} }, "node.labels: a b=c"},
		{"a label value", func(o *status.Options) { o.Labels = map[string]string{"a": "b c"} }, "node.labels: a=b c"},
		{"a label that hostler sets", func(o *status.Options) { o.Labels = map[string]string{corev1.LabelArchStable: "x"} }, "kubernetes.io/arch is set by hostler"},
		{"an annotation key", func(o *status.Options) { o.Annotations = map[string]string{"a b": ""} }, "node.annotations: a b"},
		{"an effect", func(o *status.Options) { o.Taints = []corev1.Taint{{Key: "a", Effect: "Never"}} }, `node.taints: a:Never: effect "Never"`},
		{"a negative reserve", func(o *status.Options) { o.Reserved.Memory = resource.MustParse("-1") }, "node.reserved.memory"},
		{"an address", func(o *status.Options) { o.Addresses.External = []string{"::1"} }, "node.address.external"},
		{"a stall of nothing", func(o *status.Options) { o.Pressure.PSI = []status.StallLimit{{Resource: "gpu"}} }, "pressure.psi.gpu: unknown resource"},
		{"a stall with two limits", func(o *status.Options) {
			l := status.StallLimit{Resource: "io", Kind: "some", Window: time.Minute, Threshold: threshold(t, "20%")}
			o.Pressure.PSI = []status.StallLimit{l, l}
		}, "pressure.psi.io: there are two limits"},
		{"a period", func(o *status.Options) { o.Pressure.TransitionPeriod = -1 }, "pressure.transitionPeriod"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := policyOptions()
			c.spoil(&o)
			err := o.Validate()
			if (err == nil) != (c.message == "") || err != nil && !strings.Contains(err.Error(), c.message) {
				t.Errorf("Validate() = %v, want %q", err, c.message)
			}
		})
	}
}

func TestImages(t *testing.T) {
	facts, o := healthy(), policyOptions()
	facts.Images = []runtime.Image{
		{ID: "sha256:b", Tags: []string{"small:1"}, SizeBytes: 1},
		{ID: "sha256:d", SizeBytes: 500},
		{ID: "sha256:c", Digests: []string{"big@1", "big@2", "big@3", "big@4", "big@5", "big@6"}, Tags: []string{"big:1", "big:2"}, SizeBytes: 900},
		{ID: "sha256:a", Digests: []string{"small@1"}, Tags: []string{"small:2"}, SizeBytes: 1},
	}
	all := []corev1.ContainerImage{
		{Names: []string{"big@1", "big@2", "big@3", "big@4", "big:1"}, SizeBytes: 900},
		{Names: []string{"sha256:d"}, SizeBytes: 500},
		{Names: []string{"small@1", "small:2"}, SizeBytes: 1},
		{Names: []string{"small:1"}, SizeBytes: 1},
	}
	for limit, want := range map[int][]corev1.ContainerImage{-1: all, 50: all, 2: all[:2], 0: nil} {
		o.MaxImages = limit
		node, _ := status.Node(facts, o, status.Memory{}, noon)
		if !reflect.DeepEqual(node.Status.Images, want) {
			t.Errorf("Node() with at most %d images has %v, want %v", limit, node.Status.Images, want)
		}
	}
	if facts.Images[0].ID != "sha256:b" {
		t.Error("Node() reordered the facts")
	}
}

func TestChanged(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(f *status.Facts)
		want  bool
	}{
		{"nothing but the heartbeat", func(*status.Facts) {}, false},
		{"a figure within a pressure condition", func(f *status.Facts) { f.Memory.AvailableBytes -= gi }, false},
		{"pressure", func(f *status.Facts) { f.Memory.AvailableBytes = 1 }, true},
		{"another filesystem under pressure", func(f *status.Facts) { f.Filesystems[1].AvailableBytes = 0 }, true},
		{"a runtime's message", func(f *status.Facts) { f.Runtimes[0].NetworkReady = false }, true},
		{"an address", func(f *status.Facts) { f.Network = network(address("10.0.0.6", 24, "eth0")) }, true},
		{"an image", func(f *status.Facts) { f.Images = []runtime.Image{{ID: "a"}} }, true},
		{"a grown disk", func(f *status.Facts) { f.Filesystems[0].CapacityBytes++ }, true},
		{"a new kernel", func(f *status.Facts) { f.Machine.KernelVersion = "7.0" }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			facts, o := healthy(), policyOptions()
			before, memory := status.Node(facts, o, status.Memory{}, noon)
			c.spoil(&facts)
			after, _ := status.Node(facts, o, memory, noon.Add(10*time.Second))
			if got := status.Changed(&before.Status, &after.Status); got != c.want {
				t.Errorf("Changed() = %t, want %t", got, c.want)
			}
		})
	}
}

func TestChangedSeesAllOfAnImage(t *testing.T) {
	for name, spoil := range map[string]func(*corev1.ContainerImage){
		"nothing": func(*corev1.ContainerImage) {},
		"a name":  func(i *corev1.ContainerImage) { i.Names[0] = "b:1" },
		"a size":  func(i *corev1.ContainerImage) { i.SizeBytes++ },
	} {
		facts, o := healthy(), policyOptions()
		facts.Images = []runtime.Image{{ID: "sha256:a", Tags: []string{"a:1"}, SizeBytes: 1}}
		before, _ := status.Node(facts, o, status.Memory{}, noon)
		after := before.DeepCopy()
		spoil(&after.Status.Images[0])
		if got, want := status.Changed(&before.Status, &after.Status), name != "nothing"; got != want {
			t.Errorf("Changed() after a change of %s = %t, want %t", name, got, want)
		}
	}
}

func TestChangedIgnoresWhatAControlPlaneRounds(t *testing.T) {
	facts, o := healthy(), policyOptions()
	node, _ := status.Node(facts, o, status.Memory{}, noon.Add(123*time.Millisecond))
	read := node.DeepCopy()
	for i := range read.Status.Conditions {
		c := &read.Status.Conditions[i]
		c.LastTransitionTime = metav1.NewTime(noon.In(time.FixedZone("", 3600)))
	}
	read.Status.Conditions = append(read.Status.Conditions[1:], read.Status.Conditions[0])
	if status.Changed(&read.Status, &node.Status) {
		t.Error("Changed() = true for the same conditions in another order, time zone and precision, want false")
	}
}

func TestTransitions(t *testing.T) {
	facts, o := healthy(), policyOptions()
	first, memory := status.Conditions(facts, o, status.Memory{}, noon)
	if got := status.Transitions(nil, first); len(got) != len(first) || got[0].Old != nil || !got[0].Good() {
		t.Errorf("Transitions() at the start = %v, want every condition, new and good", got)
	}
	facts.Memory.AvailableBytes = 1
	facts.Runtimes = nil
	facts.PIDs = probe.PIDs{Problem: "gone"}
	facts.Shutdown = status.Shutdown{}
	facts.Network = probe.Network{}
	second, memory := status.Conditions(facts, o, memory, noon.Add(time.Minute))
	var got []string
	for _, tr := range status.Transitions(first, second) {
		got = append(got, fmt.Sprintf("%s %s %t", tr.EventType(), tr.EventReason(), tr.Old.Status != tr.New.Status))
	}
	want := []string{
		"Warning NodeHasInsufficientMemory true", "Warning NodeConditionUnknown true", "Warning NodeNetworkUnavailable true",
		"Warning NodeShutdownNotProtected true", "Warning NodeNotReady true",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Transitions() = %v, want %v", got, want)
	}
	third, _ := status.Conditions(healthy(), o, memory, noon.Add(time.Hour))
	got = nil
	for _, tr := range status.Transitions(second, third) {
		got = append(got, tr.EventType()+" "+tr.EventReason())
	}
	want = []string{
		"Normal NodeHasSufficientMemory", "Normal NodeHasSufficientPID", "Normal NodeNetworkAvailable",
		"Normal NodeShutdownProtected", "Normal NodeReady",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Transitions() = %v, want %v", got, want)
	}
	ready := status.Transitions(second, third)[4].Message()
	if want := "Ready is True (was False): HostReady: containerd 2.1.4 is ready"; ready != want {
		t.Errorf("Message() = %q, want %q", ready, want)
	}
	custom := status.Transition{New: corev1.NodeCondition{Type: "example.org/Disk", Status: "True"}}
	if custom.EventReason() != "NodeConditionChanged" || custom.EventType() != "Warning" {
		t.Errorf("a foreign condition gives %s %s, want Warning NodeConditionChanged", custom.EventType(), custom.EventReason())
	}
	if got := status.Transitions(third, third); got != nil {
		t.Errorf("Transitions() of the same = %v, want none", got)
	}
}
