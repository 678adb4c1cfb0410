package gc

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"hostler.io/hostler/runtime"
)

// dead is a container that does not run, with its sort keys.
type dead struct {
	decision    ContainerDecision
	ended       time.Time // exit time, or creation time if the exit is unknown
	exitUnknown bool      // the exit time is unknown
	unstarted   bool      // it was never started, so there is no exit
	pod         *runtime.Pod
	protected   bool // kept, whatever the limits are
}

// unit identifies containers of the same pod and name, which share a limit.
type unit struct{ runtime, podUID, name string }

// planContainers decides on every container, and returns which ones the plan removes.
func planContainers(f *Facts, p ContainerPolicy, now time.Time, o Options) ([]ContainerDecision, map[*runtime.Container]bool) {
	deads, others := sortOut(f, p, now, o)
	removeByLimits(deads, f, p, now, o)
	explainRequests(deads, p, o)

	decisions := make([]ContainerDecision, 0, len(deads)+len(others))
	leaving := make(map[*runtime.Container]bool)
	for _, d := range deads {
		if d.decision.Action == Remove {
			decisions = append(decisions, d.decision)
			leaving[d.decision.Container] = true
		}
	}
	for _, d := range deads {
		if d.decision.Action == Keep {
			decisions = append(decisions, d.decision)
		}
	}
	return append(decisions, others...), leaving
}

// sortOut returns the dead containers, longest dead first, and the decisions on the others.
func sortOut(f *Facts, p ContainerPolicy, now time.Time, o Options) (deads []*dead, others []ContainerDecision) {
	for i := range f.Pods {
		pod := &f.Pods[i]
		title := podTitle(pod)
		for j := range pod.Containers {
			c := &pod.Containers[j]
			d := ContainerDecision{
				ID: c.ID, Name: c.Name, Pod: title, ExitedAt: c.FinishedAt,
				Action: Keep, Runtime: c.Runtime, Container: c,
			}
			if c.State == runtime.Running {
				d.Reason = Running
				others = append(others, d)
				continue
			}
			deads = append(deads, newDead(d, f, pod, p, now, o))
		}
	}
	slices.SortFunc(deads, func(a, b *dead) int {
		return cmp.Or(
			a.ended.Compare(b.ended),
			a.decision.Container.CreatedAt.Compare(b.decision.Container.CreatedAt),
			cmp.Compare(a.decision.ID, b.decision.ID),
			cmp.Compare(a.decision.Runtime, b.decision.Runtime),
		)
	})
	return deads, others
}

func newDead(decision ContainerDecision, f *Facts, pod *runtime.Pod, p ContainerPolicy, now time.Time, o Options) *dead {
	c := decision.Container
	d := &dead{decision: decision, ended: c.FinishedAt, unstarted: c.State == runtime.Created, pod: pod}
	if d.ended.IsZero() {
		d.ended, d.exitUnknown = c.CreatedAt, !d.unstarted
	}
	reason, detail := protectedPod(f, pod, o)
	label := keepLabel(c.Labels, c.Annotations)
	switch {
	case label != "":
		reason, detail = Protected, label
	case reason != "":
	default:
		reason, detail = d.young(p, now)
	}
	d.protected = reason != ""
	d.decision.Reason, d.decision.Detail = cmp.Or(reason, Newest), detail
	return d
}

// protectedPod returns what protects all containers of a pod; empty if nothing does.
func protectedPod(f *Facts, pod *runtime.Pod, o Options) (Reason, string) {
	kept := f.ProtectedPods[PodKey{pod.Runtime, pod.ID}]
	label := keepLabel(pod.Labels, pod.Annotations)
	switch {
	case label != "":
		return Protected, label
	case kept.Reason != "":
		return kept.Reason, kept.Detail
	case slices.Contains(o.LeaveAlone, pod.Runtime):
		return NotManaged, onRequest
	}
	return "", ""
}

// keepLabel returns the label that keeps an object; empty if there is none. A value other than true
// or false also keeps the object, because a removal cannot be undone.
func keepLabel(labels ...map[string]string) string {
	kept := ""
	for _, set := range labels {
		switch value, found := set[runtime.LabelKeep]; {
		case !found || value == "false":
		case value == "true":
			return "label " + runtime.LabelKeep
		default:
			kept = fmt.Sprintf(`label %s is %q, neither "true" nor "false"; kept to be safe`, runtime.LabelKeep, value)
		}
	}
	return kept
}

// young returns why it is too early to remove the container; empty if it is not.
func (d *dead) young(p ContainerPolicy, now time.Time) (Reason, string) {
	since := age(now, d.ended)
	switch d.decision.Container.State {
	case runtime.Created:
		atLeast := p.MinimumAge
		if !d.pod.Gone {
			atLeast = max(atLeast, p.patience())
		}
		if since < atLeast {
			return TooYoung, untilRemoval(atLeast-since, "not started yet")
		}
		return "", ""
	case runtime.Unknown:
		// The runtime may find the state later, and the container may run.
		if since < p.patience() {
			return TooYoung, untilRemoval(p.patience()-since, "in an unknown state")
		}
		return "", ""
	}
	switch {
	case p.MinimumAge > 0 && d.exitUnknown:
		// It may have exited a moment ago, even if it was created long ago.
		return TooYoung, "time of exit unknown"
	case since < p.MinimumAge:
		return TooYoung, untilRemoval(p.MinimumAge - since)
	}
	return "", ""
}

