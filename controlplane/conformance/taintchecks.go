package conformance

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

func checkTaintsReconciled(ctx context.Context, b *Backend) error {
	if _, able := as[controlplane.TaintReconciler](b); !able {
		return &AbsentError{"taints are set when the Node is created; later the agent sets none, and reports missing ones"}
	}
	taint := func(key, value string) corev1.Taint {
		return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}
	}
	others := taint("theirs.example.com/taint", "v")
	steps := []struct {
		what   string
		edit   func(*corev1.Node)
		wanted []corev1.Taint
		want   []corev1.Taint
	}{
		{"at first", nil, []corev1.Taint{taint("a", "1"), taint("b", "1")}, []corev1.Taint{taint("a", "1"), taint("b", "1")}},
		{
			"beside another's", func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, others) },
			[]corev1.Taint{taint("a", "2"), taint("b", "1")},
			[]corev1.Taint{taint("a", "2"), taint("b", "1"), others},
		},
		{
			"after another client has changed them", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taint("b", "theirs"), others} },
			[]corev1.Taint{taint("a", "2"), taint("b", "1")},
			[]corev1.Taint{taint("a", "2"), taint("b", "1"), others},
		},
		{"with one fewer", nil, []corev1.Taint{taint("b", "1")}, []corev1.Taint{taint("b", "1"), others}},
		{"with none", nil, nil, []corev1.Taint{others}},
		{
			"with the cluster's own, which the cluster adds and removes", nil,
			[]corev1.Taint{taint(corev1.TaintNodeNotReady, "")},
			[]corev1.Taint{others},
		},
	}
	for _, step := range steps {
		if step.edit != nil {
			if err := b.edit(ctx, b.Name("tainted"), step.edit); err != nil {
				return err
			}
		}
		wanted := newNode(b.Name("tainted"), here)
		wanted.Spec.Taints = step.wanted
		var versions [2]string
		for i := range versions {
			node, err := b.Client.Register(ctx, wanted, controlplane.RegisterOptions{})
			if err != nil {
				return fmt.Errorf("Register() %s = %w, want no error", step.what, err)
			}
			missing, more := controlplane.MissingTaints(node, step.want), len(node.Spec.Taints) != len(step.want)
			if len(missing) > 0 || more {
				return fmt.Errorf("taints %s = %v, want %v", step.what, node.Spec.Taints, step.want)
			}
			versions[i] = node.ResourceVersion
		}
		if versions[0] != versions[1] {
			return fmt.Errorf("Register() again %s gave version %s, want %s: nothing has changed", step.what, versions[1], versions[0])
		}
	}
	node, err := b.Client.Node(ctx, b.Name("tainted"))
	if err != nil || !slices.Contains(node.Spec.Taints, others) {
		return fmt.Errorf("Node() = %v, %w, want another's taint kept", node, orNone(err))
	}
	return nil
}
