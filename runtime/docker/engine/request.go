package engine

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errhttp"
	"github.com/moby/moby/client"
)

// Request is a request that the Engine API does not have, such as one of Podman's API.
type Request struct {
	Verb  string // HTTP method
	Path  string // such as "/v4.0.0/libpod/info"
	Query url.Values
}

// Ask is Call for such a request. It decodes the response into answer, unless answer is nil.
func (c *Conn) Ask(ctx context.Context, method, what string, timeout time.Duration, req Request, answer any) error {
	return c.Call(ctx, method, what, timeout, func(ctx context.Context, _ *client.Client) error {
		return c.roundTrip(ctx, req, answer)
	})
}

func (c *Conn) roundTrip(ctx context.Context, req Request, answer any) error {
	target := url.URL{Scheme: "http", Host: "daemon", Path: req.Path, RawQuery: req.Query.Encode()}
	request, err := http.NewRequestWithContext(ctx, req.Verb, target.String(), nil)
	if err != nil {
		return err
	}
	resp, err := c.asks.RoundTrip(request)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= http.StatusBadRequest:
		return refused(resp)
	case answer == nil:
		_, err = io.Copy(io.Discard, resp.Body) // so that the connection can be reused
		return err
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

// refusal is a response with an error: its message and its class.
type refusal struct{ message, class error }

// Error returns the daemon's message.
func (r refusal) Error() string { return r.message.Error() }

// Unwrap returns the class, as in the client of the Engine API.
func (r refusal) Unwrap() error { return r.class }

// noContainer is the cause in Podman's error, with status 500, about a container that is being
// removed.
const noContainer = "no such container"

func refused(resp *http.Response) error {
	var body struct {
		Message string `json:"message"`
		Cause   string `json:"cause"` // only from Podman
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || body.Message == "" {
		body.Message = resp.Status
	}
	class := errhttp.ToNative(resp.StatusCode)
	if body.Cause == noContainer {
		class = errdefs.ErrNotFound
	}
	return refusal{errors.New(body.Message), class}
}
