package controlplanetest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"hostler.io/hostler/controlplane/conformance"
)

// slowDelay is the delay of a Wire with the fault Slow.
const slowDelay = 250 * time.Millisecond

// Wire is a TCP proxy between clients and a server that causes faults in the server's answers. It
// knows no protocol: for wrong objects, it connects clients to another server. Use NewWire.
type Wire struct {
	// Tamper is the address of a server that answers like the real one, but with other objects than
	// were requested; empty if there is none. Set it before the first use.
	Tamper string

	listener net.Listener
	server   string
	serving  sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	fault conformance.Fault
	ends  map[net.Conn]bool // both ends of all connections
}

// NewWire returns a wire to the server at that address, HOST:PORT. The caller closes it.
func NewWire(server string) (*Wire, error) {
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return nil, fmt.Errorf("start proxy to %s: %w", server, err)
	}
	w := &Wire{listener: listener, server: server, ends: map[net.Conn]bool{}}
	w.serving.Go(w.serve)
	return w, nil
}

// Port is the port of the proxy on localhost.
func (w *Wire) Port() int { return w.listener.Addr().(*net.TCPAddr).Port }

// InjectFault is the Inject of a conformance.Backend.
func (w *Wire) InjectFault(f conformance.Fault) (restore func(), err error) {
	if f != conformance.WrongObject {
		w.set(f)
		return func() { w.set("") }, nil
	}
	if w.Tamper == "" {
		return nil, &conformance.UntriedError{Why: "the server proves its identity, so no test bed can answer in its place"}
	}
	w.set(f)
	w.cut()
	return sync.OnceFunc(func() { w.set(""); w.cut() }), nil
}

// cut breaks all connections. New ones go to the present target.
func (w *Wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for end := range w.ends {
		_ = end.Close()
	}
}

// target returns the target of new connections.
func (w *Wire) target() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fault == conformance.WrongObject {
		return w.Tamper
	}
	return w.server
}

func (w *Wire) set(f conformance.Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
}

// Close cuts all connections, and returns when nothing is sent any more.
func (w *Wire) Close() error {
	err := w.listener.Close()
	w.cut()
	w.serving.Wait()
	return err
}

func (w *Wire) serve() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return // it was closed
		}
		to := w.target()
		server, err := net.DialTimeout("tcp", to, 10*time.Second)
		if err != nil {
			_ = client.Close()
			continue
		}
		w.mu.Lock()
		w.ends[client], w.ends[server] = true, true
		w.mu.Unlock()
		if to != w.target() { // the target changed while this connection was dialed
			w.cut()
		}
		cut := func() {
			_, _ = client.Close(), server.Close()
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.ends, client)
			delete(w.ends, server)
		}
		w.serving.Go(func() { _, _ = io.Copy(server, client); cut() })
		w.serving.Go(func() { _ = w.forward(client, server); cut() })
	}
}

// forward forwards what the server sends. A connection that has lost data forwards nothing more, even
// after the fault has ended, because the rest would make no sense.
func (w *Wire) forward(client io.Writer, server io.Reader) error {
	dropped := false
	for chunk := make([]byte, 64<<10); ; {
		n, err := server.Read(chunk)
		if err != nil {
			return err
		}
		w.mu.Lock()
		fault := w.fault
		w.mu.Unlock()
		switch {
		case fault == conformance.Lost:
			return errors.New("connection broken")
		case fault == conformance.NoAnswer || dropped:
			dropped = true
			continue
		case fault == conformance.Slow:
			time.Sleep(slowDelay)
		}
		if _, err := client.Write(chunk[:n]); err != nil {
			return err
		}
	}
}
