package store

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DeletionOf returns the policy of an object's deletion, according to its finalizers; empty if its
// deletion was not requested.
func DeletionOf(o Object) metav1.DeletionPropagation {
	switch {
	case o.GetDeletionTimestamp() == nil:
		return ""
	case slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// RequestDeletion changes an object as an API server does when its deletion is requested, for a
// store without an API server. It reports whether no finalizer is left, so that the object has to
// be removed. An earlier deletion request keeps its time.
func RequestDeletion(o Object, policy metav1.DeletionPropagation, now metav1.Time) (remove bool) {
	own := map[metav1.DeletionPropagation]string{
		metav1.DeletePropagationOrphan: metav1.FinalizerOrphanDependents, metav1.DeletePropagationForeground: metav1.FinalizerDeleteDependents,
	}
	finalizers := slices.Clone(o.GetFinalizers())
	if policy != "" {
		finalizers = slices.DeleteFunc(finalizers, func(f string) bool {
			return f != own[policy] && (f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents)
		})
		if f := own[policy]; f != "" && !slices.Contains(finalizers, f) {
			finalizers = append(finalizers, f)
		}
	}
	o.SetFinalizers(finalizers)
	if o.GetDeletionTimestamp() == nil {
		o.SetDeletionTimestamp(&now)
		o.SetDeletionGracePeriodSeconds(new(int64))
	}
	return len(finalizers) == 0
}

// Released reports whether an edit has removed the last finalizer of an object whose deletion was
// requested.
func Released(before, after Object) bool {
	return after.GetDeletionTimestamp() != nil && len(before.GetFinalizers()) > 0 && len(after.GetFinalizers()) == 0
}
