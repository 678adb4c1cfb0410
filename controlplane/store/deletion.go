package store

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DeletionOf is how the deletion of an object is carried out, by its finalizers; empty for an object whose
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

// RequestDeletion changes an object as a request for its deletion does in a store that has no API server,
// and reports whether nothing holds it, so that it is to be removed. A deletion that was requested before
// keeps its time.
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

// Released reports whether an edit has removed the last finalizer of an object whose deletion was requested.
func Released(before, after Object) bool {
	return after.GetDeletionTimestamp() != nil && len(before.GetFinalizers()) > 0 && len(after.GetFinalizers()) == 0
}
