package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// TestContactReason checks that a refusal is not reported as a store that does not answer.
func TestContactReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		contact, answer := &store.Contact{}, atomic.Pointer[error]{}
		says := func(err error) { answer.Store(&err) }
		says(nil)
		reason := func(want error) {
			t.Helper()
			time.Sleep(6 * time.Second)
			synctest.Wait()
			if _, err := contact.Since(time.Now()); !errors.Is(err, want) {
				t.Errorf("Since() while a ping says %v: %v, want %v", *answer.Load(), err, want)
			}
		}
		if _, err := contact.Since(time.Now()); !errors.Is(err, store.ErrSilent) {
			t.Errorf("Since() before the first ping: %v, want %v", err, store.ErrSilent)
		}
		go func() { _ = contact.Run(ctx, func(context.Context) error { return *answer.Load() }, func(error) {}) }()
		reason(nil)
		says(fmt.Errorf("ping: %w", controlplane.ErrForbidden))
		reason(store.ErrRefused)
		says(fmt.Errorf("ping: %w: %w user \"server-1\"", controlplane.ErrUnavailable, controlplane.ErrUnauthorized))
		reason(store.ErrRefused)
		says(controlplane.ErrUnavailable)
		reason(store.ErrSilent)
		says(nil)
		reason(nil)
		cancel()
		synctest.Wait()
	})
}
