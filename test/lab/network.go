package lab

import (
	goruntime "runtime"
	"testing"

	"github.com/vishvananda/netns"
)

// InNetwork moves the test's goroutine to a thread with its own network namespace, which ends with
// the test. A netlink socket belongs to the namespace of the thread that opens it.
func InNetwork(tb testing.TB) {
	tb.Helper()
	goruntime.LockOSThread()
	before, err := netns.Get()
	if err != nil {
		tb.Fatal(err)
	}
	own, err := netns.New()
	if err != nil {
		tb.Fatalf("make a network namespace (needs root): %v", err)
	}
	tb.Cleanup(func() {
		if err := netns.Set(before); err != nil {
			tb.Fatal(err) // the thread stays locked, and ends with the goroutine
		}
		own.Close()
		before.Close()
		goruntime.UnlockOSThread()
	})
}
