// Package listen opens the agent to callers: how many connections each of them may have,
// and over the network TLS, by files that are read anew as they change. It owns listeners,
// certificates and authorities, and refuses to know what is served, or to whom.
package listen

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
)

// Bounds are of the connections that may be open at a time, and how callers are told
// apart. golang.org/x/net/netutil's LimitListener counts all callers as one: one that
// hangs would lock out all others, root's `hostler status` with them.
type Bounds struct {
	Each int // for one caller
	All  int // for all together, but those whom Who calls own
	// Who names the caller, by a value that can be compared; own is one who is never kept
	// out by others.
	Who func(net.Conn) (caller any, own bool)
	// Refuse says why to one who is kept out; it may be nil. It does not wait.
	Refuse func(net.Conn)
	Log    *slog.Logger
}

// Bound returns l, closing at once whatever is too much.
func Bound(l net.Listener, b Bounds) net.Listener {
	return &bounded{Listener: l, Bounds: b, open: map[any]int{}, refused: map[any]bool{}}
}

type bounded struct {
	net.Listener
	Bounds

	mu      sync.Mutex   // guards what follows
	open    map[any]int  // by caller
	others  int          // of those that are not own
	refused map[any]bool // who was kept out, until half of the bounds is free
}

// Accept implements net.Listener.
func (l *bounded) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
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

// enter counts a connection, unless it is too much. Trouble is logged when it begins.
func (l *bounded) enter(caller any, own bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[caller] < l.Each && (own || l.others < l.All) {
		l.open[caller]++
		if !own {
			l.others++
		}
		return true
	}
	if !l.refused[caller] && len(l.refused) < l.All { // addresses are many
		l.refused[caller] = true
		l.Log.Warn("connections are refused: too many are open", "caller", fmt.Sprint(caller), "open", l.open[caller], "all", l.others)
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
	if l.others > l.All/2 { // else each that ends would be told, and the next one again
		return
	}
	for who := range l.refused {
		if l.open[who] <= l.Each/2 {
			delete(l.refused, who)
			l.Log.Info("connections are accepted again", "caller", fmt.Sprint(who))
		}
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

// CloseWrite lets an HTTP server end an answer in good order, where the connection can.
func (c *conn) CloseWrite() error {
	if half, able := c.Conn.(interface{ CloseWrite() error }); able {
		return half.CloseWrite()
	}
	return nil
}

// NetConn is the connection that is counted, as of a tls.Conn.
func (c *conn) NetConn() net.Conn { return c.Conn }
