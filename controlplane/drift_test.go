package controlplane_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

func TestDriftIsWhatRegisteringAgainFixes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Node)
		want   []string
	}{
		"nothing changed":         {func(*corev1.Node) {}, nil},
		"what others add":         {func(n *corev1.Node) { n.Labels["theirs"], n.Annotations["theirs"] = "x", "x" }, nil},
		"a label changed":         {func(n *corev1.Node) { n.Labels["rack"] = "x" }, []string{"label rack"}},
		"all labels removed":      {func(n *corev1.Node) { n.Labels = nil }, []string{"label empty", "label rack"}},
		"an annotation changed":   {func(n *corev1.Node) { n.Annotations["note"] = "x" }, []string{"annotation note"}},
		"the list of keys spoilt": {func(n *corev1.Node) { delete(n.Annotations, controlplane.AnnotationOwned) }, []string{"annotation hostler.io/owned"}},
		"all annotations removed": {func(n *corev1.Node) { n.Annotations = nil }, []string{
			"annotation note", "annotation hostler.io/machine-id", "annotation hostler.io/system-uuid", "annotation hostler.io/owned",
		}},
		"another machine's by now": {func(n *corev1.Node) { n.Annotations[controlplane.AnnotationMachineID] = there.MachineID }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			desired := nodeOf(here, map[string]string{"rack": "r1", "empty": ""})
			desired.Annotations = map[string]string{"note": "ours"}
			stored := registered(t, desired)
			c.change(stored)
			if got := controlplane.Drift(stored, desired); !slices.Equal(got, c.want) {
				t.Errorf("Drift() = %q, want %q", got, c.want)
			}
			adopted, err := controlplane.Adopt(stored, desired)
			if err != nil {
				t.Fatal(err)
			}
			if got := controlplane.Drift(adopted, desired); got != nil {
				t.Errorf("Drift() after Adopt() = %q, want none", got)
			}
		})
	}
}

func TestTaintsThatTheNodeLacks(t *testing.T) {
	taint := func(key, value string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: key, Value: value, Effect: effect}
	}
	gpu := taint("gpu", "a", corev1.TaintEffectNoSchedule)
	for name, c := range map[string]struct {
		stored, wanted, missing []corev1.Taint
	}{
		"none wanted":             {[]corev1.Taint{gpu}, nil, nil},
		"there":                   {[]corev1.Taint{taint("x", "", corev1.TaintEffectNoExecute), gpu}, []corev1.Taint{gpu}, nil},
		"not there":               {nil, []corev1.Taint{gpu}, []corev1.Taint{gpu}},
		"there with another word": {[]corev1.Taint{taint("gpu", "b", corev1.TaintEffectNoSchedule)}, []corev1.Taint{gpu}, []corev1.Taint{gpu}},
		"there to another effect": {[]corev1.Taint{taint("gpu", "a", corev1.TaintEffectNoExecute)}, []corev1.Taint{gpu}, []corev1.Taint{gpu}},
	} {
		t.Run(name, func(t *testing.T) {
			stored := nodeOf(here, nil)
			stored.Spec.Taints = c.stored
			if got := controlplane.MissingTaints(stored, c.wanted); !slices.Equal(got, c.missing) {
				t.Errorf("MissingTaints() = %v, want %v", got, c.missing)
			}
		})
	}
}
