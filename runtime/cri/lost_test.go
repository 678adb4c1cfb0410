package cri_test

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
)

// A call right after the end of the runtime has not reached it. The caller must not assume that the
// container was sent its stop signal.
func TestACallAfterTheEndOfTheRuntimeIsNotLost(t *testing.T) {
	s := newServer(t, containerd16)
	for i := range 50 {
		path := filepath.Join(filepath.Dir(s.socket), strconv.Itoa(i))
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		conns := make(chan net.Conn, 1)
		go relay(l, s.socket, conns)
		r := s.client(t, func(o *cri.Options) { o.Endpoint = path })
		if _, err := r.Pods(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		_ = (<-conns).Close()
		err = r.StopContainer(t.Context(), runtime.Container{ID: "c1"}, time.Minute)
		if !errors.Is(err, runtime.ErrUnavailable) || errors.Is(err, runtime.ErrLost) {
			t.Fatalf("StopContainer() after the end of the runtime: %v, want ErrUnavailable and not ErrLost", err)
		}
	}
}

// relay connects the connection that l accepts with a socket, and sends it on accepted.
func relay(l net.Listener, socket string, accepted chan<- net.Conn) {
	conn, err := l.Accept()
	if err != nil {
		return
	}
	server, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	accepted <- conn
	go func() { _, _ = io.Copy(server, conn); _ = server.Close() }()
	_, _ = io.Copy(conn, server)
}
