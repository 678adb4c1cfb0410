package eviction

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
)

// nodes has the NoExecute taints of all Nodes, and since when each counts.
//
// Clocks differ and are set, so a taint that is seen to appear counts from then. One that was there when
// Nodes were listed counts from its timeAdded, as far as that has passed.
type nodes struct {
	changed loop.Signal

	mu      sync.Mutex // guards what follows
	entries map[string]nodeEntry
	lists   int
	listing bool
	synced  bool
}

// nodeEntry is a Node, and the last list that it was in.
type nodeEntry struct {
	uid    types.UID
	taints []Taint
	list   int
}

func newNodes(changed loop.Signal) *nodes {
	return &nodes{changed: changed, entries: map[string]nodeEntry{}}
}

// ready reports whether all Nodes were listed, and the list is not being read again.
func (n *nodes) ready() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.synced && !n.listing
}

// tainted returns the Nodes that have NoExecute taints, by name.
func (n *nodes) tainted() []Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	var hosts []Host
	for name, e := range n.entries {
		if len(e.taints) > 0 {
			hosts = append(hosts, Host{Name: name, UID: e.uid, Taints: e.taints})
		}
	}
	return hosts
}

// missing returns those of the names that are of no Node.
func (n *nodes) missing(names []string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc(names, func(name string) bool {
		_, exists := n.entries[name]
		return exists
	})
}

// follower takes in Nodes.
type follower struct{ *nodes }

// Begin implements store.Follower.
func (f follower) Begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	f.listing = true
}

// Set implements store.Follower.
func (f follower) Set(name string, o store.Object) {
	node := o.(*corev1.Node)
	f.mu.Lock()
	defer f.mu.Unlock()
	before, known := f.entries[name]
	now := nodeEntry{uid: node.UID, list: f.lists}
	for _, t := range node.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoExecute {
			now.taints = append(now.taints, Taint{*t.DeepCopy(), f.since(before, t)})
		}
	}
	f.entries[name] = now
	if !known || len(before.taints)+len(now.taints) > 0 {
		f.changed.Send()
	}
}

// since is from when a taint counts. One that replaces another has its time, and counts from when that
// did. The caller has the lock.
func (f follower) since(before nodeEntry, t corev1.Taint) time.Time {
	for _, known := range before.taints {
		same := known.Key == t.Key && known.Value == t.Value
		if t.TimeAdded == nil && same && known.TimeAdded == nil || t.TimeAdded != nil && t.TimeAdded.Equal(known.TimeAdded) {
			return known.Since
		}
	}
	now := time.Now()
	if !f.listing || t.TimeAdded == nil {
		return now
	}
	return now.Add(-max(now.Sub(t.TimeAdded.Time), 0))
}

// Unreadable implements store.Follower. Such a Node exists, and what was known of it stays.
func (f follower) Unreadable(name string, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.entries[name]
	e.list = f.lists
	f.entries[name] = e
}

// Delete implements store.Follower.
func (f follower) Delete(name string, _ store.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.entries, name)
	f.changed.Send()
}

// Synced implements store.Follower.
func (f follower) Synced() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, e := range f.entries {
		if e.list != f.lists {
			delete(f.entries, name)
		}
	}
	f.synced, f.listing = true, false
	f.changed.Send()
}
