package api

import (
	"context"
	"fmt"

	"hostler.io/hostler/internal/listen"
)

// certifiedKey is the context key of a caller over the network: certified.
type certifiedKey struct{}

// refuses returns why the caller may not act. Root, the agent's user and callers that the
// configuration allows may.
func refuses(ctx context.Context) *Error {
	peer, overNetwork := ctx.Value(certifiedKey{}).(certified)
	switch {
	case overNetwork && peer.acts, !overNetwork && listen.IsOwn(ctx):
		return nil
	case overNetwork:
		return &Error{Message: fmt.Sprintf("%q may only read", peer.name), Hint: "on the host, move the name to api.tls.allowedNames.act, then `hostler reload`"}
	}
	return &Error{Message: "only root may do this", Hint: "run the command with sudo"}
}

// callerName names the person behind a request: the user over the socket, and over the network the name in
// the certificate.
func callerName(ctx context.Context) string {
	if peer, overNetwork := ctx.Value(certifiedKey{}).(certified); overNetwork {
		return "certificate " + peer.name
	}
	return listen.UserOf(ctx)
}
