package runtimetest_test

import (
	"testing"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

func TestFakeConforms(t *testing.T) {
	runtimetest.RunInBubble(t, func(t *testing.T) (runtime.Runtime, runtimetest.Driver) {
		f := runtimetest.NewFake(runtimetest.Options{SandboxImage: "registry.k8s.io/pause:3.9"})
		t.Cleanup(func() {
			if err := f.Close(); err != nil {
				t.Errorf("Close() = %v", err)
			}
		})
		return f, runtimetest.FakeDriver{Fake: f}
	})
}
