package store

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// longestTaint bounds the key and the value of a taint: a prefix of 253 bytes, a slash and a name of 63.
const longestTaint = 317

// mostNodeUID bounds the UID of a Node, which the record of a group of reboot slots has.
const mostNodeUID = 64

// checkSizes returns an error if an object has more than an API server would let through, and than decisions are made
// for: they compare each taint with each toleration, and repeat taints in the reasons of many evictions.
func (k Kind) checkSizes(o Object) error {
	uid := string(o.GetUID())
	if !controlplane.ValidUID(uid) || k.Name == Nodes.Name && len(uid) > mostNodeUID {
		return errors.New("its UID is too long, or has characters that are not printable ASCII")
	}
	for _, at := range controlplane.Times(o) {
		if !at.Equal(controlplane.JSONTime(*at)) {
			return errors.New("it has a time that JSON cannot have in UTC")
		}
	}
	sizes := map[string]int{"owners": len(o.GetOwnerReferences()), "finalizers": len(o.GetFinalizers())}
	switch o := o.(type) {
	case *corev1.Node:
		sizes["taints"], sizes["conditions"] = len(o.Spec.Taints), len(o.Status.Conditions)
		for _, t := range o.Spec.Taints {
			if len(t.Key) > longestTaint || len(t.Value) > longestTaint || len(t.Effect) > longestTaint {
				return fmt.Errorf("it has a taint whose key, value or effect is longer than %d bytes", longestTaint)
			}
		}
	case *corev1.Pod:
		sizes["tolerations"], sizes["conditions"] = len(o.Spec.Tolerations), len(o.Status.Conditions)
	}
	for what, n := range sizes {
		if n > controlplane.MostEntries {
			return fmt.Errorf("it has %d %s, more than %d", n, what, controlplane.MostEntries)
		}
	}
	return nil
}
