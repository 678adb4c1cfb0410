package listen

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/internal/trust"
)

// peerKey is the context key of the caller of a unix socket, a *unix.Ucred.
type peerKey struct{}

// WithPeer stores the kernel's credentials of the caller of a unix connection in its context. It is
// for http.Server.ConnContext.
func WithPeer(ctx context.Context, c net.Conn) context.Context {
	if counted, is := c.(interface{ NetConn() net.Conn }); is {
		c = counted.NetConn()
	}
	if cred, err := trust.Peer(c); err == nil {
		ctx = WithCredentials(ctx, cred)
	}
	return ctx
}

// WithCredentials is WithPeer for credentials that are known already.
func WithCredentials(ctx context.Context, cred *unix.Ucred) context.Context {
	return context.WithValue(ctx, peerKey{}, cred)
}

// Peer returns the caller of a request over a unix socket; nil if it is unknown.
func Peer(ctx context.Context) *unix.Ucred {
	cred, _ := ctx.Value(peerKey{}).(*unix.Ucred)
	return cred
}

// IsOwn reports whether a request came over a unix socket from root or from the user of this
// process.
func IsOwn(ctx context.Context) bool {
	cred := Peer(ctx)
	return cred != nil && trust.IsOwn(cred.Uid)
}

// UserOf returns the name of the user behind a request over a unix socket. It prefers the user who
// logged in (the audit system's loginuid, see pam_loginuid(8)), which sudo does not change, to the
// user of the process.
func UserOf(ctx context.Context) string {
	cred := Peer(ctx)
	if cred == nil {
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
