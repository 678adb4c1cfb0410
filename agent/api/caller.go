package api

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

// peerKey is the context key of the caller: a *unix.Ucred over the socket, certified over the
// network.
type peerKey struct{}

// withPeer stores the caller of a unix connection in its context.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if counted, is := c.(interface{ NetConn() net.Conn }); is {
		c = counted.NetConn()
	}
	if cred := credentials(c); cred != nil {
		ctx = context.WithValue(ctx, peerKey{}, cred)
	}
	return ctx
}

// credentials returns the credentials of the caller from the kernel; nil if there are none.
func credentials(c net.Conn) *unix.Ucred {
	cred, err := trust.Peer(c)
	if err != nil {
		return nil
	}
	return cred
}

// refuses returns why the caller may not act. Root, the agent's user and callers that the
// configuration allows may.
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

// callerName names the person behind a request. Over the socket it is the user who logged in, also
// behind sudo (the audit system's loginuid, see pam_loginuid(8)), else the user of the command. Over
// the network it is the name in the certificate.
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
