package api

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/internal/trust"
)

// peerKey is that of who is at the other end: a *unix.Ucred over the socket, certified
// over the network.
type peerKey struct{}

// withPeer notes who is at the other end of a unix connection.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if counted, is := c.(interface{ NetConn() net.Conn }); is {
		c = counted.NetConn()
	}
	if cred := credentials(c); cred != nil {
		ctx = context.WithValue(ctx, peerKey{}, cred)
	}
	return ctx
}

// credentials are those that the kernel has of the other end; nil where it has none.
func credentials(c net.Conn) *unix.Ucred {
	cred, err := trust.Peer(c)
	if err != nil {
		return nil
	}
	return cred
}

// refuses says why the caller may not act; nil if they may: root, whoever runs as the
// agent does, and whom the configuration lets.
func refuses(ctx context.Context) *Error {
	switch peer := ctx.Value(peerKey{}).(type) {
	case *unix.Ucred:
		if trust.IsOwn(peer.Uid) {
			return nil
		}
	case certified:
		if peer.acts {
			return nil
		}
		return &Error{Message: fmt.Sprintf("%q may only read", peer.name), Hint: "on the host, move the name to api.tls.allowedNames.act, then `hostler reload`"}
	}
	return &Error{Message: "only root may do this", Hint: "run the command with sudo"}
}

// callerName names the person behind a request. Over the socket it is who logged in, also
// where sudo stands in between (the audit system's loginuid, see pam_loginuid(8)), else
// the user that the command runs as; over the network, whose certificate it is.
func callerName(ctx context.Context) string {
	if peer, is := ctx.Value(peerKey{}).(certified); is {
		return "certificate " + peer.name
	}
	cred, ok := ctx.Value(peerKey{}).(*unix.Ucred)
	if !ok {
		return "nobody known"
	}
	uid := strconv.FormatUint(uint64(cred.Uid), 10)
	if login, err := os.ReadFile(fmt.Sprintf("/proc/%d/loginuid", cred.Pid)); err == nil {
		const unset = "4294967295"
		if login := string(bytes.TrimSpace(login)); login != "" && login != unset {
			uid = login
		}
	}
	if u, err := user.LookupId(uid); err == nil {
		return u.Username
	}
	return "uid " + uid
}

const (
	// perUser bounds the connections of one user to the socket, root among them, so that
	// a program that hangs keeps out no other user.
	perUser = 32
	// allUsers bounds those of all users but root and the agent's own.
	allUsers = 128
)

// crowded is what one hears whose connection is too much.
const crowded = `{"error":"too many connections to the agent are open","hint":"see which programs of yours hold some: ` + "`ss -xp`" + `"}` + "\n"

// Bounded bounds the connections to the socket.
func Bounded(l net.Listener, log *slog.Logger) net.Listener {
	return listen.Bound(l, listen.Bounds{Each: perUser, All: allUsers, First: true, Log: log, Who: func(c net.Conn) (any, bool) {
		cred := credentials(c)
		if cred == nil {
			return "unknown", false
		}
		return "uid " + strconv.FormatUint(uint64(cred.Uid), 10), trust.IsOwn(cred.Uid)
	}, Refuse: func(c net.Conn) {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // it fits into the socket's buffer
		_, _ = fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(crowded), crowded)
	}})
}
