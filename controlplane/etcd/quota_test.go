package etcd

import (
	"fmt"
	"testing"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// TestInWhoseFolderAnObjectIs has the folders that a host may write.
func TestInWhoseFolderAnObjectIs(t *testing.T) {
	for _, c := range []struct {
		kind         store.Kind
		name, folder string
	}{
		{store.Events, "n1/e", "n1/"},
		{store.Pods(true), "n1/shop/web", "n1/"},
		{store.Objects, "pods/n1/shop/web", "pods/n1/"},
		{store.Objects, "pods/n1", ""},
		{store.Objects, "pods/n1/", "pods/n1/"},
		{store.Objects, "things/n1/web", ""},
		{store.Objects, "podsy/n1/shop/web", ""},
		{store.Below("things"), "n1/web", ""},
		{store.Nodes, "n1", ""},
		{store.Leases, "n1", ""},
	} {
		if got := folderOf(c.kind, c.name); got != c.folder {
			t.Errorf("folderOf(%s, %s) = %q, want %q", c.kind.Name, c.name, got, c.folder)
		}
	}
}

// TestTheSurplusOfAHostIsLeftOut follows what one host writes, and another one beside it.
func TestTheSurplusOfAHostIsLeftOut(t *testing.T) {
	const most, bytes = controlplane.MostHostObjects, controlplane.MostHostBytes
	q := quota{}
	const created, changed = true, false
	taken, again := outcome{taken: true}, outcome{taken: true, before: true}
	put := func(host, name string, size int, created bool, want outcome) {
		t.Helper()
		if got := q.put(host, name, size, created); got != want {
			t.Errorf("put(%s, %s, %d) = %+v, want %+v", host, name, size, got, want)
		}
	}
	remove := func(host, name string, none bool) {
		t.Helper()
		if got := q.remove(host, name); got != none {
			t.Errorf("remove(%s, %s) = %t, want %t", host, name, got, none)
		}
	}
	for i := range most {
		put("a", fmt.Sprint(i), 1, created, taken)
	}
	put("a", "one too many", 1, created, outcome{first: true})
	put("a", "one too many", 1, changed, outcome{}) // counted once
	put("a", "0", 2, changed, again)
	put("b", "0", bytes, created, taken)
	put("b", "large", 1, created, outcome{first: true})
	put("b", "0", bytes+1, changed, outcome{before: true}) // it has grown
	put("", "of a person", 10*bytes, created, taken)
	if q["a"].surplus != 1 || q["b"].surplus != 2 || len(q) != 2 {
		t.Errorf("surplus = %d and %d of %d hosts, want 1 and 2 of 2", q["a"].surplus, q["b"].surplus, len(q))
	}
	if !q.room() {
		t.Error("room() = false, want that host b has room again")
	}
	put("b", "large", 1, changed, taken)
	put("b", "0", bytes-1, changed, outcome{taken: true, none: true}) // it fits again
	put("b", "large", 1, created, again)
	put("b", "large", 2, changed, outcome{before: true, first: true})
	if q.room() {
		t.Error("room() = true, want that no host has room")
	}
	remove("a", "1", false)
	remove("a", "one too many", true)
	remove("a", "nobody's", false)
	remove("b", "large", true)
	remove("b", "0", false)
	for i := range most {
		remove("a", fmt.Sprint(i), false)
	}
	if len(q) != 0 {
		t.Errorf("%d hosts are known, want none", len(q))
	}
	remove("a", "0", false)
}
