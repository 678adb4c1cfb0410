package discovery

import (
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runtimetest"
)

// bed has one container runtime that was checked once. It lives in a synctest bubble.
type bed struct {
	runtimes *Runtimes
	runtime  *runtimetest.Fake
}

func bubble(t *testing.T, test func(t *testing.T, b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{runtimes: opened(t), runtime: runtimetest.NewFake(runtimetest.Options{Name: "containerd"})}
		t.Cleanup(func() { _ = b.runtime.Close() })
		if err := b.runtimes.Set().Add(b.runtime); err != nil {
			t.Fatal(err)
		}
		if err := b.runtimes.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		test(t, b)
	})
}

// opened returns Runtimes for these sockets.
func opened(t *testing.T, sockets ...string) *Runtimes {
	t.Helper()
	var configured []local.Candidate
	for _, socket := range sockets {
		configured = append(configured, local.Candidate{Type: cri.Type, Path: socket})
	}
	r, err := New(Options{
		Configured: configured,
		Observe:    func(string, string, time.Duration, error) {},
		Log:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// folder returns a short path, because a socket's path has at most 107 bytes.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "host")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
