package server_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/server"
	"hostler.io/hostler/controlplane/server/config"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
	"hostler.io/hostler/internal/logtest"
)

// unfollowed is a store of which nothing can be followed until a moment.
type unfollowed struct {
	*memory.Store
	until time.Time

	mu       sync.Mutex           // guards followed
	followed map[string]time.Time // when the Follow of a kind started; zero while it fails
}

// Follow implements store.Store.
func (u *unfollowed) Follow(ctx context.Context, kind store.Kind, scope store.Scope, to store.Follower) error {
	u.mu.Lock()
	if time.Now().Before(u.until) {
		u.followed[kind.Name] = time.Time{}
		u.mu.Unlock()
		return controlplane.ErrUnavailable
	}
	u.followed[kind.Name] = time.Now()
	u.mu.Unlock()
	return u.Store.Follow(ctx, kind, scope, to)
}

// unfollowedKinds is an unfollowed whose kinds are known only at run time.
type unfollowedKinds struct{ *unfollowed }

func (unfollowedKinds) Kinds(ctx context.Context) ([]store.Kind, func(store.Kind) bool, error) {
	return discovering{}.Kinds(ctx)
}

// noSilences keeps nothing.
type noSilences struct{}

func (noSilences) Save(lifecycle.Silence, time.Time) error { return nil }

func (noSilences) Load() (s lifecycle.Silence, taken time.Time, err error) { return s, taken, nil }

// TestEveryKindIsFollowedSoonAfterAnOutage has an outage that is longer than the longest pause of other loops.
func TestEveryKindIsFollowedSoonAfterAnOutage(t *testing.T) {
	for name, want := range map[string][]string{
		"kinds that do not change":         {"nodes", "leases", "pods", "events", "objects"},
		"kinds that are known at run time": {"nodes", "leases", "pods", "tickets", "disks", "cables", "wires"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				discovers := len(want) > 5
				u := &unfollowed{
					Store: memory.New(memory.Options{EndsLeases: !discovers}), until: time.Now().Add(10*time.Minute + 20*time.Second), followed: map[string]time.Time{},
				}
				front := store.Store(u)
				if discovers {
					front = unfollowedKinds{u}
				}
				c := config.Default()
				var log logtest.Book
				controllers := server.NewControllers(server.Options{
					Config: c, Store: front, Version: "1.2.3", Silences: noSilences{}, Log: log.Logger(), Level: new(slog.LevelVar),
				}, "a")
				ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
				defer cancel()
				controllers.Supervise(ctx)
				if len(u.followed) != len(want) {
					t.Errorf("followed = %v, want %q", u.followed, want)
				}
				for _, kind := range want {
					if after := u.followed[kind].Sub(u.until); after < 0 || after > 6*time.Second {
						t.Errorf("%s are followed %v after the outage, want at most 6s", kind, after)
					}
				}
			})
		})
	}
}
