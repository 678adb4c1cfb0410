package store

import (
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// longestTaint bounds the key and the value of a taint: a prefix of 253 bytes, a slash and a name of 63.
const longestTaint = 317

// mostUID bounds a UID, for which people may use other formats than Kubernetes does.
const mostUID = 64

var validUID = regexp.MustCompile(fmt.Sprintf("^[-._:/A-Za-z0-9]{0,%d}$", mostUID))

// checkSizes returns an error if an object has more than an API server would let through, and than decisions are made
// for: they compare each taint with each toleration, and repeat taints in the reasons of many evictions.
func checkSizes(o Object) error {
	if !validUID.MatchString(string(o.GetUID())) {
		return fmt.Errorf("its UID has other characters than letters, digits and -._:/, or more than %d of them", mostUID)
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
