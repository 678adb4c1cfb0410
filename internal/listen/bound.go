// Package listen has listeners with limits: it bounds the connections of each caller, and serves
// TLS from files that it reads again when they change. It owns listeners, certificates and
// authorities. It does not know what is served, nor who may call what.
package listen

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds limit the open connections of each caller and of all callers. LimitListener of
// golang.org/x/net/netutil counts all callers as one: one caller that hangs would lock out all
// others, including root's `hostler status`.
type Bounds struct {
	Each int // for one caller
	All  int // for all callers for which Who does not return own
	// Who returns a comparable value that identifies the caller. All does not apply to a caller
	// that is own.
	Who func(net.Conn) (caller any, own bool)
	// Refuse answers a caller whose connection is refused; may be nil. It must not block.
	Refuse func(net.Conn)
	// First keeps a spare descriptor open, so that a connection can be accepted after the process
	// has used all others.
	First bool
	Log   *slog.Logger
}

// share limits the connections of a listener to this fraction (1/share) of the process's
// descriptors. The agent needs the others for its own work.
const share = 16

const (
	// firstPause and otherPause are the pauses between attempts to accept while descriptors or
	// memory are short.
	firstPause = 20 * time.Millisecond
	otherPause = time.Second
	// quietTime is how long after its last refused connection a caller counts as accepted again. It
	// keeps a caller that connects repeatedly from filling the log.
	quietTime = time.Minute
)

// within lowers the bounds to fit the process's limit of descriptors.
func (b Bounds) within(descriptors uint64) Bounds {
	if most := int(min(descriptors/share, uint64(b.All))); most < b.All {
		b.Each, b.All = max(1, b.Each*most/b.All), max(1, most)
	}
	return b
}

// Bound returns l with bounds: connections beyond them are closed at once. Accept waits while there
// are no descriptors or no memory, see accept(2).
func Bound(l net.Listener, b Bounds) net.Listener {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		if fewer := b.within(limit.Cur); fewer.All < b.All {
			b = fewer
			b.Log.Warn("low limit of open files, accepting fewer connections", "address", l.Addr(), "limit", limit.Cur, "each", b.Each, "all", b.All)
		}
	}
	return &bounded{Listener: l, Bounds: b, closed: make(chan struct{}), open: map[any]int{}, refused: map[any]time.Time{}, quiet: quietTime}
}

type bounded struct {
	net.Listener
	Bounds
	spare  *os.File      // for First; used only by Accept, which one goroutine calls
	short  bool          // whether descriptors or memory were short at the last Accept
	closed chan struct{} // closed by Close
	quiet  time.Duration // see quietTime
	ending sync.Once

	mu      sync.Mutex        // guards the fields below
	open    map[any]int       // by caller
	others  int               // connections of callers that are not own
	refused map[any]time.Time // when a connection of each caller was last refused
}

// Accept implements net.Listener.
func (l *bounded) Accept() (net.Conn, error) {
	for {
		c, err := l.accept()
		if err != nil {
			return nil, err
		}
		caller, own := l.Who(c)
		if l.enter(caller, own) {
			return &conn{Conn: c, leave: sync.OnceFunc(func() { l.leave(caller, own) })}, nil
		}
		if l.Refuse != nil {
			l.Refuse(c)
		}
		_ = c.Close()
	}
}

// accept waits for a connection.
func (l *bounded) accept() (net.Conn, error) {
	for {
		if l.First && l.spare == nil {
			l.spare, _ = os.Open(os.DevNull) // if this fails, the next round tries again
		}
		c, err := l.Listener.Accept()
		if isShortage(err) && l.spare != nil {
			_ = l.spare.Close() // to free its descriptor
			l.spare = nil
			c, err = l.Listener.Accept()
		}
		if l.note(err); !l.short {
			if err != nil && l.spare != nil {
				_ = l.spare.Close()
				l.spare = nil
			}
			return c, err
		}
		pause := time.NewTimer(l.pause())
		select {
		case <-pause.C:
		case <-l.closed:
			pause.Stop()
			return nil, net.ErrClosed
		}
	}
}

// pause returns the pause between two attempts to accept. A listener with First tries more often.
func (l *bounded) pause() time.Duration {
	if l.First {
		return firstPause
	}
	return otherPause
}

// note logs when a shortage begins and ends.
func (l *bounded) note(err error) {
	short := isShortage(err)
	switch {
	case short && !l.short:
		l.Log.Error("cannot accept connections", "address", l.Addr(), "error", err)
	case l.short && err == nil:
		l.Log.Info("accepting connections again", "address", l.Addr())
	}
	l.short = short
}

// isShortage reports whether Accept failed because the process or the host has too few descriptors
// or too little memory, see accept(2).
func isShortage(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM)
}

// Close implements net.Listener.
func (l *bounded) Close() error {
	l.ending.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// enter counts a connection and returns true, or returns false if it exceeds the bounds. It logs
// the first refused connection of a caller, and later that the caller is accepted again.
func (l *bounded) enter(caller any, own bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for who, last := range l.refused {
		if now.Sub(last) > l.quiet {
			delete(l.refused, who)
			l.Log.Info("accepting connections again", "caller", fmt.Sprint(who))
		}
	}
	if l.open[caller] < l.Each && (own || l.others < l.All) {
		l.open[caller]++
		if !own {
			l.others++
		}
		return true
	}
	_, known := l.refused[caller]
	switch {
	case known:
		l.refused[caller] = now
	case len(l.refused) < l.All: // bounded, because there may be many addresses
		l.refused[caller] = now
		l.Log.Warn("refusing connections: too many are open", "caller", fmt.Sprint(caller), "open", l.open[caller], "all", l.others)
	}
	return false
}

func (l *bounded) leave(caller any, own bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[caller]--
	if !own {
		l.others--
	}
	if l.open[caller] == 0 {
		delete(l.open, caller)
	}
}

// conn is a connection that is counted until it is closed.
type conn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// CloseWrite lets an HTTP server end a response cleanly, if the connection supports it.
func (c *conn) CloseWrite() error {
	if half, able := c.Conn.(interface{ CloseWrite() error }); able {
		return half.CloseWrite()
	}
	return nil
}

// NetConn returns the inner connection, as tls.Conn does.
func (c *conn) NetConn() net.Conn { return c.Conn }
