//go:build integration

package etcd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/objects"
	bed "hostler.io/hostler/test/etcd"
)

// TestADiskThatStalls blocks writes to filesystems for a while. A member whose disk hangs is only
// partly blocked: it accepts connections and reports that it is healthy.
func TestADiskThatStalls(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{Members: 3, Disks: true})
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	leader := leads(t, c)
	s := at(t, c)
	for s.Endpoint() != leader.Endpoint { // each call starts with another member
		s = at(t, c)
	}
	version := renews(t, s, objects.None)
	seen, ended := follow(t, s, lease)
	sees(t, seen, ended, "l")

	check(leader.Freeze())
	version = renews(t, s, version)
	if s.Endpoint() == leader.Endpoint {
		t.Errorf("Endpoint() = %s, whose disk stalls, want another one", s.Endpoint())
	}
	version = put(t, s, lease, objects.Put{Value: []byte("while it stalls"), Instead: version, TTL: time.Hour})
	sees(t, seen, ended, "while it stalls")
	check(leader.Thaw())
	check(c.Ready(t.Context(), leader))
	alone := at(t, c, func(o *etcd.Options) { o.Endpoints = []string{leader.Endpoint} })
	if got := holds(t, alone, lease); got.Version != version {
		t.Errorf("Get() from the member whose disk is well again = %s at %s, want what was put meanwhile, %s", got.Value, got.Version, version)
	}

	for _, m := range c.Members {
		check(m.Freeze())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := s.Put(ctx, lease, objects.Put{Value: []byte("l"), Instead: version, TTL: time.Minute})
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("Put() while all disks stall = %v, want no answer", err)
	}
	for _, m := range c.Members {
		check(m.Thaw())
	}
	renews(t, s, version)
}
