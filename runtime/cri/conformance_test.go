package cri_test

import (
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/runtimetest"
)

// serverDriver drives the Fake behind a server, and the server itself.
type serverDriver struct {
	runtimetest.FakeDriver
	s *server
}

func (d serverDriver) Crash(t testing.TB) (restart func()) {
	d.s.grpc.Stop()
	return func() { d.s.serve(t) }
}

// TestConforms runs the suite through a socket with servers that imitate several runtimes. The
// integration test uses real ones.
func TestConforms(t *testing.T) {
	for name, f := range map[string]flavour{
		"containerd 1.6":            containerd16,
		"ids of images as resolved": {name: "containerd", version: "1.7.1", images: digestOnly, nativeEvents: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runtimetest.Run(t, func(t *testing.T) (runtime.Runtime, runtimetest.Driver) {
				s := newServer(t, f)
				r := s.client(t, func(o *cri.Options) { o.Timeouts.Query = runtimetest.Query(t, time.Second) })
				return r, serverDriver{runtimetest.FakeDriver{Fake: s.fake}, s}
			})
		})
	}
}
