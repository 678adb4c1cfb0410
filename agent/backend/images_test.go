package backend

import (
	"slices"
	"testing"

	"hostler.io/hostler/gc"
)

func TestQueueOfEachFilesystem(t *testing.T) {
	planned := []gc.ImageDecision{
		{ID: "a", Filesystem: "/", Action: gc.Remove, Reason: gc.LRU},
		{ID: "b", Filesystem: "/srv", Action: gc.Keep, Reason: gc.BelowThreshold},
		{ID: "c", Filesystem: "/", Action: gc.Keep, Reason: gc.BelowThreshold},
		{ID: "d", Filesystem: "/mnt", Action: gc.Keep, Reason: gc.UnknownUsage},
		{ID: "e", Filesystem: "/", Action: gc.Keep, Reason: gc.InUse},
	}
	var places []int
	for _, img := range queue(planned) {
		places = append(places, img.Place)
	}
	if want := []int{1, 1, 2, 0, 0}; !slices.Equal(places, want) {
		t.Errorf("queue() = places %v, want %v", places, want)
	}
}
