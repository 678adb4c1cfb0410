package store_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// TestFactsAreFreshOnlyWhileTheyAreConfirmed checks what decisions are made from: nothing that was
// received before the store was away, was restored, or stopped to report.
func TestFactsAreFreshOnlyWhileTheyAreConfirmed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		contact, table := &store.Contact{}, store.NewTable(store.Nodes, func(struct{}, store.Object, bool) (struct{}, bool) { return struct{}{}, true }, func() {})
		answer := atomic.Pointer[error]{}
		says := func(err error) { answer.Store(&err) }
		fresh := func(want string) (f store.Fresh) {
			t.Helper()
			f, err := contact.Fresh(time.Now(), table)
			if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
				t.Fatalf("Fresh() = %v, %v, want %q", f, err, want)
			}
			return f
		}
		says(nil)
		fresh("does not answer")
		go func() { _ = contact.Run(ctx, func(context.Context) error { return *answer.Load() }, func(error) {}) }()
		time.Sleep(1500 * time.Millisecond) // never in the moment of a ping
		fresh("listing nodes: 0 so far")
		began := time.Now()
		list := func() {
			table.Begin()
			fresh("listing nodes: 0 so far")
			table.Set("a", nil)
			table.Unreadable("b", errors.New("damaged"))
			fresh("listing nodes: 2 so far")
			if err := contact.Listed(time.Now(), table); err == nil || err.Error() != "listing nodes: 2 so far" {
				t.Errorf("Listed() in a list = %v, want how far it is", err)
			}
			table.Synced()
			if err := contact.Listed(time.Now(), table); err != nil {
				t.Errorf("Listed() after a list = %v, want nil", err)
			}
		}
		list()
		table.Set("c", nil)
		fresh("listing nodes: 2 so far") // nothing confirms the list
		table.Confirmed(began)
		if f := fresh(""); !f.Confirmed.Equal(began) || !f.Since.Equal(began) {
			t.Errorf("Fresh() after a list = %+v, want all of %v", f, began)
		}

		// A source that reports nothing any more, while the store answers.
		time.Sleep(30 * time.Second)
		fresh("")
		time.Sleep(2 * time.Second)
		fresh("nodes: not confirmed for 32s")
		again := time.Now()
		table.Confirmed(again)
		if f := fresh(""); !f.Since.Equal(again) {
			t.Errorf("Fresh() after a gap = %+v, want all since %v", f, again)
		}

		// The store is away, then answers, but the source was not read since.
		says(controlplane.ErrUnavailable)
		time.Sleep(10 * time.Second)
		fresh("does not answer")
		says(nil)
		time.Sleep(2 * time.Second)
		fresh("since the store answers")
		back := time.Now()
		table.Confirmed(back)
		if f := fresh(""); f.Since.After(back) || back.Sub(f.Since) > 2*time.Second {
			t.Errorf("Fresh() after an outage = %+v, want all since about %v", f, back)
		}

		// The store goes back to an earlier state, and never stops to answer.
		says(store.ErrRestored)
		time.Sleep(time.Second)
		says(nil)
		time.Sleep(2 * time.Second)
		table.Confirmed(back)
		fresh("since the store answers")
		table.Confirmed(time.Now())
		if f := fresh(""); time.Since(f.Since) > 3*time.Second {
			t.Errorf("Fresh() of a restored store = %+v, want a gap", f)
		}
		cancel()
		synctest.Wait()
	})
}

// TestAPingCountsFromWhenItWasSent checks that an answer that took long does not prove that the store
// answers now.
func TestAPingCountsFromWhenItWasSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		contact := &store.Contact{}
		slow := func(ctx context.Context) error { time.Sleep(1900 * time.Millisecond); return nil }
		go func() { _ = contact.Run(ctx, slow, func(error) {}) }()
		time.Sleep(1950 * time.Millisecond)
		since, err := contact.Since(time.Now())
		if err != nil || time.Since(since) < 1900*time.Millisecond {
			t.Errorf("Since() = %v, %v, want when the ping was sent", time.Since(since), err)
		}
		cancel()
		synctest.Wait()
	})
}

// TestARestoreIsReportedOnce checks the Ping of the store in memory.
func TestARestoreIsReportedOnce(t *testing.T) {
	back := func(s *memory.Store, before memory.Snapshot) { s.Restore(before) }
	bumped := func(s *memory.Store, before memory.Snapshot) { s.Restore(before.Bumped()) }
	again := func(s *memory.Store, before memory.Snapshot) {
		s.Restore(before)
		s.Put(store.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	}
	for name, c := range map[string]struct {
		localTerms bool
		restore    func(*memory.Store, memory.Snapshot)
		want       error
	}{
		"etcd":                             {false, back, store.ErrRestored},
		"etcd that is as far again":        {false, again, store.ErrRestored},
		"Kubernetes":                       {true, back, store.ErrRestored},
		"Kubernetes with bumped revisions": {true, bumped, store.ErrRestored},
		"Kubernetes that is as far again":  {true, again, nil},
		"Kubernetes that was not restored": {true, func(*memory.Store, memory.Snapshot) {}, nil},
	} {
		s := memory.New(memory.Options{LocalTerms: c.localTerms})
		before := s.Snapshot()
		s.Put(store.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
		if err := s.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.restore(s, before)
		if err := s.Ping(t.Context()); !errors.Is(err, c.want) {
			t.Errorf("%s: Ping() after a restore = %v, want %v", name, err, c.want)
		}
		if err := s.Ping(t.Context()); err != nil {
			t.Errorf("%s: second Ping() after a restore = %v, want no error", name, err)
		}
	}
}
