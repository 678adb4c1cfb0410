package trust

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Peer returns the process at the other end of a unix connection: the process that connected or,
// for an outgoing connection, the process that listens. It fails for other connections.
func Peer(conn net.Conn) (*unix.Ucred, error) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("the process at the other end of the connection is unknown (%T)", conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	var peer *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) { peer, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return peer, errors.Join(err, asked)
}

// ServedByRoot fails with an *Error unless root or hostler's own user listens on the socket at a
// path, to which conn is a connection.
func ServedByRoot(conn net.Conn, path string) error {
	peer, err := Peer(conn)
	if err != nil {
		return fmt.Errorf("find the server of %s: %w", path, err)
	}
	if IsOwn(peer.Uid) {
		return nil
	}
	return &Error{
		Subject: path, Why: fmt.Sprintf("is served by user %d (process %d), not by root", peer.Uid, peer.Pid),
		Hint: "run the server as root, or remove the socket from the configuration",
	}
}
