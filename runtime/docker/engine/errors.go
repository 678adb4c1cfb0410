package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"hostler.io/hostler/runtime"
)

// MaxAnswerBytes is the largest response that is accepted: a list of 1,000 containers takes about 3
// MiB. An event contains the labels of one container, and may be as large.
const MaxAnswerBytes = 16 << 20

// ErrNotFound means that an object does not exist. It is for adapters: a stop or removal of a
// missing object has succeeded.
var ErrNotFound = errors.New("not found")

// deadlineSlack is how long before our deadline an error still counts as caused by it.
const deadlineSlack = 50 * time.Millisecond

// classify translates an error of the client. The call used ctx and began at started.
func (c *Conn) classify(ctx context.Context, err error, started time.Time) error {
	at, bounded := ctx.Deadline()
	message := strings.TrimPrefix(err.Error(), "Error response from daemon: ")
	switch {
	case errdefs.IsNotFound(err): // a valid answer, however late
		return fmt.Errorf("%w: %s", ErrNotFound, message)
	case c.open.Err() != nil:
		return c.closed()
	case ctx.Err() == context.Canceled:
		return context.Cause(ctx)
	case bounded && time.Until(at) < deadlineSlack:
		// The full timeout, so that the text is always the same.
		return fmt.Errorf("%w: no answer from %s within %v (%w); it may hang: see its log",
			runtime.ErrUnavailable, c.path, at.Sub(started).Round(time.Millisecond), context.DeadlineExceeded)
	case errors.Is(err, errTooLarge):
		return fmt.Errorf("%w: it has more than %d bytes; remove stopped containers and unused images, such as with docker system prune",
			runtime.ErrTooLarge, MaxAnswerBytes)
	case errdefs.IsConflict(err):
		return fmt.Errorf("%w: %s", runtime.ErrInUse, message)
	case errors.Is(err, runtime.ErrUnavailable): // the request was not sent
		return ownError(err)
	case errdefs.IsUnavailable(err), isBroken(err):
		return fmt.Errorf("%w: %s; is a runtime running at %s?", runtime.ErrUnavailable, reason(err, message), c.path)
	case errdefs.IsNotImplemented(err), isOtherVersion(err):
		return fmt.Errorf("%w: %s", runtime.ErrUnsupported, message)
	case isInvalidAnswer(err):
		return fmt.Errorf("%w: %s", runtime.ErrInvalidAnswer, message)
	}
	return errors.New(message)
}

// isBroken reports whether the connection failed, or broke before the response was complete.
func isBroken(err error) bool {
	var network net.Error
	return client.IsErrConnectionFailed(err) || errors.As(err, &network) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// reason returns the reason of a broken connection without the text that the client and net/http
// add.
func reason(err error, message string) string {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return op.Error()
	}
	if client.IsErrConnectionFailed(err) { // the client's text names Docker even if the daemon is Podman
		return "connection broken or refused"
	}
	return message
}

// ownError returns our own error that the client and net/http have wrapped.
func ownError(err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// isInvalidAnswer reports whether the response was not JSON, or had other types than the API.
func isInvalidAnswer(err error) bool {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &kind)
}

// isOtherVersion reports whether daemon and client have no API version in common. Daemons respond
// "client version 1.41 is too old. Minimum supported API version is 1.44". The client says "API
// version 1.39 is not supported by this client: the minimum supported API version is 1.40".
func isOtherVersion(err error) bool {
	return errdefs.IsInvalidArgument(err) && (strings.Contains(err.Error(), "client version") || strings.Contains(err.Error(), "is not supported by this client"))
}

var errTooLarge = errors.New("answer too large")

// limited bounds the size of responses.
type limited struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l limited) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(req)
	switch {
	case err != nil:
	case strings.HasSuffix(req.URL.Path, "/events") && resp.StatusCode == http.StatusOK:
		resp.Body = &elements{ReadCloser: resp.Body}
	case strings.HasSuffix(req.URL.Path, "/json") && resp.StatusCode == http.StatusOK:
		resp.Body = &bounded{ReadCloser: &elements{ReadCloser: resp.Body}, left: MaxAnswerBytes}
	default:
		resp.Body = &bounded{ReadCloser: resp.Body, left: MaxAnswerBytes}
	}
	return resp, err
}

type bounded struct {
	io.ReadCloser
	left int
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
