package api

import (
	"context"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/internal/listen"
)

// WithUID returns the context of a connection whose peer runs as uid.
func WithUID(ctx context.Context, uid uint32) context.Context {
	return listen.WithCredentials(ctx, &unix.Ucred{Uid: uid})
}

// ListenFor listens as if the API's group had this ID, or did not exist.
func ListenFor(path string, gid int, found bool) (net.Listener, error) {
	return listen.SocketFor(path, gid, found)
}

// CallerName returns the caller.
var CallerName = callerName

// Patient makes a client wait for an answer that takes long on a busy machine.
func Patient(c *Client) *Client {
	c.answer = time.Hour
	return c
}
