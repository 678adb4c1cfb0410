package journal

import (
	"slices"
	"time"
)

const (
	// maxEarlier is the maximum number of pods of earlier drains in a record. The newest are kept.
	maxEarlier = 1000
	// keepEarlier is how long a drain is kept if the Node is not uncordoned.
	keepEarlier = 30 * 24 * time.Hour
)

// EndMaintenance records that a user has uncordoned the Node. Until then, the last drain is kept,
// and the next drain keeps the pods of earlier drains.
func (j *Journal) EndMaintenance() {
	j.change(true, func(f *content) bool {
		changed := !f.Uncordoned
		f.Uncordoned = true
		return changed
	})
}

// inMaintenance reports whether the last drain must be kept until a user uncordons the Node.
// Automatic drains are not kept for that, unless they have pods of an earlier manual drain.
func (f content) inMaintenance() bool {
	r := f.Drained
	return r != nil && !f.Uncordoned && (!r.Trigger.ByHost() || len(r.Earlier) > 0) && time.Since(r.StartedAt).Abs() < keepEarlier
}

// earlier returns the pods that earlier drains of the same maintenance period stopped, and that r
// did not stop again.
func (f content) earlier(r *Record) []PodRecord {
	switch {
	case f.Drained == nil:
		return nil
	case f.Drained.StartedAt.Equal(r.StartedAt):
		return f.Drained.Earlier
	case f.Uncordoned:
		return nil
	}
	var list []PodRecord
	add := func(pods []PodRecord) {
		for _, p := range pods {
			list = slices.DeleteFunc(list, func(before PodRecord) bool { return p.covers(before) })
			if p.StartedAt.IsZero() || f.restarted(p) || time.Since(p.StartedAt).Abs() >= keepEarlier {
				continue
			}
			p.Error, p.Limits, p.Stuck, p.ExitCodes = "", nil, nil, nil
			list = append(list, p)
		}
	}
	add(f.Drained.Earlier)
	add(f.Drained.Pods)
	for _, p := range r.Pods {
		list = slices.DeleteFunc(list, func(before PodRecord) bool { return p.covers(before) })
	}
	return slices.Clip(list[max(0, len(list)-maxEarlier):])
}

// covers reports whether p has all containers of the pod that an earlier drain stopped. It does not
// if only another container of the pod was started since and stopped again.
func (p PodRecord) covers(before PodRecord) bool {
	if p.Runtime != before.Runtime || p.ID != before.ID || p.StartedAt.IsZero() {
		return false
	}
	stopped := map[string]bool{}
	for _, c := range p.Containers() {
		stopped[c.ID] = true
	}
	for _, c := range before.Containers() {
		if !stopped[c.ID] {
			return false
		}
	}
	return true
}

// restarted reports whether all containers of a pod run again because its drain was undone.
func (f content) restarted(p PodRecord) bool {
	if f.Restarts == nil {
		return false
	}
	waits := map[string]bool{}
	for _, c := range p.Containers() {
		waits[c.ID] = true
	}
	known := len(waits) > 0
	for _, r := range *f.Restarts {
		if r.Runtime == p.Runtime && r.Drained && !r.AskedAt.Before(p.StartedAt) && (r.Outcome == Restarted || r.Outcome == RunsAnyway) {
			delete(waits, r.ID)
		}
	}
	return known && len(waits) == 0
}

// withEarlier returns a copy of a record with the pods of earlier drains.
func (r *Record) withEarlier(pods []PodRecord) *Record {
	c := *r
	c.Earlier = pods
	return &c
}
