package api

import (
	"context"
	"net"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/internal/listen"
)

// WithUID is ctx of a connection whose other end the kernel says runs as uid.
func WithUID(ctx context.Context, uid uint32) context.Context {
	return listen.WithCredentials(ctx, &unix.Ucred{Uid: uid})
}

// ListenFor listens as if the API's group had that ID, or did not exist.
func ListenFor(path string, gid int, found bool) (net.Listener, error) {
	return listen.SocketFor(path, gid, found)
}

// CallerName is the person behind a request.
var CallerName = callerName
