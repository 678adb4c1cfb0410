package engine

import (
	"context"
	"io"
	"net/http"
	"path"
	"sync"
	"time"
)

// retryAfter is how long an abandoned request counts as pending.
const retryAfter = time.Minute

// maxPending is how many equal requests may be pending until no further one is sent. It is more
// than one, because a later caller may have a longer deadline.
const maxPending = 3

// patient does not repeat requests that callers have given up, until the daemon has answered one of
// them. A busy daemon continues with abandoned requests, and becomes slower with each repetition.
// The late response is dropped, because it is outdated. Requests about one container are always
// sent: its stop may depend on them.
type patient struct {
	http.RoundTripper
	closed context.Context // cancelled when the connection to the daemon is closed

	mu      sync.Mutex
	pending map[string]*pendingRequest // guarded by mu; by method and URL
}

// pendingRequest counts the pending responses to one request.
type pendingRequest struct {
	answers  int
	answered chan struct{} // closed at the next response, or when one is given up
}

// answer is the response to one request.
type answer struct {
	resp *http.Response
	err  error
}

// RoundTrip implements http.RoundTripper.
func (p *patient) RoundTrip(req *http.Request) (*http.Response, error) {
	asks := req.Method == http.MethodGet || req.Method == http.MethodHead
	if !asks || path.Base(path.Dir(path.Dir(req.URL.Path))) == "containers" {
		return p.RoundTripper.RoundTrip(req)
	}
	ctx, question := req.Context(), req.Method+" "+req.URL.RequestURI()
	for {
		answered := p.tooManyPending(question)
		if answered == nil {
			break
		}
		select {
		case <-answered:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	asking, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(p.closed, cancel)
	release := func() {
		stop()
		cancel()
	}
	answers := make(chan answer, 1)
	go func() {
		resp, err := p.RoundTripper.RoundTrip(req.WithContext(asking))
		answers <- answer{resp, err}
	}()
	select {
	case a := <-answers:
		if a.err != nil {
			release()
			return nil, a.err
		}
		over := context.AfterFunc(ctx, release)
		a.resp.Body = &released{a.resp.Body, func() {
			over()
			release()
		}}
		return a.resp, nil
	case <-ctx.Done():
		settle := p.add(question)
		go await(answers, settle, release)
		return nil, ctx.Err()
	}
}

// tooManyPending returns nil if the request may be sent, else a channel that is closed when fewer
// responses are pending.
func (p *patient) tooManyPending(question string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.pending[question]; d != nil && d.answers >= maxPending {
		return d.answered
	}
	return nil
}

// add counts a pending response for which no caller waits any more. settle ends that.
func (p *patient) add(question string) (settle func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.pending[question]
	if d == nil {
		d = &pendingRequest{answered: make(chan struct{})}
		p.pending[question] = d
	}
	d.answers++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		close(d.answered)
		if d.answers--; d.answers == 0 {
			delete(p.pending, question)
			return
		}
		d.answered = make(chan struct{})
	}
}

// await waits for a late response and then calls settle. It gives up after retryAfter.
func await(answers <-chan answer, settle, release func()) {
	defer settle()
	defer release()
	forget := time.AfterFunc(retryAfter, release)
	defer forget.Stop()
	if a := <-answers; a.err == nil {
		_ = a.resp.Body.Close()
	}
}

// released is a response body that calls release when it is closed.
type released struct {
	io.ReadCloser
	release func()
}

// Close implements io.Closer.
func (r *released) Close() error {
	defer r.release()
	return r.ReadCloser.Close()
}
