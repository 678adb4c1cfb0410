//go:build integration

package bench_test

import (
	"errors"
	"io"
	"net"
	"path"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// call is one gRPC call that went through the proxy.
type call struct {
	method     string // such as "ListContainers"
	began      time.Time
	answered   time.Time // zero while it is in progress
	connection int
	stream     uint32
}

// proxy is a proxy between the agent and containerd that records each call. The agent's own call
// metrics are compared with these records.
type proxy struct {
	listener net.Listener
	upstream string

	mu    sync.Mutex
	calls []call
	conns int
}

// startProxy listens on a socket, for a runtime that listens on another one.
func startProxy(socket, upstream string) (*proxy, error) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, upstream: upstream}
	go func() {
		for {
			down, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go p.serve(down)
		}
	}()
	return p, nil
}

// serve forwards a connection until either end closes it.
func (p *proxy) serve(down net.Conn) {
	defer down.Close()
	up, err := net.Dial("unix", p.upstream)
	if err != nil {
		return // as if there were no listener
	}
	p.mu.Lock()
	p.conns++
	id := p.conns
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() {
		defer up.Close()
		p.requests(id, io.TeeReader(down, up))
	})
	both.Go(func() {
		defer down.Close()
		p.answers(id, io.TeeReader(up, down))
	})
	both.Wait()
}

// requests records each request until the stream ends.
func (p *proxy) requests(connection int, r io.Reader) {
	if _, err := io.ReadFull(r, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := newFramer(r)
	for {
		frame, err := f.ReadFrame()
		if err != nil && !errors.As(err, new(http2.StreamError)) {
			return
		}
		if headers, ok := frame.(*http2.MetaHeadersFrame); ok {
			p.mu.Lock()
			p.calls = append(p.calls, call{
				method: path.Base(headers.PseudoValue("path")), began: time.Now(), connection: connection, stream: headers.StreamID,
			})
			p.mu.Unlock()
		}
	}
}

// answers records the end of each answer until the stream ends.
func (p *proxy) answers(connection int, r io.Reader) {
	f := newFramer(r)
	for {
		frame, err := f.ReadFrame()
		if err != nil && !errors.As(err, new(http2.StreamError)) {
			return
		}
		if headers, ok := frame.(*http2.MetaHeadersFrame); ok && headers.StreamEnded() {
			p.mu.Lock()
			for i, c := range slices.Backward(p.calls) {
				if c.connection == connection && c.stream == headers.StreamID {
					p.calls[i].answered = time.Now()
					break
				}
			}
			p.mu.Unlock()
		}
	}
}

func newFramer(r io.Reader) *http2.Framer {
	f := http2.NewFramer(io.Discard, r)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return f
}

// since returns the calls that started at a time or later.
func (p *proxy) since(t time.Time) []call {
	p.mu.Lock()
	defer p.mu.Unlock()
	var later []call
	for _, c := range p.calls {
		if !c.began.Before(t) {
			later = append(later, c)
		}
	}
	return later
}
