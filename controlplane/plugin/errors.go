package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/sanitize"
)

// deadlineSlack is how much earlier than hostler's own deadline the plugin's copy may pass. An
// error of the plugin in that time counts as no answer.
const deadlineSlack = 100 * time.Millisecond

// fault returns the error of a failed call: an error class of controlplane, after the operation,
// such as "get nodes/n", and the plugin.
func (s *Store) fault(ctx context.Context, operation string, err error) error {
	if stranger, ok := errors.AsType[*untrustedError](err); ok {
		return fmt.Errorf("%s: plugin's socket %w", operation, stranger)
	}
	at, bounded := ctx.Deadline()
	if code := status.Code(err); bounded && (code == codes.DeadlineExceeded || code == codes.Canceled) && time.Until(at) < deadlineSlack {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: no answer from %s: %w%s", operation, s.name(), controlplane.NoAnswer(ctx), s.missing())
	}
	return fmt.Errorf("%s: %s: %w", operation, s.name(), refusal(status.Convert(err)))
}

// invalidAnswer returns the error of an answer that hostler does not accept.
func (s *Store) invalidAnswer(operation, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s %s", operation, controlplane.ErrUnavailable, s.name(), fmt.Sprintf(format, args...))
}

// name returns the name of the plugin in errors.
func (s *Store) name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.about.name == "" {
		return "plugin at " + s.o.Socket
	}
	return fmt.Sprintf("plugin %q at %s", s.about.name, s.o.Socket)
}

// missing says why there is no connection; empty if there is one.
func (s *Store) missing() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused == nil {
		return ": it may hang: see its log"
	}
	return ": " + s.refused.Error()
}

// class returns the error class of a code; ErrUnavailable for codes of failures that may end.
func class(code codes.Code) error {
	switch code {
	case codes.NotFound:
		return controlplane.ErrNotFound
	case codes.Aborted, codes.FailedPrecondition, codes.AlreadyExists:
		return controlplane.ErrConflict
	case codes.PermissionDenied:
		return controlplane.ErrForbidden
	case codes.InvalidArgument:
		return controlplane.ErrInvalid
	default:
		return controlplane.ErrUnavailable
	}
}

// errUnimplemented marks a call that a plugin does not implement.
var errUnimplemented = errors.New("it does not implement this call")

// errLarge marks a message that is larger than its receiver accepts.
var errLarge = fmt.Errorf("%w: too large", controlplane.ErrInvalid)

// refusal returns the error that a plugin has answered.
func refusal(st *status.Status) error {
	code, message := st.Code(), sanitize.Line(st.Message(), maxMessage)
	err := fmt.Errorf("%w: %s (%v)", class(code), message, code)
	switch {
	case code == codes.Unauthenticated:
		err = fmt.Errorf("%w: %w this host: %s", controlplane.ErrUnavailable, controlplane.ErrUnauthorized, message)
	case code == codes.Unimplemented && strings.Contains(message, "unknown service"):
		err = fmt.Errorf("%w: it does not support protocol %d of hostler: %s: install versions of both with a common protocol", controlplane.ErrUnavailable, protocol, message)
	case code == codes.Unimplemented:
		err = fmt.Errorf("%w: %w: %s", controlplane.ErrUnavailable, errUnimplemented, message)
	case code == codes.ResourceExhausted && strings.Contains(message, "larger than max"): // hostler's limit or the plugin's
		err = fmt.Errorf("%w: %s", errLarge, message)
	}
	for _, detail := range st.Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok && retry.GetRetryDelay().AsDuration() > 0 && errors.Is(err, controlplane.ErrUnavailable) {
			return &controlplane.BusyError{After: min(retry.GetRetryDelay().AsDuration(), maxBusy), Err: err}
		}
	}
	return err
}

// maxMessage is the maximum number of bytes of a plugin's message that are shown.
const maxMessage = 1 << 10

// maxBusy is the longest wait that a plugin can request.
const maxBusy = 5 * time.Minute
