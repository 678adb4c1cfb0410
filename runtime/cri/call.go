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

// call makes one CRI call with a deadline. Its error has the operation and an error class, and
// hides the error of gRPC.
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

// deadlineSlack is how much earlier than ours a runtime's own copy of the
// deadline may run out. What it then answers, with whatever code, is our deadline.
const deadlineSlack = 50 * time.Millisecond

// classify translates a gRPC error. ctx is the one that the call was made with,
// started the moment before. received is false if the runtime was gone before the call.
func (r *Runtime) classify(ctx context.Context, err error, started time.Time, received bool) error {
	took := time.Since(started)
	s := status.Convert(err)
	code, message := s.Code(), s.Message()
	at, bounded := ctx.Deadline()
	switch {
	case code == codes.NotFound: // an answer, however late
	case ctx.Err() == context.Canceled:
		code = codes.Canceled
	case bounded && time.Until(at) < deadlineSlack:
		code = codes.DeadlineExceeded
		took = at.Sub(started) // the whole of it, so that the text is the same each time
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
		if received && strings.Contains(message, "error reading from server") { // and not in the beginning, as its preface
			class = runtime.ErrLost
		}
		return fmt.Errorf("%w: %s; is a runtime running at %s?", class, dialMessage(message), r.path)
	case codes.ResourceExhausted:
		// Both sides have a limit, and both say "larger than max".
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

// errNotFound means that an object does not exist. It does not leave the package: a stop or removal
// of a missing object has succeeded.
var errNotFound = fmt.Errorf("not found")

// saysInUse recognises refusals for which CRI has no code: CRI-O's "image is in
// use by a container", Docker's "image is being used by running container".
func saysInUse(message string) bool {
	return strings.Contains(message, "in use by") || strings.Contains(message, "being used by") ||
		strings.Contains(message, "image used by")
}

// dialMessage drops what gRPC wraps around the reason of a failed connection.
func dialMessage(message string) string {
	_, reason, found := strings.Cut(message, "Error while dialing: ")
	if !found {
		return message
	}
	return strings.TrimSuffix(reason, `"`)
}
