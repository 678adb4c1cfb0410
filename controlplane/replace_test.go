package controlplane_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// former returns the Node that another machine left, with changes of other clients.
func former(t *testing.T) *corev1.Node {
	t.Helper()
	desired := nodeOf(there, map[string]string{"old": "1", "both": "1"})
	desired.Annotations = map[string]string{"old-note": "1"}
	node := registered(t, desired)
	node.UID, node.ResourceVersion = "uid-1", "7"
	node.Labels["theirs"] = "1"
	node.Annotations["their-note"] = "1"
	node.Spec = corev1.NodeSpec{
		PodCIDR: "10.0.0.0/24", PodCIDRs: []string{"10.0.0.0/24"}, ProviderID: "metal://1", Unschedulable: true,
		Taints: []corev1.Taint{
			{Key: "wanted", Effect: corev1.TaintEffectNoExecute},
			{Key: "theirs", Value: "v", Effect: corev1.TaintEffectNoSchedule},
			{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
			{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
			{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute},
		},
	}
	node.Status.Phase = corev1.NodeRunning
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "192.0.2.1"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}, {Type: "theirs.example.com/Fine"}}
	node.Status.Images = []corev1.ContainerImage{{Names: []string{"old"}}}
	node.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"}
	node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "v"}}
	return node
}

func present() *corev1.Node {
	desired := nodeOf(here, map[string]string{"both": "2", "new": "1"})
	desired.Spec.Taints = []corev1.Taint{{Key: "wanted", Effect: corev1.TaintEffectNoExecute}}
	desired.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Reason: "Ours"}}
	return desired
}

func TestTakeOverClearsWhatANodeMayAndNotesTheRest(t *testing.T) {
	stored := former(t)
	node, err := controlplane.TakeOver(stored, present())
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"both": "2", "new": "1", "theirs": "1"}; !reflect.DeepEqual(node.Labels, want) {
		t.Errorf("labels = %v, want %v", node.Labels, want)
	}
	if _, stays := node.Annotations["old-note"]; stays || node.Annotations["their-note"] != "1" || controlplane.IdentityOf(node) != here {
		t.Errorf("annotations = %v, want the old hostler's gone, the foreign one kept, and this machine noted", node.Annotations)
	}
	if !reflect.DeepEqual(node.Status, present().Status) {
		t.Errorf("status = %+v, want nothing of the machine before", node.Status)
	}
	if !reflect.DeepEqual(node.Spec, stored.Spec) || node.UID != stored.UID {
		t.Errorf("spec = %+v, uid %s, want both as they are: a node may not change them", node.Spec, node.UID)
	}
	want := controlplane.Remains{
		Machine: there, Labels: []string{"theirs"}, PodCIDRs: []string{"10.0.0.0/24"}, ProviderID: "metal://1", Unschedulable: true,
		Taints: []string{"theirs=v:NoSchedule", "node.kubernetes.io/out-of-service:NoExecute"},
	}
	left := controlplane.RemainsOn(node)
	if left == nil || !reflect.DeepEqual(*left, want) {
		t.Fatalf("RemainsOn() = %+v, want %+v", left, want)
	}
	if got, want := left.Fixed(), "labels theirs; taints theirs=v:NoSchedule, node.kubernetes.io/out-of-service:NoExecute; podCIDRs 10.0.0.0/24; providerID metal://1"; got != want {
		t.Errorf("Fixed() = %q, want %q", got, want)
	}
	again, err := controlplane.Adopt(node, present())
	if err != nil || !reflect.DeepEqual(controlplane.RemainsOn(again), left) {
		t.Errorf("RemainsOn() a node that is registered again = %+v, %v, want the same", controlplane.RemainsOn(again), err)
	}
}

func TestFixedRemainsAreNoLongerReported(t *testing.T) {
	node, err := controlplane.TakeOver(former(t), present())
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		fix  func(*corev1.Node)
		want *controlplane.Remains
	}{
		{"the label is removed", func(n *corev1.Node) { delete(n.Labels, "theirs") }, &controlplane.Remains{
			Machine: there, PodCIDRs: []string{"10.0.0.0/24"}, ProviderID: "metal://1", Unschedulable: true,
			Taints: []string{"theirs=v:NoSchedule", "node.kubernetes.io/out-of-service:NoExecute"},
		}},
		{"the taints are", func(n *corev1.Node) { n.Spec.Taints = nil }, &controlplane.Remains{
			Machine: there, PodCIDRs: []string{"10.0.0.0/24"}, ProviderID: "metal://1", Unschedulable: true,
		}},
		{"it is uncordoned", func(n *corev1.Node) { n.Spec.Unschedulable = false }, &controlplane.Remains{
			Machine: there, PodCIDRs: []string{"10.0.0.0/24"}, ProviderID: "metal://1",
		}},
		{"somebody says that the rest is well", func(n *corev1.Node) { delete(n.Annotations, controlplane.AnnotationReplaced) }, nil},
	} {
		if step.fix(node); !reflect.DeepEqual(controlplane.RemainsOn(node), step.want) {
			t.Errorf("%s: RemainsOn() = %+v, want %+v", step.name, controlplane.RemainsOn(node), step.want)
		}
	}
	node.Annotations[controlplane.AnnotationReplaced] = "{spoiled"
	if left := controlplane.RemainsOn(node); left != nil {
		t.Errorf("RemainsOn() a spoiled note = %+v, want nothing", left)
	}
}

func TestALabelThatIsConfiguredLaterIsThisMachines(t *testing.T) {
	node, err := controlplane.TakeOver(former(t), present())
	if err != nil {
		t.Fatal(err)
	}
	desired := present()
	desired.Labels["theirs"] = "1"
	if node, err = controlplane.Adopt(node, desired); err != nil {
		t.Fatal(err)
	}
	if left := controlplane.RemainsOn(node); left == nil || len(left.Labels) != 0 {
		t.Errorf("RemainsOn() = %+v, want no label", left)
	}
}

func TestReplaceKeepsTheCordonAlone(t *testing.T) {
	node, err := controlplane.Replace(former(t), present())
	if err != nil {
		t.Fatal(err)
	}
	if node.UID != "" || node.ResourceVersion != "" || len(node.Labels) != 2 || node.Spec.PodCIDR != "" || len(node.Spec.Taints) != 1 || !node.Spec.Unschedulable {
		t.Errorf("Replace() = %+v, want a new node, cordoned", node)
	}
	left := controlplane.RemainsOn(node)
	if left == nil || left.Machine != there || !left.Unschedulable || left.Fixed() != "" {
		t.Errorf("RemainsOn() = %+v, want the cordon alone", left)
	}
	for name, open := range map[string]func(before, desired *corev1.Node){
		"it was open":                func(before, _ *corev1.Node) { before.Spec.Unschedulable = false },
		"it is configured anyway so": func(_, desired *corev1.Node) { desired.Spec.Unschedulable = true },
	} {
		before, desired := former(t), present()
		open(before, desired)
		node, err := controlplane.Replace(before, desired)
		if err != nil {
			t.Fatal(err)
		}
		if left := controlplane.RemainsOn(node); left != nil || node.Spec.Unschedulable != desired.Spec.Unschedulable {
			t.Errorf("%s: Replace() = %+v with %+v remaining, want nothing of the one before", name, node.Spec, left)
		}
	}
}