func (d *dead) remove(why Reason) {
	if !d.protected && d.decision.Action == Keep {
		d.decision.Action, d.decision.Reason = Remove, why
	}
}

// counts reports whether the container counts towards the limits. Protected containers do not;
// young ones do. Containers that never started do not, because they have no exit to inspect.
func (d *dead) counts() bool {
	return d.decision.Action == Keep && !d.unstarted && (!d.protected || d.decision.Reason == TooYoung)
}

// removeByLimits applies the maximum age, then the limit per unit, then the total limit.
func removeByLimits(deads []*dead, f *Facts, p ContainerPolicy, now time.Time, o Options) {
	for _, d := range deads {
		switch {
		case d.pod.Gone:
			d.remove(PodGone)
		case abandoned(f, d.pod) && age(now, lastChange(d.pod)) >= p.patience():
			d.remove(PodDead)
		case d.unstarted:
			d.remove(NeverStarted)
		case p.MaximumAge > 0 && !d.exitUnknown && age(now, d.ended) > p.MaximumAge:
			d.remove(MaxAge)
		}
	}
	if o.AllUnused {
		removeUnused(deads, p)
		return
	}
	units := unitsOf(deads)
	if p.MaxPerPodContainer >= 0 {
		limitUnits(units, p.MaxPerPodContainer)
	}
	if p.MaxContainers >= 0 {
		limitTotal(deads, units, p.MaxContainers)
	}
}

// removeUnused keeps only the newest container of each unit, and only in running pods.
func removeUnused(deads []*dead, p ContainerPolicy) {
	for _, u := range unitsOf(deads) {
		for _, d := range u[min(p.keptOfAllUnused(u), len(u)):] {
			d.remove(AllUnused)
		}
	}
}

// explainRequests sets the detail of containers that are removed only on request. Containers that
// even AllUnused keeps still have the reason Newest.
func explainRequests(deads []*dead, p ContainerPolicy, o Options) {
	if o.AllUnused || len(o.RequestContainers) == 0 {
		return
	}
	for _, u := range unitsOf(deads) {
		for _, d := range u[min(p.keptOfAllUnused(u), len(u)):] {
			if d.decision.Reason == Newest && slices.Contains(o.RequestContainers, d.decision.Runtime) {
				d.decision.Reason, d.decision.Detail = NotManaged, onRequest
			}
		}
	}
	for _, d := range deads {
		if d.decision.Action == Remove && slices.Contains(o.RequestContainers, d.decision.Runtime) {
			d.decision.Detail = onRequest
		}
	}
}

// keptOfAllUnused is how many containers of a unit AllUnused keeps. In a running pod, it keeps the
// newest, because the orchestrator reads the last exit and the log from it.
func (p ContainerPolicy) keptOfAllUnused(u []*dead) int {
	if u[0].pod.Ready && p.MaxPerPodContainer != 0 {
		return 1
	}
	return 0
}

// unitsOf groups the containers that count by pod and name, newest first. The units are ordered by
// their longest dead container.
func unitsOf(deads []*dead) [][]*dead {
	var units [][]*dead
	index := make(map[unit]int)
	for _, d := range deads {
		if !d.counts() {
			continue
		}
		key := unit{d.decision.Runtime, d.pod.UID, d.decision.Name}
		i, known := index[key]
		if !known {
			i = len(units)
			index[key] = i
			units = append(units, nil)
		}
		units[i] = append(units[i], d)
	}
	for _, u := range units {
		slices.Reverse(u)
	}
	return units
}

func limitUnits(units [][]*dead, limit int) {
	for _, u := range units {
		for _, d := range u[min(limit, len(u)):] {
			d.remove(OverLimit)
		}
	}
}

// limitTotal removes containers until the total limit holds. It first reduces all units evenly,
// down to one container each. Then it removes the longest dead containers.
func limitTotal(deads []*dead, units [][]*dead, limit int) {
	remaining, deepest := 0, 0
	for _, u := range units {
		for i, d := range u {
			if d.counts() {
				remaining++
				deepest = max(deepest, i+1)
			}
		}
	}
	// Going rank by rank keeps this linear: each container is visited once.
	byRank := make([][]*dead, deepest)
	for _, u := range units {
		for i, d := range u[:min(deepest, len(u))] {
			byRank[i] = append(byRank[i], d)
		}
	}
	for rank := deepest - 1; rank >= 1 && remaining > limit; rank-- {
		for _, d := range byRank[rank] {
			remaining -= d.leave()
		}
	}
	for _, d := range deads {
		if remaining <= limit {
			return
		}
		remaining -= d.leave()
	}
}

// leave removes the container because of the total limit. It returns the number of removed
// containers: 1 or 0.
func (d *dead) leave() int {
	if !d.counts() {
		return 0
	}
	d.remove(OverLimit)
	if d.decision.Action == Remove {
		return 1
	}
	return 0
}
