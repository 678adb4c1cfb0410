package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/sanitize"
)

// call describes a call, for its errors.
type call struct {
	operation string // such as "put"
	object    string // such as "leases/n"
	right     string // the right that it needs: "read" or "write"
	path      string // a key, or a prefix of keys that ends with a slash
	// all returns all rights that the caller needs; nil if there are no others.
	all func() []right
	// role is the name of the role with these rights, for hints.
	role string
}

// connectError reports that no member could be connected.
type connectError struct{ cause error }

// Error is one line of text.
func (e *connectError) Error() string { return strings.ReplaceAll(e.cause.Error(), "\n", "; ") }

// Unwrap returns the cause.
func (e *connectError) Unwrap() error { return e.cause }

// tokenRefused reports whether the member refused the request because it does not know the token.
// Then nothing was changed.
func tokenRefused(err error) bool {
	return slices.ContainsFunc([]error{rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrUserEmpty}, func(refusal error) bool {
		return errors.Is(err, refusal)
	})
}

// untouched reports whether a failed request has certainly changed nothing, and may succeed over
// another connection.
func untouched(err error) bool {
	return errors.Is(err, rpctypes.ErrNoLeader) || tokenRefused(err)
}

// mustRedial reports whether the next request needs another connection: there was no answer, or the
// token is unknown, or this member cannot serve.
func mustRedial(err error) bool {
	for _, answer := range []error{controlplane.ErrNotFound, controlplane.ErrConflict, controlplane.ErrInvalid, store.ErrDeposed, context.Canceled} {
		if err == nil || errors.Is(err, answer) {
			return false
		}
	}
	if answer, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return tokenRefused(err) || slices.Contains([]codes.Code{codes.Unavailable, codes.DataLoss, codes.Internal}, answer.Code())
	}
	return !tooLarge(err)
}

// cancelled reports whether the caller has cancelled the call. Such an error says nothing about the
// connection.
func cancelled(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// tooLarge reports whether a message is too large to be sent or received: gRPC has no other code
// for it.
func tooLarge(err error) bool { return status.Code(err) == codes.ResourceExhausted }

// fault returns the error of a failed call: an error class of controlplane, after the operation,
// such as `put leases/n`.
func (o Options) fault(ctx context.Context, c call, endpoint string, err error) error {
	operation := c.operation + " " + c.object
	for _, known := range []error{controlplane.ErrNotFound, controlplane.ErrConflict, controlplane.ErrInvalid, store.ErrDeposed} {
		if errors.Is(err, known) {
			return fmt.Errorf("%s: %w", operation, err)
		}
	}
	if connecting, ok := errors.AsType[*connectError](err); ok {
		return fmt.Errorf("%s: %w", operation, connecting)
	}
	if answer, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return fmt.Errorf("%s: %w", operation, o.refusal(c, endpoint, answer))
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: no answer from %s: %w", operation, endpoint, controlplane.NoAnswer(ctx))
	}
	if tooLarge(err) && c.right == "read" {
		return fmt.Errorf("%s: %w: %s: %s: check whether another program has written %s", operation, controlplane.ErrUnavailable, endpoint, plain(err), c.path)
	}
	if tooLarge(err) {
		return fmt.Errorf("%s: %w: %s", operation, controlplane.ErrInvalid, plain(err))
	}
	return fmt.Errorf("%s: %w: %s: %s", operation, controlplane.ErrUnavailable, endpoint, plain(err))
}

