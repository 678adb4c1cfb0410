package controlplane

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JSONTime returns a time in UTC; 1970 if JSON cannot have its year. A host may write such a time, and one of them
// would fail an answer about the whole fleet.
func JSONTime(at time.Time) time.Time {
	if at = at.UTC(); at.Year() < 0 || at.Year() > 9999 {
		return time.Unix(0, 0).UTC()
	}
	return at
}

// Times returns the times of an object that are stored, shown, or written again when it is edited. The first one is a
// copy of the creation time: to change that, call SetCreationTimestamp.
func Times(o metav1.Object) (times []*time.Time) {
	created := o.GetCreationTimestamp()
	times = append(times, &created.Time)
	if at := o.GetDeletionTimestamp(); at != nil {
		times = append(times, &at.Time)
	}
	for _, m := range o.GetManagedFields() {
		if m.Time != nil {
			times = append(times, &m.Time.Time)
		}
	}
	switch o := o.(type) {
	case *corev1.Node:
		for i := range o.Status.Conditions {
			c := &o.Status.Conditions[i]
			times = append(times, &c.LastHeartbeatTime.Time, &c.LastTransitionTime.Time)
		}
		for _, t := range o.Spec.Taints {
			if t.TimeAdded != nil {
				times = append(times, &t.TimeAdded.Time)
			}
		}
	case *corev1.Pod:
		for i := range o.Status.Conditions {
			c := &o.Status.Conditions[i]
			times = append(times, &c.LastProbeTime.Time, &c.LastTransitionTime.Time)
		}
	case *coordinationv1.Lease:
		for _, at := range []*metav1.MicroTime{o.Spec.AcquireTime, o.Spec.RenewTime} {
			if at != nil {
				times = append(times, &at.Time)
			}
		}
	}
	return times
}

// BoundTimes replaces the times of an object that JSON cannot have.
func BoundTimes(o metav1.Object) {
	o.SetCreationTimestamp(metav1.NewTime(bound(o.GetCreationTimestamp().Time)))
	for _, at := range Times(o) {
		*at = bound(*at)
	}
}

// bound returns a time as it is, or 1970 if JSON cannot have its year.
func bound(at time.Time) time.Time {
	if in := JSONTime(at); !in.Equal(at) {
		return in
	}
	return at
}
