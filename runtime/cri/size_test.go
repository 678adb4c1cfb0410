package cri_test

import (
	"context"
	"fmt"
	goruntime "runtime"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/runtimetest"
)

// The adapter and the tracker of last use together must take less than 5 MB for 10,000 images, or
// 500 bytes for each.
func TestFactsOfThousandsOfImagesAreSmall(t *testing.T) {
	const (
		count = 3_000
		most  = count * 260 // bytes
	)
	s := newServer(t, containerd16)
	for i := range count {
		s.fake.AddImage(runtimetest.ImageSpec{ID: fmt.Sprintf("sha256:%064x", i), Tags: []string{fmt.Sprintf("registry.example.com/team/app-%d:1", i)}})
	}
	s.set(func() { // for a single image, the Fake would search all
		s.before = func(_ context.Context, method, _ string) error {
			if method == "ImageStatus" {
				return status.Error(codes.Unknown, "no such blob")
			}
			return nil
		}
	})
	// The first adapter causes allocations of the server and the connection.
	if n := len(detailed(t, s.client(t, nil))); n != count {
		t.Fatalf("DetailedImages() = %d images, want %d", n, count)
	}
	keepers := []*cri.Runtime{s.client(t, nil), s.client(t, nil), s.client(t, nil)}
	before := heap()
	for _, r := range keepers {
		detailed(t, r)
	}
	got := (int64(heap()) - int64(before)) / int64(len(keepers))
	t.Logf("%d images take %d bytes", count, got)
	if got > most {
		t.Errorf("an adapter keeps %d bytes of %d images, want at most %d", got, count, most)
	}
	goruntime.KeepAlive(keepers)
}

func heap() uint64 {
	var stats goruntime.MemStats
	goruntime.GC()
	goruntime.GC()
	goruntime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
