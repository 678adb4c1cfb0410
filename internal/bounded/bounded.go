// Package bounded makes calls and waits that end with their context.
package bounded

import (
	"context"
	"time"
)

// Call calls f and waits until it returns or ctx ends, even if f ignores ctx. It returns f's error,
// or why ctx ended.
func Call(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Sleep waits until d has passed, or returns why ctx ended before.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
