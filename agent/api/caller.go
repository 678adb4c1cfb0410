package api

import (
	"context"
	"fmt"

	"hostler.io/hostler/internal/listen"
)

// certifiedKey is the context key of the certified caller over the network.
type certifiedKey struct{}

// refuses returns why the caller must not change anything. Root, the agent's user and the callers
// in api.tls.allowedNames.act may.
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

// callerName names the caller: the user over the socket, and over the network the name in the
// certificate.
func callerName(ctx context.Context) string {
	if peer, overNetwork := ctx.Value(certifiedKey{}).(certified); overNetwork {
		return "certificate " + peer.name
	}
	return listen.UserOf(ctx)
}
