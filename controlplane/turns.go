package controlplane

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// turns are queues of records: one for each record.turn, the oldest record first. The first queue is next. So many
// Events that one host or namespace causes do not delay others, or replace them.
type turns [][]*record

// turnOf returns the turn of Events about an object: that of its namespace, if it has one.
func turnOf(object corev1.ObjectReference) corev1.ObjectReference {
	if object.Namespace != "" {
		return corev1.ObjectReference{Namespace: object.Namespace}
	}
	return object
}

// len returns the number of records.
func (t turns) len() (n int) {
	for _, queue := range t {
		n += len(queue)
	}
	return n
}

// of returns the index of the queue of a record; -1 if there is none.
func (t turns) of(rec *record) int {
	return slices.IndexFunc(t, func(queue []*record) bool { return queue[0].turn == rec.turn })
}

// add appends a record to its queue.
func (t *turns) add(rec *record) {
	if i := t.of(rec); i >= 0 {
		(*t)[i] = append((*t)[i], rec)
		return
	}
	*t = append(*t, []*record{rec})
}

// putBack makes a record the next one. It may be queued.
func (t *turns) putBack(rec *record) {
	queue := []*record{rec}
	if i := t.of(rec); i >= 0 {
		queue = append(queue, slices.DeleteFunc((*t)[i], func(other *record) bool { return other == rec })...)
		*t = slices.Delete(*t, i, i+1)
	}
	*t = slices.Insert(*t, 0, queue)
}

// take removes the next record. Other queues are next then.
func (t *turns) take() *record {
	queue := (*t)[0]
	*t = slices.Delete(*t, 0, 1)
	if len(queue) > 1 {
		*t = append(*t, queue[1:])
	}
	return queue[0]
}

// drop removes the oldest record of the longest queue; of equal queues, that of the last, not the record that is next.
func (t *turns) drop() *record {
	longest := 0
	for i, queue := range *t {
		if len(queue) >= len((*t)[longest]) {
			longest = i
		}
	}
	queue := (*t)[longest]
	if len(queue) > 1 {
		(*t)[longest] = queue[1:]
	} else {
		*t = slices.Delete(*t, longest, longest+1)
	}
	return queue[0]
}
