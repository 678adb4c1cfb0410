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

// fault returns the error of a failed request: an error class of controlplane, after the operation,
// such as `get node "n"`.
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
		return fmt.Errorf("%s: no answer from %s: %w", operation, c.Endpoint(), controlplane.NoAnswer(ctx))
	}
	if large, ok := errors.AsType[*sizeError](err); ok {
		return fmt.Errorf("%s: %w: %w", operation, controlplane.ErrUnavailable, large)
	}
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err // without the address, which the operation contains
	}
	if unproven, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("%s: %w: %w: %v: check certificate-authority and server in %s, and this host's clock", operation, controlplane.ErrUnavailable, controlplane.ErrUntrusted, unproven.Err, c.o.path())
	}
	return fmt.Errorf("%s: %w: %s", operation, controlplane.ErrUnavailable, sanitize.Line(conceal(err).Error(), maxMessage)) // such as the error of an invalid proxy
}

// maxMessage is the maximum number of bytes of a server's message that are shown. A message that
// rejects an object lists its errors.
const maxMessage = 2 << 10

// unauthorized returns the error of a server that rejects this host's credentials. It is not
// ErrForbidden: with new credentials, a repeated request succeeds.
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

// class returns the error class of an HTTP code; nil for other codes, because the server may
// recover.
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

// errMediaType is the error if a type does not support a form of patch.
var errMediaType = errors.New("the form of the request is not supported")

// errOutdated is the error of a list or a watch that the server cannot continue.
var errOutdated = errors.New("too long ago")

// refusal returns the error for an answer other than success.
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
	case meaning == controlplane.ErrForbidden && strings.Contains(status.Message, "label"): // NodeRestriction has no code for it, only this text
		err = &controlplane.LabelsError{Err: fmt.Errorf("%w: %s", meaning, text)}
	default:
		err = fmt.Errorf("%w: %s", meaning, text)
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		return &controlplane.BusyError{After: time.Duration(status.Details.RetryAfterSeconds) * time.Second, Err: err}
	}
	return err
}

// foreign reports whether the answer is not from an API server. A proxy, or an API server that has
// just started, may answer 404: that does not mean that a Node is gone.
func foreign(status metav1.Status) bool {
	return status.Details != nil && slices.ContainsFunc(status.Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Type == metav1.CauseTypeUnexpectedServerResponse
	})
}
