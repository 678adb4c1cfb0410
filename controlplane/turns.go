package controlplane

import (
	"cmp"
	"slices"
)

// turns are queues of records: one for each object, the oldest first. The objects take turns, the first is next. So
// many Events about one host do not delay those about others, or replace them.
type turns [][]*record

// len returns the number of records.
func (t turns) len() (n int) {
	for _, queue := range t {
		n += len(queue)
	}
	return n
}

// of returns the index of the queue of a record's object; -1 if there is none.
func (t turns) of(rec *record) int {
	return slices.IndexFunc(t, func(queue []*record) bool { return queue[0].event.InvolvedObject == rec.event.InvolvedObject })
}

// add appends a record to the queue of its object.
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

// take removes the next record. Other objects are next then.
func (t *turns) take() *record {
	queue := (*t)[0]
	*t = slices.Delete(*t, 0, 1)
	if len(queue) > 1 {
		*t = append(*t, queue[1:])
	}
	return queue[0]
}

// drop removes the oldest record of the object with the most.
func (t *turns) drop() *record {
	longest := slices.MaxFunc(*t, func(a, b []*record) int { return cmp.Compare(len(a), len(b)) })
	i := t.of(longest[0])
	if len(longest) > 1 {
		(*t)[i] = longest[1:]
	} else {
		*t = slices.Delete(*t, i, i+1)
	}
	return longest[0]
}
