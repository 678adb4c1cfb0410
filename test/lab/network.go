package lab

import (
	goruntime "runtime"
	"testing"

	"github.com/vishvananda/netns"
)

// InNetwork runs the rest of the test on a thread with a network namespace of its
// own, which goes with the test. Netlink sockets belong to the namespace of the
// thread that opens them.
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
			tb.Fatal(err) // the thread stays locked and ends with the goroutine
		}
		own.Close()
		before.Close()
		goruntime.UnlockOSThread()
	})
}
