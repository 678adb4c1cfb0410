package kubernetes

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/sanitize"
)

// fault returns the error of a failed request: an error class of controlplane, with the operation,
// such as `get node "n"`, before it.
func (c *Client) fault(ctx context.Context, operation string, err error) error {
	if err == nil {
		return nil
	}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return fmt.Errorf("%s: %w", operation, c.refusal(status.Status(), sanitize.Line(err.Error(), maxMessage)))
	}
	if plugin, ok := errors.AsType[*pluginError](err); ok {
		return fmt.Errorf("%s: %w", operation, plugin)
	}
	if file, ok := errors.AsType[*fileError](err); ok {
		return fmt.Errorf("%s: %w", operation, file)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: no answer from %s: %w", operation, c.Endpoint(), context.Cause(ctx))
	}
	if large, ok := errors.AsType[*sizeError](err); ok {
		return fmt.Errorf("%s: %w: %w", operation, controlplane.ErrUnavailable, large)
	}
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err // without the address, which is in the operation
	}
	if unproven, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("%s: %w: %w: %v: check certificate-authority and server in %s, and this host's clock", operation, controlplane.ErrUnavailable, controlplane.ErrUntrusted, unproven.Err, c.o.path())
	}
	return fmt.Errorf("%s: %w: %s", operation, controlplane.ErrUnavailable, sanitize.Line(conceal(err).Error(), maxMessage)) // such as of a proxy that is invalid
}

// maxMessage is how many bytes of a server's message are shown: a refusal of an object lists its
// faults.
const maxMessage = 2 << 10

// unauthorized is the error of a server that does not accept this host's
// credentials. It is not ErrForbidden: new ones fix it, and what waits is then
// wanted.
func (c *Client) unauthorized(text string) error {
	if c.o.Refused != nil {
		c.o.Refused()
	}
	whose, check := "the credentials of "+c.o.path(), "check whether they have expired or belong to another cluster"
	if c.o.Certificate != nil {
		whose, check = "this node's certificate", "run `hostler doctor`"
	}
	return fmt.Errorf("%w: %w %s: %s: %s", controlplane.ErrUnavailable, controlplane.ErrUnauthorized, whose, text, check)
}

// class returns the error class of an HTTP code; nil for other codes, since the server may recover.
func class(code int32) error {
	switch code {
	case http.StatusForbidden:
		return controlplane.ErrForbidden
	case http.StatusNotFound:
		return controlplane.ErrNotFound
	case http.StatusConflict:
		return controlplane.ErrConflict
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return controlplane.ErrInvalid
	default:
		return nil
	}
}

// errMediaType is of a patch of a form that a type does not have.
var errMediaType = errors.New("the form of the request is not supported")

// errOutdated is of a list or a watch that the server cannot continue from where it was.
var errOutdated = errors.New("too long ago")

// refusal says what an answer other than success means.
func (c *Client) refusal(status metav1.Status, text string) error {
	var err error
	meaning := class(status.Code)
	switch {
	case status.Code == http.StatusUnauthorized && !foreign(status):
		return c.unauthorized(text)
	case status.Code == http.StatusGone && !foreign(status):
		err = fmt.Errorf("%w: %w: %s", controlplane.ErrUnavailable, errOutdated, text)
	case status.Code == http.StatusUnsupportedMediaType && !foreign(status):
		err = fmt.Errorf("%w: %w: %s", controlplane.ErrInvalid, errMediaType, text)
	case meaning == nil || foreign(status):
		err = fmt.Errorf("%w: %s", controlplane.ErrUnavailable, text)
	case meaning == controlplane.ErrForbidden && strings.Contains(status.Message, "label"): // as NodeRestriction says it, which has no code for it
		err = &controlplane.LabelsError{Err: fmt.Errorf("%w: %s", meaning, text)}
	default:
		err = fmt.Errorf("%w: %s", meaning, text)
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		return &controlplane.BusyError{After: time.Duration(status.Details.RetryAfterSeconds) * time.Second, Err: err}
	}
	return err
}

// foreign reports whether the answer is not an API server's: that something on the
// way, or an API server that has just started, finds nothing there does not mean
// that a Node is gone.
func foreign(status metav1.Status) bool {
	return status.Details != nil && slices.ContainsFunc(status.Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Type == metav1.CauseTypeUnexpectedServerResponse
	})
}
