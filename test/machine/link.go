package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"hostler.io/hostler/test/machine/wire"
)

// errGone tells that a machine went down while a command ran in it.
var errGone = errors.New("the machine went down meanwhile")

// link talks to the guest program, over all boots of a machine.
type link struct {
	dial func(context.Context) (net.Conn, error)

	mu      sync.Mutex
	hello   *wire.Hello // nil while nobody answers
	out     *wire.Writer
	calls   map[uint64]*call
	last    uint64
	changed chan struct{} // closed, and made anew, when hello changes
}

// call is a command that runs.
type call struct {
	answers chan wire.Message
	gone    chan struct{} // closed when no answer will come any more
}

func newLink(dial func(context.Context) (net.Conn, error)) *link {
	return &link{dial: dial, calls: map[uint64]*call{}, changed: make(chan struct{})}
}

// run keeps the link up until ctx ends.
func (l *link) run(ctx context.Context) {
	for ctx.Err() == nil {
		if conn, err := l.dial(ctx); err == nil {
			l.talk(ctx, conn)
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (l *link) talk(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer conn.Close()
	defer l.greet(nil, nil)
	out, err := wire.NewWriter(conn)
	if err != nil {
		return
	}
	// However it ends, there will be another one.
	_ = wire.Read(conn, func(m wire.Message) {
		if m.Hello != nil {
			l.greet(m.Hello, out)
			return
		}
		l.mu.Lock()
		c := l.calls[m.ID]
		current := l.hello != nil && l.hello.Session == m.Session
		l.mu.Unlock()
		if c == nil || !current {
			return
		}
		select {
		case c.answers <- m:
		case <-c.gone:
		}
	})
}

// greet takes note of who answers now. Calls to another one get no answer.
func (l *link) greet(hello *wire.Hello, out *wire.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hello != nil && hello != nil && l.hello.Session == hello.Session {
		return
	}
	for id, c := range l.calls {
		close(c.gone)
		delete(l.calls, id)
	}
	l.hello, l.out = hello, out
	close(l.changed)
	l.changed = make(chan struct{})
}

// await waits until somebody answers who passes.
func (l *link) await(ctx context.Context, passes func(wire.Hello) bool) (wire.Hello, error) {
	for {
		l.mu.Lock()
		hello, changed := l.hello, l.changed
		l.mu.Unlock()
		if hello != nil && passes(*hello) {
			return *hello, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return wire.Hello{}, fmt.Errorf("wait for the machine to answer: %w", context.Cause(ctx))
		}
	}
}

// exec runs a command in the machine, and returns its exit code. Sizes are those
// of a terminal, if the command has one.
func (l *link) exec(ctx context.Context, run wire.Run, stdin io.Reader, stdout, stderr io.Writer, sizes <-chan wire.Size) (int, error) {
	hello, err := l.await(ctx, func(wire.Hello) bool { return true })
	if err != nil {
		return 0, err
	}
	c := &call{answers: make(chan wire.Message, 64), gone: make(chan struct{})}
	l.mu.Lock()
	if l.hello == nil || l.hello.Session != hello.Session {
		l.mu.Unlock()
		return 0, errGone
	}
	l.last++
	id, out := l.last, l.out
	l.calls[id] = c
	l.mu.Unlock()
	send := func(m wire.Message) error {
		m.Session, m.ID = hello.Session, id
		return out.Write(m)
	}
	ended := make(chan struct{})
	defer func() {
		close(ended)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.calls[id] == c {
			close(c.gone)
			delete(l.calls, id)
		}
	}()
	if err := send(wire.Message{Run: &run}); err != nil {
		return 0, errors.Join(errGone, err)
	}
	go feed(send, stdin, sizes, ended)
	for {
		select {
		case m := <-c.answers:
			_, outErr := stdout.Write(m.Stdout)
			_, errErr := stderr.Write(m.Stderr)
			if err := errors.Join(outErr, errErr); err != nil {
				return 0, err
			}
			if m.Exit != nil && m.Exit.Error != "" {
				return m.Exit.Code, errors.New(m.Exit.Error)
			}
			if m.Exit != nil {
				return m.Exit.Code, nil
			}
		case <-c.gone:
			return 0, errGone
		case <-ctx.Done():
			go func() { _ = send(wire.Message{Kill: true}) }()
			return 0, context.Cause(ctx)
		}
	}
}

// feed sends what the command is to read. Where it cannot, exec learns why.
func feed(send func(wire.Message) error, stdin io.Reader, sizes <-chan wire.Size, ended <-chan struct{}) {
	if sizes != nil {
		go func() {
			for {
				select {
				case size := <-sizes:
					_ = send(wire.Message{Size: &size})
				case <-ended:
					return
				}
			}
		}()
	}
	buffer := make([]byte, wire.Chunk)
	for stdin != nil {
		n, err := stdin.Read(buffer)
		if n > 0 && send(wire.Message{Stdin: append([]byte(nil), buffer[:n]...)}) != nil {
			return
		}
		if err != nil {
			break
		}
	}
	_ = send(wire.Message{EOF: true})
}
