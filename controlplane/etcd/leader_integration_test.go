//go:build integration

package etcd_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/objects"
	bed "hostler.io/hostler/test/etcd"
)

// election is the members' election timeout. A new leader adds it to each etcd lease's TTL, because
// other members may need that time to follow it.
const election = 1 // second

// countdown is what the cluster reports about an etcd lease. Only the leader counts its TTL down.
type countdown struct {
	Term      uint64 `json:"raft_term"` // of the leader
	Granted   int64  `json:"granted-ttl"`
	Remaining int64  `json:"ttl"` // seconds; negative after its end
}

// counts reads the countdown of an etcd lease.
func counts(t *testing.T, c *bed.Cluster, id string) countdown {
	t.Helper()
	var now countdown
	eventually(t, "the leader says how long an etcd lease lives", func(ctx context.Context) bool {
		leader, err := c.Leader(ctx)
		if err != nil {
			return false
		}
		text, err := c.At(ctx, leader, "lease", "timetolive", id, "--write-out=json")
		if err != nil {
			return false
		}
		if err := json.Unmarshal([]byte(text), &now); err != nil {
			t.Fatalf("etcdctl lease timetolive prints %q: %v", text, err)
		}
		return true
	})
	return now
}

// dies renews a host's Lease for the last time, and returns its etcd lease.
func dies(t *testing.T, c *bed.Cluster, s *etcd.Store, name string, ttl time.Duration) string {
	t.Helper()
	key := objects.Key{Kind: objects.Lease, Node: name}
	for {
		version := put(t, s, key, objects.Put{Value: []byte("1"), TTL: ttl})
		_, err := s.Put(patient(t), key, objects.Put{Value: []byte("2"), Instead: version, TTL: ttl})
		if err != nil && !errors.Is(err, controlplane.ErrConflict) {
			t.Fatalf("Put() = %v, want no error", err)
		}
		if id := etcdLease(t, c, s.Path(key)); id != "" { // empty if the machine was too slow
			return id
		}
	}
}

// aLeaseLivesATTLOfEachLeaderAtMost lets two hosts die together with the leader, just after they
// have renewed. The limit is checked with etcd's own values, not with a clock of the test, which
// may be delayed: the value from which a new leader starts to count, and that it counts down to the
// end.
func aLeaseLivesATTLOfEachLeaderAtMost(t *testing.T, c *bed.Cluster) {
	s := at(t, c)
	hours := dies(t, c, s, "hour", time.Hour)
	shorts := dies(t, c, s, "short", 5*time.Second)
	before := counts(t, c, hours)
	if err := leads(t, c).Kill(); err != nil {
		t.Fatal(err)
	}
	// The member that is asked may know the old term, but no new leader yet.
	after := before
	for after.Term == before.Term {
		after = counts(t, c, hours)
	}
	const hour = int64(time.Hour / time.Second)
	if after.Granted != hour || after.Remaining <= 0 || after.Remaining > hour+election {
		t.Errorf("a new leader counts %+v of a Lease of an hour, want the requested duration, and at most that plus an election left", after)
	}
	for last := counts(t, c, shorts); last.Remaining >= 0; {
		now := counts(t, c, shorts)
		if most := now.Granted + election; now.Remaining > most || now.Term == last.Term && now.Remaining > last.Remaining {
			t.Fatalf("one leader counts %+v and then %+v, want it to count down from %d", last, now, most)
		}
		last = now
	}
	eventually(t, "the Lease is gone that has no time left", func(ctx context.Context) bool {
		_, err := s.Get(ctx, objects.Key{Kind: objects.Lease, Node: "short"})
		return errors.Is(err, controlplane.ErrNotFound)
	})
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}
