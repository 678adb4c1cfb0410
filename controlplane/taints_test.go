package controlplane_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
)

// taints parses taints written as KEY=VALUE:EFFECT or KEY:EFFECT.
func taints(list ...string) []corev1.Taint {
	var result []corev1.Taint
	for _, text := range list {
		rest, effect, _ := strings.Cut(text, ":")
		key, value, _ := strings.Cut(rest, "=")
		result = append(result, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return result
}

func tainted(list ...string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Taints: taints(list...)}}
}

// texts returns the taints as kubectl writes them.
func texts(node *corev1.Node) []string {
	var list []string
	for _, t := range node.Spec.Taints {
		list = append(list, t.ToString())
	}
	return list
}

const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule"

func TestReconcileTaints(t *testing.T) {
	for name, c := range map[string]struct {
		owned        string // of the stored Node; none if empty
		stored       []string
		wanted, want []string
		notes        string
	}{
		"a missing one is set beside another's": {
			owned: `{}`, stored: []string{"theirs:NoSchedule"}, wanted: []string{"gpu=true:NoSchedule"},
			want: []string{"theirs:NoSchedule", "gpu=true:NoSchedule"}, notes: `["gpu:NoSchedule"]`,
		},
		"one of another value is replaced in its place": {
			owned: `{"taints":["gpu:NoSchedule"]}`, stored: []string{"gpu=false:NoSchedule", "theirs:NoSchedule"}, wanted: []string{"gpu=true:NoSchedule"},
			want: []string{"gpu=true:NoSchedule", "theirs:NoSchedule"}, notes: `["gpu:NoSchedule"]`,
		},
		"one that is wanted no more goes, whatever its value": {
			owned: `{"taints":["gpu:NoSchedule"]}`, stored: []string{"gpu=x:NoSchedule", "gpu:NoExecute"},
			want: []string{"gpu:NoExecute"}, notes: "",
		},
		"one that hostler has not set stays": {
			owned: `{"taints":["gpu:NoSchedule"]}`, stored: []string{"theirs:NoSchedule"},
			want: []string{"theirs:NoSchedule"}, notes: "",
		},
		"a spoiled list owns nothing": {
			owned: `{"taints":`, stored: []string{"gpu:NoSchedule"},
			want: []string{"gpu:NoSchedule"}, notes: "",
		},
		"a taint that a cloud controller manager has removed stays removed": {
			owned: `{}`, wanted: []string{uninitialized, "gpu:NoSchedule"},
			want: []string{"gpu:NoSchedule"}, notes: `["gpu:NoSchedule"]`,
		},
		"what follows from conditions is nobody's to set": {
			owned: `{}`, wanted: []string{"node.kubernetes.io/not-ready:NoSchedule"}, notes: "",
		},
		"a new node keeps all that it is created with": {
			wanted: []string{uninitialized, "gpu:NoSchedule"},
			want:   []string{uninitialized, "gpu:NoSchedule"}, notes: `["gpu:NoSchedule"]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			wanted := tainted(c.wanted...)
			var stored, node *corev1.Node
			var err error
			if c.owned == "" {
				node, err = controlplane.NewNode(wanted)
			} else {
				stored = tainted(c.stored...)
				stored.Annotations = map[string]string{controlplane.AnnotationOwned: c.owned}
				node, err = controlplane.Adopt(stored, wanted)
			}
			if err == nil {
				err = controlplane.ReconcileTaints(node, stored, wanted)
			}
			if got := texts(node); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("taints = %q, %v, want %q", got, err, c.want)
			}
			if got := node.Annotations[controlplane.AnnotationOwned]; !strings.Contains(got, c.notes) || strings.Contains(got, "taints") != (c.notes != "") {
				t.Errorf("owned = %s, want taints %s", got, c.notes)
			}
			if stored != nil && !slices.Equal(texts(stored), c.stored) {
				t.Errorf("taints of the stored node = %q, want %q as before", texts(stored), c.stored)
			}
			again, err := controlplane.Adopt(node, wanted)
			if err == nil {
				err = controlplane.ReconcileTaints(again, node, wanted)
			}
			if got := texts(again); err != nil || !slices.Equal(got, c.want) || again.Annotations[controlplane.AnnotationOwned] != node.Annotations[controlplane.AnnotationOwned] {
				t.Errorf("taints the second time = %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestTaintDrift(t *testing.T) {
	stored := tainted("gpu=false:NoSchedule", "theirs:NoSchedule", "fine:NoExecute")
	wanted := tainted("gpu=true:NoSchedule", "fine:NoExecute", "new:NoSchedule", uninitialized, "node.kubernetes.io/not-ready:NoSchedule")
	if got, want := controlplane.TaintDrift(stored, wanted), []string{"taint gpu=true:NoSchedule", "taint new:NoSchedule"}; !slices.Equal(got, want) {
		t.Errorf("TaintDrift() = %q, want %q", got, want)
	}
}

// Taints that the other machine's hostler has set are removed. Neither they nor the taints that
// this machine wants are remains.
func TestOnlyTaintsOfOtherClientsRemainAfterATakeover(t *testing.T) {
	stored := tainted("old:NoSchedule", "theirs:NoSchedule", "both=1:NoSchedule")
	stored.Annotations = map[string]string{controlplane.AnnotationOwned: `{"taints":["old:NoSchedule"]}`, controlplane.AnnotationMachineID: "other"}
	wanted := tainted("both=2:NoSchedule")
	wanted.Status.NodeInfo.MachineID = "m"
	node, err := controlplane.TakeOver(stored, wanted)
	if err == nil {
		err = controlplane.ReconcileTaints(node, stored, wanted)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, want := texts(node), []string{"theirs:NoSchedule", "both=2:NoSchedule"}; !slices.Equal(got, want) {
		t.Errorf("taints = %q, want %q", got, want)
	}
	left := controlplane.RemainsOn(node)
	if left == nil || left.Fixed() != "taints theirs:NoSchedule" {
		t.Errorf("RemainsOn() = %+v, want another's taint alone", left)
	}
	wanted.Spec.Taints = taints("both=2:NoSchedule", "theirs:NoSchedule")
	again, err := controlplane.Adopt(node, wanted)
	if err == nil {
		err = controlplane.ReconcileTaints(again, node, wanted)
	}
	if left := controlplane.RemainsOn(again); err != nil || left != nil {
		t.Errorf("RemainsOn() once it is configured = %+v, %v, want nothing", left, err)
	}
}
