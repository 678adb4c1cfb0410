// Package bus has D-Bus connections: to the system bus, with automatic reconnection, and to
// systemd's private socket. It owns dialing, deadlines and the classes of errors.
package bus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/godbus/dbus/v5"
)

// ErrUnreachable means that the system bus cannot be reached, or that the connection broke during a
// call. The caller may try again: every call connects if necessary.
var ErrUnreachable = errors.New("cannot reach the system bus")

// DefaultAddress is the address of the system bus in the D-Bus specification.
const DefaultAddress = "unix:path=/run/dbus/system_bus_socket"

// DefaultTimeout bounds every call whose context has no deadline.
const DefaultTimeout = 5 * time.Second

// Names and paths of the bus itself, and of systemd.
const (
	Name        = "org.freedesktop.DBus"
	Path        = dbus.ObjectPath("/org/freedesktop/DBus")
	Properties  = "org.freedesktop.DBus.Properties"
	Systemd     = "org.freedesktop.systemd1"
	SystemdPath = dbus.ObjectPath("/org/freedesktop/systemd1")
)

// Connection is a private connection to a bus. It connects at the first call, and at the first call
// after it broke. It is safe for concurrent use.
type Connection struct {
	address string
	timeout time.Duration

	unanswered atomic.Int32 // consecutive calls that ended with their context

	turn   chan struct{} // has one token; its holder may use the fields below
	conn   *dbus.Conn
	closed bool
}

// New returns a connection that is not connected yet. timeout applies to calls without a deadline.
func New(address string, timeout time.Duration) *Connection {
	b := &Connection{address: address, timeout: timeout, turn: make(chan struct{}, 1)}
	b.turn <- struct{}{}
	return b
}

// Bounded returns ctx with a deadline, if it has none.
func (b *Connection) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, b.timeout)
}

// Get returns the connection, and connects if necessary. If that fails, the error is
// ErrUnreachable.
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
	conn, err := Dial(ctx, b.address)
	if err != nil {
		return nil, b.unreachable(err)
	}
	b.conn = conn
	return conn, nil
}

// Close closes the connection permanently.
func (b *Connection) Close() {
	<-b.turn
	defer func() { b.turn <- struct{}{} }()
	b.closed = true
	if b.conn != nil {
		b.conn.Close()
	}
}

// Dial connects to a bus, authenticates and says hello. All of this ends with ctx: after dbus-daemon
// has died, its socket, which systemd keeps open, accepts connections and never answers.
func Dial(ctx context.Context, address string) (*dbus.Conn, error) {
	s, err := connect(address, false)
	if err != nil {
		return nil, err
	}
	return Over(ctx, s, true)
}

// Over authenticates over an existing stream and, on a bus rather than a peer, says hello.
func Over(ctx context.Context, stream io.ReadWriteCloser, hello bool) (*dbus.Conn, error) {
	conn, err := dbus.NewConn(stream, inOrder())
	if err != nil {
		return nil, err
	}
	return begin(ctx, conn, hello)
}

// CallForFile calls a method whose answer is a descriptor. It uses a connection of its own: if the
// answer is late, the kernel closes the descriptor. If it cannot connect, the error is
// ErrUnreachable.
func (b *Connection) CallForFile(ctx context.Context, dest string, path dbus.ObjectPath, method string, args ...any) (*os.File, error) {
	ctx, cancel := b.Bounded(ctx)
	defer cancel()
	if _, err := b.Get(ctx); err != nil { // also once it is closed
		return nil, err
	}
	s, err := connect(b.address, true)
	if err != nil {
		return nil, b.unreachable(err)
	}
	conn, err := Over(ctx, s, true)
	if err != nil {
		return nil, b.unreachable(err)
	}
	defer conn.Close()
	if err := Call(ctx, conn, dest, path, method, nil, args...); err != nil {
		return nil, err
	}
	return s.file()
}

func (b *Connection) unreachable(err error) error {
	return fmt.Errorf("connect to %s: %w: %w", b.address, ErrUnreachable, err)
}

// inOrder keeps signals in order. The default handler does not: if a signal's channel is full, it
// starts a goroutine.
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

// wake returns once the peer answers, or ctx has ended. systemd may read the end of the
// authentication and the first message at once. Then the message stays in its buffer until more
// data arrives, which a caller that waits for an answer never sends. With 252 and 257, more than
// half of the calls on a machine with two cores had no answer.
func wake(ctx context.Context, conn *dbus.Conn) {
	answers := make(chan *dbus.Call, 32) // a full channel would block the connection
	pause := 5 * time.Millisecond
	for asked := 0; ; asked++ {
		if asked < cap(answers) {
			conn.Object(Systemd, SystemdPath).Go("org.freedesktop.DBus.Peer.Ping", dbus.FlagNoAutoStart, answers)
		}
		select {
		case <-answers: // an error is an answer, too
			return
		case <-time.After(pause):
			pause = min(2*pause, 200*time.Millisecond)
		case <-ctx.Done():
			return
		}
	}
}

// Call calls a method and stores the answer. With FlagNoAutoStart, D-Bus reports a service that
// does not run as missing, and does not start it.
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

// ErrorName returns the D-Bus name of an error from a peer, or "".
func ErrorName(err error) string {
	var answer dbus.Error
	if errors.As(err, &answer) {
		return answer.Name
	}
	return ""
}

// Absent reports whether an error means that the peer does not exist, or has disconnected before it
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

// maxUnanswered is far below the number of messages that fit into a socket that nobody reads, about
// 160.
const maxUnanswered = 32

// NoteResult counts calls without an answer, and closes the connection if there are too many.
// Otherwise the socket would fill up, and a call would hang in a write that ignores deadlines and
// also blocks Close.
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

// HangUp closes a broken connection immediately, so that the next call connects again. The reader
// may notice the break later.
func HangUp(conn *dbus.Conn, err error) {
	if Severed(err) {
		conn.Close()
	}
}

// Severed reports whether err means that the connection broke during a call.
func Severed(err error) bool {
	var network *net.OpError
	return errors.Is(err, dbus.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.As(err, &network)
}
