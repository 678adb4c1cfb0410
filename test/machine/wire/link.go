package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// ErrGone means that a machine went down while a command ran in it, or before it started.
var ErrGone = errors.New("the machine went down meanwhile")

// Link is the test's end of the connection to the guest program, over all boots of a machine. It is
// safe for concurrent use.
type Link struct {
	dial func(context.Context) (net.Conn, error)

	mu      sync.Mutex
	hello   *Hello // nil while no peer answers
	out     *Writer
	calls   map[uint64]*call
	last    uint64
	changed chan struct{} // closed and replaced when hello changes
}

// call is a running command.
type call struct {
	answers chan Message
	gone    chan struct{} // closed when no answer can arrive any more
}

// NewLink returns a link over connections of dial. It is down until Run.
func NewLink(dial func(context.Context) (net.Conn, error)) *Link {
	return &Link{dial: dial, calls: map[uint64]*call{}, changed: make(chan struct{})}
}

// Run keeps the link up until ctx ends.
func (l *Link) Run(ctx context.Context) {
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

func (l *Link) talk(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer conn.Close()
	defer l.greet(nil, nil)
	out, err := NewWriter(conn)
	if err != nil {
		return
	}
	// However it ends, another connection follows.
	_ = Read(conn, func(m Message) {
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

// greet records the current peer. Calls to an earlier peer get no answer.
func (l *Link) greet(hello *Hello, out *Writer) {
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

// Await waits until an accepted peer answers, or ctx ends.
func (l *Link) Await(ctx context.Context, passes func(Hello) bool) (Hello, error) {
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
			return Hello{}, fmt.Errorf("wait for the machine to answer: %w", context.Cause(ctx))
		}
	}
}

// Streams are the input and output of a command.
type Streams struct {
	Stdin          io.Reader // no input if nil
	Stdout, Stderr io.Writer
	Sizes          <-chan Size // of the terminal, if the command has one
}

// Exec runs a command in the machine, and returns its exit code. It returns an error if the command
// could not finish: ErrGone, or the cause of ctx.
func (l *Link) Exec(ctx context.Context, run Run, std Streams) (int, error) {
	hello, err := l.Await(ctx, func(Hello) bool { return true })
	if err != nil {
		return 0, err
	}
	c := &call{answers: make(chan Message, 64), gone: make(chan struct{})}
	l.mu.Lock()
	if l.hello == nil || l.hello.Session != hello.Session {
		l.mu.Unlock()
		return 0, ErrGone
	}
	l.last++
	id, out := l.last, l.out
	l.calls[id] = c
	l.mu.Unlock()
	send := func(m Message) error {
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
	if err := send(Message{Run: &run}); err != nil {
		return 0, errors.Join(ErrGone, err)
	}
	go feed(send, std.Stdin, std.Sizes, ended)
	for {
		select {
		case m := <-c.answers:
			_, outErr := std.Stdout.Write(m.Stdout)
			_, errErr := std.Stderr.Write(m.Stderr)
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
			return 0, ErrGone
		case <-ctx.Done():
			go func() { _ = send(Message{Kill: true}) }()
			return 0, context.Cause(ctx)
		}
	}
}

// feed sends the input of the command. If a send fails, Exec gets the error.
func feed(send func(Message) error, stdin io.Reader, sizes <-chan Size, ended <-chan struct{}) {
	if sizes != nil {
		go func() {
			for {
				select {
				case size := <-sizes:
					_ = send(Message{Size: &size})
				case <-ended:
					return
				}
			}
		}()
	}
	buffer := make([]byte, Chunk)
	for stdin != nil {
		n, err := stdin.Read(buffer)
		if n > 0 && send(Message{Stdin: append([]byte(nil), buffer[:n]...)}) != nil {
			return
		}
		if err != nil {
			break
		}
	}
	_ = send(Message{EOF: true})
}
