package listen

import (
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"hostler.io/hostler/internal/trust"
)

const (
	// perSocketUser bounds the connections of one user, root included, so that a program that hangs
	// does not lock out other users.
	perSocketUser = 32
	// allSocketUsers bounds the connections of all users except root and the agent's own.
	allSocketUsers = 128
)

// tooManyConnections is the response to a connection beyond the bounds.
const tooManyConnections = `{"error":"too many connections to this socket are open","hint":"see which programs of yours hold some: ` + "`ss -xp`" + `"}` + "\n"

// Users bounds the connections of each user to a unix socket.
func Users(l net.Listener, log *slog.Logger) net.Listener {
	return Bound(l, Bounds{Each: perSocketUser, All: allSocketUsers, First: true, Log: log, Who: func(c net.Conn) (any, bool) {
		cred, err := trust.Peer(c)
		if err != nil {
			return "unknown", false
		}
		return "uid " + strconv.FormatUint(uint64(cred.Uid), 10), trust.IsOwn(cred.Uid)
	}, Refuse: func(c net.Conn) {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // does not block: the response fits into the socket's buffer
		_, _ = fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(tooManyConnections), tooManyConnections)
	}})
}
