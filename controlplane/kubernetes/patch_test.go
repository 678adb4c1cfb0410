package kubernetes_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"hostler.io/hostler/controlplane/kubernetes"
)

func conditions(types ...corev1.NodeConditionType) []corev1.NodeCondition {
	var list []corev1.NodeCondition
	for _, kind := range types {
		list = append(list, corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, Reason: "Test"})
	}
	return list
}

func resources(amounts ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, amount := range amounts {
		name, quantity, _ := strings.Cut(amount, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return list
}

func addresses(ips ...string) []corev1.NodeAddress {
	var list []corev1.NodeAddress
	for _, ip := range ips {
		list = append(list, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	return list
}

// applied applies the patch to the stored Node, as an API server does.
func applied(t *testing.T, stored *corev1.Node, patch []byte) *corev1.Node {
	t.Helper()
	before, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Node{})
	if err != nil {
		t.Fatalf("StrategicMergePatch(%s) = %v, want no error", patch, err)
	}
	node := &corev1.Node{}
	if err := json.Unmarshal(after, node); err != nil {
		t.Fatal(err)
	}
	return node
}

func TestStatusPatch(t *testing.T) {
	type status = corev1.NodeStatus
	for name, check := range map[string]struct{ stored, before, wanted, want status }{
		"a condition is changed": {
			stored: status{Conditions: conditions("Ready")},
			wanted: status{Conditions: []corev1.NodeCondition{{Type: "Ready", Status: corev1.ConditionFalse, Reason: "Draining"}}},
			want:   status{Conditions: []corev1.NodeCondition{{Type: "Ready", Status: corev1.ConditionFalse, Reason: "Draining"}}},
		},
		"conditions of others are kept": {
			stored: status{Conditions: conditions("KernelDeadlock", "Ready", "ReadonlyFilesystem")},
			wanted: status{Conditions: conditions("Ready")},
			want:   status{Conditions: conditions("Ready", "KernelDeadlock", "ReadonlyFilesystem")},
		},
		"a condition that this run reported and does no longer goes": {
			stored: status{Conditions: conditions("Ready", "Backup", "KernelDeadlock")},
			before: status{Conditions: conditions("Ready", "Backup")},
			wanted: status{Conditions: conditions("Ready")},
			want:   status{Conditions: conditions("Ready", "KernelDeadlock")},
		},
		"a condition of hostler's own domain goes, whichever run reported it": {
			stored: status{Conditions: conditions("Ready", "hostler.io/ShutdownProtected")},
			wanted: status{Conditions: conditions("Ready")},
			want:   status{Conditions: conditions("Ready")},
		},
		"two addresses of one type both arrive": {
			wanted: status{Addresses: addresses("192.0.2.1", "2001:db8::1")},
			want:   status{Addresses: addresses("192.0.2.1", "2001:db8::1")},
		},
		"an address is replaced by another in their order": {
			stored: status{Addresses: addresses("192.0.2.1", "2001:db8::1")},
			wanted: status{Addresses: addresses("2001:db8::2", "192.0.2.1")},
			want:   status{Addresses: addresses("2001:db8::2", "192.0.2.1")},
		},
		"the last address goes": {
			stored: status{Addresses: addresses("192.0.2.1")},
		},
		"a resource changes, one goes, and those that others advertise stay": {
			stored: status{Capacity: resources("cpu=4", "hugepages-2Mi=2Mi", "example.com/dongle=3"), Allocatable: resources("cpu=3", "example.com/dongle=3")},
			wanted: status{Capacity: resources("cpu=8"), Allocatable: resources("cpu=7")},
			want:   status{Capacity: resources("cpu=8", "example.com/dongle=3"), Allocatable: resources("cpu=7", "example.com/dongle=3")},
		},
		"an extended resource that this run reported and does no longer goes": {
			stored: status{Capacity: resources("cpu=4", "example.com/dongle=3")},
			before: status{Capacity: resources("example.com/dongle=3")},
			wanted: status{Capacity: resources("cpu=4")},
			want:   status{Capacity: resources("cpu=4")},
		},
		"attached volumes are the attach-detach controller's": {
			stored: status{VolumesAttached: []corev1.AttachedVolume{{Name: "v", DevicePath: "/dev/v"}}, VolumesInUse: []corev1.UniqueVolumeName{"v"}},
			want:   status{VolumesAttached: []corev1.AttachedVolume{{Name: "v", DevicePath: "/dev/v"}}},
		},
		"images are replaced as a whole": {
			stored: status{Images: []corev1.ContainerImage{{Names: []string{"a"}, SizeBytes: 1}, {Names: []string{"b"}, SizeBytes: 2}}},
			wanted: status{Images: []corev1.ContainerImage{{Names: []string{"c"}, SizeBytes: 3}}},
			want:   status{Images: []corev1.ContainerImage{{Names: []string{"c"}, SizeBytes: 3}}},
		},
		"a field of the node's info that is emptied is empty": {
			stored: status{NodeInfo: corev1.NodeSystemInfo{MachineID: "m", KernelVersion: "6.1"}},
			wanted: status{NodeInfo: corev1.NodeSystemInfo{MachineID: "m"}},
			want:   status{NodeInfo: corev1.NodeSystemInfo{MachineID: "m"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			stored := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "7"}, Status: check.stored}
			patch, merged, err := kubernetes.StatusPatch(stored, check.before, check.wanted)
			if err != nil {
				t.Fatal(err)
			}
			if !equality.Semantic.DeepEqual(merged, check.want) {
				t.Errorf("merged status = %+v, want %+v", merged, check.want)
			}
			if got := applied(t, stored, patch); !equality.Semantic.DeepEqual(got.Status, check.want) {
				t.Errorf("status after patch %s = %+v, want %+v", patch, got.Status, check.want)
			}
			for _, part := range []string{`"uid":"u"`, `"resourceVersion":"7"`} {
				if !strings.Contains(string(patch), part) {
					t.Errorf("patch = %s, want it to hold %s", patch, part)
				}
			}
		})
	}
}

func TestAStatusThatIsStoredIsAPatchOfNothing(t *testing.T) {
	stored := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "7"}, Status: corev1.NodeStatus{
		Conditions: conditions("Ready", "KernelDeadlock"), Addresses: addresses("192.0.2.1"), Capacity: resources("cpu=4"),
	}}
	patch, _, err := kubernetes.StatusPatch(stored, corev1.NodeStatus{}, stored.Status)
	if want := `{"metadata":{"resourceVersion":"7","uid":"u"}}`; err != nil || string(patch) != want {
		t.Errorf("patch = %s, %v, want %s", patch, err, want)
	}
}

