package kubernetes_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// wire is a proxy to a server. Its connections can stop working without an error, as with a
// firewall or a server after a power failure.
type wire struct {
	server   string
	listener net.Listener
	accepted atomic.Int32
	dropped  atomic.Int32 // bytes that were sent over dead connections

	mu   sync.Mutex
	dead *atomic.Bool // shared by the connections since the last heal
	all  []net.Conn
}

func newWire(t *testing.T, server string) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{server: server, listener: listener, dead: &atomic.Bool{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { w.carry(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		w.mu.Lock()
		for _, conn := range w.all {
			_ = conn.Close()
		}
		w.mu.Unlock()
		wg.Wait()
	})
	return w
}

// cut makes all present connections drop what is sent over them. Later connections work.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead.Store(true)
	w.dead = &atomic.Bool{}
}

func (w *wire) carry(client net.Conn) {
	defer func() { _ = client.Close() }()
	w.accepted.Add(1)
	server, err := net.Dial("tcp", w.server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	w.mu.Lock()
	dead := w.dead
	w.all = append(w.all, client, server)
	w.mu.Unlock()
	var wg sync.WaitGroup
	for from, to := range map[net.Conn]net.Conn{client: server, server: client} {
		wg.Go(func() {
			buf := make([]byte, 32<<10)
			for {
				n, err := from.Read(buf)
				if dead.Load() {
					w.dropped.Add(int32(n))
					_, _ = io.Copy(io.Discard, from)
					return // without closing the other side
				}
				if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
					_ = to.Close()
					return
				}
			}
		})
	}
	wg.Wait()
}
