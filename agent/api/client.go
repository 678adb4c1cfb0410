package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"time"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/internal/redirect"
)

// UnreachableError reports that no agent answers at the socket.
type UnreachableError struct {
	Socket string
	Cause  error
}

// Error returns the problem and what to try.
func (e *UnreachableError) Error() string {
	what, hint := "no agent answers at", "run `hostler doctor` as root, or see `systemctl status hostler`"
	switch {
	case errors.Is(e.Cause, os.ErrPermission):
		what, hint = "ask the agent at", "run it with sudo, or join group "+listen.Group
	case errors.Is(e.Cause, os.ErrDeadlineExceeded), errors.Is(e.Cause, context.DeadlineExceeded):
		hint = "the agent runs but does not answer; run `hostler doctor` as root, or see `journalctl -u hostler`"
	case errors.Is(e.Cause, syscall.ECONNREFUSED):
		hint = "the agent was killed; run `hostler doctor` as root, or see `journalctl -u hostler`"
	}
	return fmt.Sprintf("%s %s: %v\nhint: %s", what, e.Socket, e.Cause, hint)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Cause }

// Client sends requests to an agent. Use NewClient to create one. It is safe for concurrent use.
type Client struct {
	socket string
	http   http.Client
	answer time.Duration // bounds a request that is not streamed
}

// NewClient returns a client of the agent at socket. It connects with each call.
func NewClient(socket string) *Client {
	c := &Client{socket: socket, answer: answerTime}
	c.http.CheckRedirect = redirect.Refuse
	c.http.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, socket) },
	}
	return c
}

const (
	// answerTime bounds a request that is not streamed. Collections have no such limit.
	answerTime = 30 * time.Second
	// answerBytes is the maximum size of an answer, or of one line of a streamed answer. 1,000
	// containers with all labels need about 10 MiB.
	answerBytes = 64 << 20
	// dialTime bounds how long connecting to the agent's socket may take.
	dialTime = 2 * time.Second
	// dialPause is the pause between attempts to connect while the accept queue of the socket is
	// full.
	dialPause = 10 * time.Millisecond
)

// dial connects to the socket. While its queue is full, connect(2) fails with EAGAIN.
func dial(ctx context.Context, socket string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if !errors.Is(err, syscall.EAGAIN) {
			return c, err
		}
		select {
		case <-time.After(dialPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// Status returns the state of the host and of the agent.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return ask[Status](ctx, c, http.MethodGet, "/v1/status", nil)
}

// Pods returns all pods.
func (c *Client) Pods(ctx context.Context) (PodList, error) {
	return ask[PodList](ctx, c, http.MethodGet, "/v1/pods", nil)
}

// Images returns all images.
func (c *Client) Images(ctx context.Context) (ImageList, error) {
	return ask[ImageList](ctx, c, http.MethodGet, "/v1/images", nil)
}

// ShutdownPlan returns what a shutdown would do now.
func (c *Client) ShutdownPlan(ctx context.Context) (ShutdownPlan, error) {
	return ask[ShutdownPlan](ctx, c, http.MethodGet, "/v1/shutdown/plan", nil)
}

// Doctor returns the diagnosis of the host.
func (c *Client) Doctor(ctx context.Context) (doctor.Report, error) {
	return ask[doctor.Report](ctx, c, http.MethodGet, "/v1/doctor", nil)
}

// Config returns the effective configuration.
func (c *Client) Config(ctx context.Context) (Config, error) {
	return ask[Config](ctx, c, http.MethodGet, "/v1/config", nil)
}

// Reload makes the agent reload its configuration files. The error says why the agent rejects them.
func (c *Client) Reload(ctx context.Context) (ReloadReport, error) {
	return ask[ReloadReport](ctx, c, http.MethodPost, "/v1/reload", nil)
}

// CollectPlan returns what a collection would remove now.
func (c *Client) CollectPlan(ctx context.Context, req CollectRequest) (CollectPlan, error) {
	return ask[CollectPlan](ctx, c, http.MethodPost, "/v1/gc/plan", req)
}

// CollectHistory returns past collections.
func (c *Client) CollectHistory(ctx context.Context) (CollectHistory, error) {
	return ask[CollectHistory](ctx, c, http.MethodGet, "/v1/gc/history", nil)
}

// Collect collects now, calls progress for each object, and returns the report at the end.
func (c *Client) Collect(ctx context.Context, req CollectRequest, progress func(Step)) (runs.Report, error) {
	resp, err := c.do(ctx, http.MethodPost, "/v1/gc/run", req)
	if err != nil {
		return runs.Report{}, err
	}
	defer resp.Body.Close()
	read := lines(resp.Body)
	for {
		var line CollectLine
		if err := read(&line); err != nil {
			return runs.Report{}, &UnreachableError{c.socket, fmt.Errorf("the collection's answer broke off: %w", err)}
		}
		switch {
		case line.Error != nil:
			return runs.Report{}, line.Error
		case line.Report != nil:
			return *line.Report, nil
		case line.Step != nil:
			progress(*line.Step)
		}
	}
}

// ask sends a request and decodes the answer.
func ask[T any](ctx context.Context, c *Client, method, path string, body any) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.answer)
	defer cancel()
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return answer, err
	}
	defer resp.Body.Close()
	if err := lines(resp.Body)(&answer); err != nil {
		return answer, &UnreachableError{c.socket, fmt.Errorf("read the answer: %w", err)}
	}
	return answer, nil
}

// lines returns a function that decodes the next line of an answer.
func lines(body io.Reader) func(line any) error {
	from := &io.LimitedReader{R: body}
	dec := json.NewDecoder(from)
	return func(line any) error {
		from.N = answerBytes
		err := dec.Decode(line)
		if err != nil && from.N == 0 {
			err = fmt.Errorf("it has more than %d MiB", answerBytes>>20)
		}
		return err
	}
}

// do sends a request and returns the answer if its status is a success. The caller closes the body.
func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://hostler"+path, r)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var request *url.Error
		if errors.As(err, &request) {
			err = request.Err // omits the artificial URL
		}
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err // omits the socket's path, which UnreachableError names
		}
		return nil, &UnreachableError{c.socket, err}
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		e := &Error{}
		if json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(e) != nil || e.Message == "" {
			e.Message = "the agent answered " + resp.Status
		}
		return nil, e
	}
	return resp, nil
}