// refusal returns the error for an answer other than success.
func (o Options) refusal(c call, endpoint string, answer rpctypes.EtcdError) error {
	switch {
	case errors.Is(answer, rpctypes.ErrPermissionDenied):
		all, needed := "", []right{{c.right, c.path}}
		if strings.HasSuffix(c.path, "/") {
			all = "*"
		}
		if c.all != nil { // a client that lacks one right may lack the others
			needed = c.all()
		}
		return fmt.Errorf("%w: %v to %s %s%s: %s", controlplane.ErrForbidden, answer, c.right, c.path, all, o.grants(c.role, needed))
	case tokenRefused(answer):
		hint := "check that all members of the cluster have the same --auth-token"
		if o.Username == "" {
			hint = "set " + o.key("username") + " and passwordFile, or use a client certificate whose CN is a user; auth is enabled"
		}
		return fmt.Errorf("%w: %w %s: %v: %s", controlplane.ErrUnavailable, controlplane.ErrUnauthorized, o.identity(), answer, hint)
	case errors.Is(answer, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: %s rejects writes: %v: as etcd root, free space and accept writes again: etcdctl compact REVISION; etcdctl defrag; etcdctl alarm disarm", controlplane.ErrUnavailable, endpoint, answer)
	case errors.Is(answer, rpctypes.ErrRequestTooLarge), errors.Is(answer, rpctypes.ErrLeaseTTLTooLarge):
		return fmt.Errorf("%w: %v: %s accepts 1.5 MiB; raise its --max-request-bytes", controlplane.ErrInvalid, answer, endpoint)
	case errors.Is(answer, rpctypes.ErrTooManyOps):
		return fmt.Errorf("%w: %v: start each member of %s with --max-txn-ops=128, the default", controlplane.ErrInvalid, answer, endpoint)
	case errors.Is(answer, rpctypes.ErrNoLeader):
		return fmt.Errorf("%w: %s: %v: check that a majority of the members runs and is connected", controlplane.ErrUnavailable, endpoint, answer)
	}
	return fmt.Errorf("%w: %s: %v", controlplane.ErrUnavailable, endpoint, answer)
}

// identity names this host as the cluster identifies it.
func (o Options) identity() string {
	switch {
	case o.Username != "":
		return fmt.Sprintf("user %q", o.Username)
	case o.commonName() != "":
		return fmt.Sprintf("user %q", sanitize.Line(o.commonName(), maxMessage))
	case o.Certificate != "":
		return "the user in the CN of " + o.Certificate
	}
	return "this host"
}

// connectFault returns the error class of an endpoint that cannot be used.
func connectFault(o Options, endpoint string, err error) error {
	if unproven, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("%w: %s: %w: %v: check %s, the host in the endpoint, and this host's clock", controlplane.ErrUnavailable, endpoint, controlplane.ErrUntrusted, unproven.Err, o.key("tls.ca"))
	}
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return fmt.Errorf("%w: %s: %w: %v: it may speak plain http", controlplane.ErrUnavailable, endpoint, controlplane.ErrUntrusted, record)
	}
	text := plain(err)
	switch {
	case errors.Is(err, controlplane.ErrUnavailable):
		return fmt.Errorf("connect to %s: %w", endpoint, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", controlplane.ErrUnavailable, err)
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return fmt.Errorf("%w: %s: %w %s: %v: check the password in %s", controlplane.ErrUnavailable, endpoint, controlplane.ErrUnauthorized, o.identity(), err, o.PasswordFile)
	case strings.Contains(text, "remote error: tls:"): // in TLS 1.3 the alert arrives after the handshake, as text
		hint := "check that it has not expired, and that the cluster's --trusted-ca-file contains its authority"
		if o.Certificate == "" {
			hint = "set " + o.key("tls.certificate") + " and key"
		}
		return fmt.Errorf("%w: %s: %w this host's certificate: %s: %s", controlplane.ErrUnavailable, endpoint, controlplane.ErrUnauthorized, text, hint)
	}
	return fmt.Errorf("%w: connect to %s: %s", controlplane.ErrUnavailable, endpoint, text)
}

// maxMessage is the maximum number of bytes of a member's message that are shown.
const maxMessage = 1 << 10

// plain returns an error's text without what gRPC adds.
func plain(err error) string {
	text := err.Error()
	if answer, ok := status.FromError(err); ok && answer.Code() != codes.OK {
		text = answer.Message()
	}
	return sanitize.Line(text, maxMessage)
}
