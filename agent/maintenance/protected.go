package maintenance

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/shutdown/journal"
)

// Protected returns the pods that a shutdown or a manual drain ended, by pod and by UID. Garbage
// collection keeps them and their logs for a day, so that users can examine them or start them
// again. A pod that still runs is not protected: containers that die in it later have another
// cause.
func Protected(d *Drained, j *journal.Journal, now time.Time, uptime time.Duration) (pods map[gc.PodKey]gc.Kept, uids map[string]gc.Kept) {
	pods, uids = map[gc.PodKey]gc.Kept{}, map[string]gc.Kept{}
	for _, p := range d.Kept(now) {
		kept := gc.Kept{Reason: gc.Drained, Detail: "kept for a day; a drain stopped it"}
		pods[gc.PodKey{Runtime: p.Runtime, ID: p.ID}] = kept
		uids[cmp.Or(p.UID, p.ID)] = kept
	}
	for _, r := range j.Kept(now, uptime) {
		detail := "kept for a day; see `hostler ps --last-shutdown`"
		if !r.CancelledAt.IsZero() {
			detail = "kept for a day; a shutdown that was cancelled stopped it"
		}
		for _, p := range r.Pods {
			asked := r.EndUnknown && !p.StartedAt.IsZero() // it has ended, or may have
			if asked || r.PodStatus(p).Phase != corev1.PodRunning {
				kept := gc.Kept{Reason: gc.LastShutdown, Detail: detail}
				pods[gc.PodKey{Runtime: p.Runtime, ID: p.ID}] = kept
				uids[cmp.Or(p.UID, p.ID)] = kept
			}
		}
	}
	for _, r := range append(j.HeldRestarts(), j.Restarts()...) {
		if r.Outcome == "" {
			pods[gc.PodKey{Runtime: r.Runtime, ID: r.Pod}] = gc.Kept{Reason: gc.LastShutdown, Detail: "a shutdown has stopped it; it is to be started again"}
		}
	}
	return pods, uids
}
