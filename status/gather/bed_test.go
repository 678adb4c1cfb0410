package gather

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime/discovery"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status/probe"
)

// bed is a small virtual machine with one container runtime that was checked once. It lives in a
// synctest bubble.
type bed struct {
	facts    *Facts
	runtimes *discovery.Runtimes
	runtime  *runtimetest.Fake
	guard    shutdown.Status
}

func bubble(t *testing.T, test func(t *testing.T, b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{
			runtimes: opened(t),
			runtime:  runtimetest.NewFake(runtimetest.Options{Name: "containerd"}),
			guard:    shutdown.Status{State: shutdown.Armed, Reason: "shutdown lock held"},
		}
		t.Cleanup(func() { _ = b.runtime.Close() })
		if err := b.runtimes.Set().Add(b.runtime); err != nil {
			t.Fatal(err)
		}
		if err := b.runtimes.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.facts = factsOf(t, b.runtimes, func() shutdown.Status { return b.guard })
		test(t, b)
	})
}

// factsOf returns the Facts of a small virtual machine with these runtimes.
func factsOf(t *testing.T, r *discovery.Runtimes, guard func() shutdown.Status) *Facts {
	t.Helper()
	reader, err := probe.New("../../test/hosts/small-vm")
	if err != nil {
		t.Fatal(err)
	}
	machine, err := reader.Machine()
	if err != nil {
		t.Fatal(err)
	}
	return NewFacts(FactsOptions{
		MaxImages: func() int { return -1 },
		Reader:    reader, Folder: "/", Runtimes: r, Machine: machine, Guard: guard,
	})
}

// disarmed returns the status of a guard without a lock.
func disarmed() shutdown.Status { return shutdown.Status{} }

// opened returns Runtimes without any known runtime.
func opened(t *testing.T) *discovery.Runtimes {
	t.Helper()
	r, err := discovery.New(discovery.Options{
		Observe: func(string, string, time.Duration, error) {},
		Log:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}
