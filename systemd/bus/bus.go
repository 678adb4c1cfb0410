// Package bus speaks D-Bus: to the system bus over a connection that reconnects by itself, and to
// systemd over its private socket. It owns dialling, deadlines and the meaning of errors.
package bus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/godbus/dbus/v5"
)

// ErrUnreachable means that the system bus cannot be reached, or was lost under a
// call. The caller may try again: every call connects again.
var ErrUnreachable = errors.New("cannot reach the system bus")

// DefaultAddress is the address of the system bus, as the D-Bus specification
// fixes it.
const DefaultAddress = "unix:path=/run/dbus/system_bus_socket"

// DefaultTimeout bounds every call whose context has no deadline of its own.
const DefaultTimeout = 5 * time.Second

// Names and paths of the bus itself, and of systemd.
const (
	Name        = "org.freedesktop.DBus"
	Path        = dbus.ObjectPath("/org/freedesktop/DBus")
	Properties  = "org.freedesktop.DBus.Properties"
	Systemd     = "org.freedesktop.systemd1"
	SystemdPath = dbus.ObjectPath("/org/freedesktop/systemd1")
)

// Connection is one private connection to a bus, dialled at the first call and
// again at the first call after it broke. It is safe for concurrent use.
type Connection struct {
	address string
	timeout time.Duration

	unanswered atomic.Int32 // calls in a row that ended with their context

	turn   chan struct{} // one token; its holder may use what follows
	conn   *dbus.Conn
	closed bool
}

// New returns a connection that is not dialled yet. The timeout bounds what is
// done without a deadline.
func New(address string, timeout time.Duration) *Connection {
	b := &Connection{address: address, timeout: timeout, turn: make(chan struct{}, 1)}
	b.turn <- struct{}{}
	return b
}

// Bounded gives ctx the deadline that it lacks.
func (b *Connection) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, b.timeout)
}

// Get returns the live connection, dialling where there is none. ErrUnreachable
// where that fails.
func (b *Connection) Get(ctx context.Context) (*dbus.Conn, error) {
	select {
	case <-b.turn:
		defer func() { b.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if b.closed {
		return nil, fmt.Errorf("%w: connection closed by hostler", ErrUnreachable)
	}
	if b.conn != nil && b.conn.Connected() {
		return b.conn, nil
	}
	conn, err := Dial(ctx, b.address, true)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w: %w; is the dbus service installed and running?", b.address, ErrUnreachable, err)
	}
	b.conn = conn
	return conn, nil
}

// Close ends the connection for good.
func (b *Connection) Close() {
	<-b.turn
	defer func() { b.turn <- struct{}{} }()
	b.closed = true
	if b.conn != nil {
		b.conn.Close()
	}
}

// Dial connects, authenticates and, on a bus rather than a peer, says hello.
// All of it ends with ctx: a socket that systemd keeps open for a dead
// dbus-daemon accepts the connection and then never answers.
func Dial(ctx context.Context, address string, hello bool) (*dbus.Conn, error) {
	conn, err := dbus.Dial(address, inOrder())
	if err != nil {
		return nil, err
	}
	return begin(ctx, conn, hello)
}

// Over is Dial over a stream that is connected already.
func Over(ctx context.Context, stream io.ReadWriteCloser, hello bool) (*dbus.Conn, error) {
	conn, err := dbus.NewConn(stream, inOrder())
	if err != nil {
		return nil, err
	}
	return begin(ctx, conn, hello)
}

// inOrder keeps signals in their order, which the default handler does not: it starts a
// goroutine for one that finds its channel full.
func inOrder() dbus.ConnOption { return dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()) }

// begin authenticates and says hello, until ctx ends.
func begin(ctx context.Context, conn *dbus.Conn, hello bool) (*dbus.Conn, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err := conn.Auth(nil)
	switch {
	case err != nil:
	case hello:
		err = conn.Hello()
	default:
		wake(ctx, conn)
	}
	if !stop() {
		conn.Close()
		return nil, ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// wake returns once the peer answers, or ctx has ended. systemd may read the end
// of the authentication and the first message behind it at once; the message
// then lies in its buffer until more arrives, which a caller that waits for its
// answer never sends (seen with 252 and 257: more than half of the questions on
// a machine of two cores went unanswered).
func wake(ctx context.Context, conn *dbus.Conn) {
	answers := make(chan *dbus.Call, 32) // one that finds no space would block the connection
	pause := 5 * time.Millisecond
	for asked := 0; ; asked++ {
		if asked < cap(answers) {
			conn.Object(Systemd, SystemdPath).Go("org.freedesktop.DBus.Peer.Ping", dbus.FlagNoAutoStart, answers)
		}
		select {
		case <-answers: // a refusal, too, is an answer
			return
		case <-time.After(pause):
			pause = min(2*pause, 200*time.Millisecond)
		case <-ctx.Done():
			return
		}
	}
}

// Call calls a method and stores the answer. FlagNoAutoStart: a service that does not run must be
// reported as such, and not be started.
func Call(ctx context.Context, conn *dbus.Conn, dest string, path dbus.ObjectPath, method string, answer any, args ...any) error {
	reply := conn.Object(dest, path).CallWithContext(ctx, method, dbus.FlagNoAutoStart, args...)
	if reply.Err != nil {
		HangUp(conn, reply.Err)
		return reply.Err
	}
	if answer == nil {
		return nil
	}
	return reply.Store(answer)
}

// Property reads one property into answer.
func Property(ctx context.Context, conn *dbus.Conn, dest string, path dbus.ObjectPath, iface, name string, answer any) error {
	var value dbus.Variant
	if err := Call(ctx, conn, dest, path, Properties+".Get", &value, iface, name); err != nil {
		return err
	}
	if err := value.Store(answer); err != nil {
		return fmt.Errorf("property %s.%s: %w", iface, name, err)
	}
	return nil
}

// ErrorName is the D-Bus name of an error that a peer answered, or empty.
func ErrorName(err error) string {
	var answer dbus.Error
	if errors.As(err, &answer) {
		return answer.Name
	}
	return ""
}

// Absent reports whether an error means that the peer does not exist, or has left before it
// answered.
func Absent(err error) bool {
	name := ErrorName(err)
	switch name {
	case "org.freedesktop.DBus.Error.ServiceUnknown",
		"org.freedesktop.DBus.Error.NameHasNoOwner",
		"org.freedesktop.DBus.Error.NoReply",
		"org.freedesktop.DBus.Error.Disconnected":
		return true
	}
	return strings.HasPrefix(name, "org.freedesktop.DBus.Error.Spawn.")
}

// maxUnanswered is far under the number of messages that fit into a socket that
// nobody reads, which is about 160.
const maxUnanswered = 32

// NoteResult takes in how a call ended. A bus from which nothing returns any more
// is hung up on: once its socket is full, a call hangs in the write, which no
// deadline ends, and so does closing the connection.
func (b *Connection) NoteResult(conn *dbus.Conn, err error) {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		b.unanswered.Store(0)
		return
	}
	if b.unanswered.Add(1) >= maxUnanswered {
		b.unanswered.Store(0)
		conn.Close()
	}
}

// HangUp gives a broken connection up at once, so that the next call connects
// again: the reader may take a moment longer to notice.
func HangUp(conn *dbus.Conn, err error) {
	if Severed(err) {
		conn.Close()
	}
}

// Severed reports whether err means that the connection broke under a call.
func Severed(err error) bool {
	var network *net.OpError
	return errors.Is(err, dbus.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.As(err, &network)
}
