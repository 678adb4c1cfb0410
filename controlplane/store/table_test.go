package store_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane/store"
)

func TestATableHasWhatTheLastListHad(t *testing.T) {
	news := 0
	table := store.NewTable(store.Nodes, func(before string, o store.Object, _ bool) (string, bool) {
		now := o.GetName() + o.GetResourceVersion()
		return now, o.GetResourceVersion() == "news"
	}, func() { news++ })
	set := func(name, version string) {
		node := &corev1.Node{}
		node.Name, node.ResourceVersion = name, version
		table.Set(name, node)
	}
	want := func(what, entries string, changes int) {
		t.Helper()
		got := table.Entries()
		slices.Sort(got)
		if text := strings.Join(got, " "); text != entries || news != changes || table.Len() != len(got) {
			t.Errorf("%s: entries %q, %d changes, want %q, %d", what, text, news, entries, changes)
		}
	}
	want("at first", "", 0)
	table.Begin()
	set("a", "1")
	set("b", "1")
	table.Unreadable("c", errors.New("broken"))
	want("in the list", " a1 b1", 3)
	table.Synced()
	want("after the list", " a1 b1", 4)
	set("a", "2")
	want("after a change that is no news", " a2 b1", 4)
	set("a", "news")
	table.Unreadable("b", errors.New("broken"))
	want("one that cannot be read any more", "  anews", 6)
	table.Delete("c")
	want("after a deletion", " anews", 7)
	table.Begin()
	set("b", "2")
	want("in another list", "anews b2", 7)
	table.Synced()
	want("after it", "b2", 8)
}
