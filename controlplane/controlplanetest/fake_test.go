package controlplanetest

import (
	"context"
	"flag"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/conformance"
)

var update = flag.Bool("update", false, "rewrite the results of the checks")

func backend(fake *Fake) Backend {
	return Backend{
		Client: fake, Edit: fake.Edit, Inject: fake.InjectFault, MaxEvents: FakeMaxEvents,
		RequestPace: func(_ context.Context, duration string) error {
			fake.RequestPace(duration)
			return nil
		},
	}
}

func TestTheFakeConforms(t *testing.T) {
	RunInBubbles(t, func(*testing.T) Backend { return backend(NewFake(nil)) })
}

func TestAFakeThatKeepsNodesConforms(t *testing.T) {
	RunInBubbles(t, func(*testing.T) Backend {
		fake := NewFake(nil)
		fake.KeepNodes()
		b := backend(fake)
		b.Keeps = true
		return b
	})
}

func TestAFakeThatEndsLeasesConforms(t *testing.T) {
	record(t, "fake", *update, RunInBubbles(t, func(*testing.T) Backend {
		fake := NewFake(nil)
		fake.ExpireLeases()
		b := backend(fake)
		b.Expires = true
		return b
	}))
}

// broken are clients that each break one promise, by the name of the check that has to find it.
var broken = map[string]func(*Fake) controlplane.Client{
	"of many machines that register one name at once, one gets it":                       func(f *Fake) controlplane.Client { return &forgiving{Fake: f} },
	"of two machines, the one that holds the lease gets the node":                        func(f *Fake) controlplane.Client { return &unheld{Fake: f} },
	"a status and concurrent changes of others are both stored":                          func(f *Fake) controlplane.Client { return &overwriting{Fake: f} },
	"a lease that is not renewed is removed, and counts as expired":                      func(f *Fake) controlplane.Client { f.store.End(false); return f },
	"events keep their order":                                                            func(f *Fake) controlplane.Client { return &backwards{Fake: f} },
	"events are published with any valid object name":                                    func(f *Fake) controlplane.Client { return &narrow{Fake: f} },
	"a call ends whenever it is cancelled, and leaves nothing behind":                    func(f *Fake) controlplane.Client { return &leaking{Fake: f} },
	"a slow answer is awaited until the caller's deadline":                               func(f *Fake) controlplane.Client { return &stubborn{Fake: f} },
	"a call that is never answered ends when it is cancelled, and leaves nothing behind": func(f *Fake) controlplane.Client { return &stubborn{Fake: f} },
	"a call that is never answered ends by its own deadline":                             func(f *Fake) controlplane.Client { return &unbounded{Fake: f} },
	"a call whose answer was lost can be repeated":                                       func(f *Fake) controlplane.Client { return &twice{Fake: f} },
	"an answer with another object is rejected":                                          func(f *Fake) controlplane.Client { return f },
	"names at the length limit are accepted, longer ones refused":                        func(f *Fake) controlplane.Client { return &narrow{Fake: f} },
}

func TestEachNewCheckFindsABrokenClient(t *testing.T) {
	found := 0
	for _, check := range conformance.Checks() {
		breaks, known := broken[check.Name]
		if !known {
			continue
		}
		found++
		t.Run(check.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := NewFake(nil)
				fake.ExpireLeases()
				b := backend(fake)
				b.Expires = true
				b.Client = breaks(fake)
				b.Inject = func(fault conformance.Fault) (func(), error) {
					if fault == conformance.WrongObject {
						return func() {}, nil // the control plane believes any answer
					}
					return fake.InjectFault(fault)
				}
				if r := conformance.Try(t.Context(), check, &b); r.Status != conformance.Failed {
					t.Errorf("Try() with a client that breaks the promise = %s %q, want it failed", r.Status, r.Message)
				} else {
					t.Log(r.Message)
				}
				time.Sleep(time.Hour) // goroutines of the broken clients end by then
			})
		})
	}
	if found != len(broken) {
		t.Errorf("checks that are tried = %d, want all %d: some have another name now", found, len(broken))
	}
}