// FuzzStatusPatch changes any status into any other one, with the merge rules of an API server.
func FuzzStatusPatch(f *testing.F) {
	f.Add(`{"conditions":[{"type":"A","status":"True"}],"addresses":[{"type":"InternalIP","address":"1"}]}`,
		`{"conditions":[{"type":"B","status":"True"}],"addresses":[{"type":"InternalIP","address":"2"},{"type":"InternalIP","address":"1"}],"capacity":{"cpu":"1"}}`)
	f.Add(`{"capacity":{"cpu":"1","a/b":"2"},"nodeInfo":{"machineID":"m"},"runtimeHandlers":[{"name":"x"}]}`, `{"config":{"error":"e"},"features":{}}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		stored := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "7"}}
		var wanted corev1.NodeStatus
		if json.Unmarshal([]byte(before), &stored.Status) != nil || json.Unmarshal([]byte(after), &wanted) != nil ||
			!mergeable(stored.Status) || !mergeable(wanted) {
			return
		}
		patch, merged, err := kubernetes.StatusPatch(stored, corev1.NodeStatus{}, wanted)
		if err != nil {
			t.Fatalf("StatusPatch(%s, %s) = %v, want no error", before, after, err)
		}
		got := applied(t, stored, patch)
		gotText, _ := json.Marshal(got.Status)
		wantText, _ := json.Marshal(merged)
		if string(gotText) != string(wantText) {
			t.Errorf("status after patch %s = %s, want %s", patch, gotText, wantText)
		}
	})
}

// mergeable reports whether an API server accepts the status: at most one condition of each type.
func mergeable(status corev1.NodeStatus) bool {
	var types []corev1.NodeConditionType
	for _, condition := range status.Conditions {
		if condition.Type == "" || slices.Contains(types, condition.Type) {
			return false
		}
		types = append(types, condition.Type)
	}
	return true
}
