package cri

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"hostler.io/hostler/runtime"
)

// call makes one CRI call with a deadline. Its error has the operation and an error class, and does
// not wrap the gRPC error.
func (r *Runtime) call(ctx context.Context, method, what string, timeout time.Duration, rpc func(context.Context) error) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	closed := r.closedByRuntime()
	err := rpc(ctx)
	took := time.Since(start)
	if err != nil {
		received := closed == nil || closed != r.last.Load()
		err = fmt.Errorf("%s: %w", what, r.classify(ctx, err, start, received))
	}
	r.observe(method, took, err)
	return err
}

// deadlineSlack is how much earlier than ours the runtime's own copy of the deadline may expire.
// Any error within this time counts as our deadline.
const deadlineSlack = 50 * time.Millisecond

// classify translates a gRPC error of a call with ctx that began at started. received is false if
// the runtime had closed the connection before the call.
func (r *Runtime) classify(ctx context.Context, err error, started time.Time, received bool) error {
	took := time.Since(started)
	s := status.Convert(err)
	code, message := s.Code(), s.Message()
	at, bounded := ctx.Deadline()
	switch {
	case code == codes.NotFound: // a valid answer, however late
	case ctx.Err() == context.Canceled:
		code = codes.Canceled
	case bounded && time.Until(at) < deadlineSlack:
		code = codes.DeadlineExceeded
		took = at.Sub(started) // the full timeout, so that the text is always the same
	}
	switch code {
	case codes.Canceled:
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%w: %s", runtime.ErrLost, message)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%w: no answer from %s within %v (%w); it may hang: see its log",
			runtime.ErrUnavailable, r.path, took.Round(time.Millisecond), context.DeadlineExceeded)
	case codes.Unavailable:
		class := runtime.ErrUnavailable
		if received && strings.Contains(message, "error reading from server") { // later than the first message of the connection
			class = runtime.ErrLost
		}
		return fmt.Errorf("%w: %s; is a runtime running at %s?", class, dialMessage(message), r.path)
	case codes.ResourceExhausted:
		// Both the client and the server have a limit, and both say "larger than max".
		if strings.Contains(message, "larger than max") {
			return fmt.Errorf("%w: %s; remove dead containers and unused images with the runtime's own tool, such as crictl",
				runtime.ErrTooLarge, message)
		}
	case codes.Unimplemented:
		if strings.Contains(message, "unknown service") {
			return fmt.Errorf("%w: %s; if %s belongs to containerd, check disabled_plugins in /etc/containerd/config.toml",
				runtime.ErrUnsupported, message, r.path)
		}
		return fmt.Errorf("%w: %s", runtime.ErrUnsupported, message)
	case codes.NotFound:
		return fmt.Errorf("%w: %s", errNotFound, message)
	case codes.FailedPrecondition, codes.Unknown, codes.Internal:
		if saysInUse(message) {
			return fmt.Errorf("%w: %s", runtime.ErrInUse, message)
		}
	}
	return fmt.Errorf("%s (%s)", message, s.Code())
}

// errNotFound means that an object does not exist. The package does not return it: stopping or
// removing a missing object succeeds.
var errNotFound = fmt.Errorf("not found")

// saysInUse recognizes refusals for which CRI has no code: CRI-O's "image is in use by a
// container", Docker's "image is being used by running container".
func saysInUse(message string) bool {
	return strings.Contains(message, "in use by") || strings.Contains(message, "being used by") ||
		strings.Contains(message, "image used by")
}

// dialMessage returns the reason of a failed connection without gRPC's text around it.
func dialMessage(message string) string {
	_, reason, found := strings.Cut(message, "Error while dialing: ")
	if !found {
		return message
	}
	return strings.TrimSuffix(reason, `"`)
}
