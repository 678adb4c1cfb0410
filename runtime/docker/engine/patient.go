package engine

import (
	"context"
	"io"
	"net/http"
	"path"
	"sync"
	"time"
)

// forgets is how long a question may stay unanswered before it is put again.
const forgets = time.Minute

// patient does not put a question to a daemon again that somebody has given up waiting for, until
// it is answered: one that is too busy goes on with what nobody waits for any more, and comes to an
// end the later the more often it is asked. The answer itself is of no use then, for much may have
// happened since. Questions about one container are put whenever somebody has them: its stop may
// depend on the answer.
type patient struct {
	http.RoundTripper
	closed context.Context // ends with the connection to the daemon

	mu   sync.Mutex
	owed map[string]<-chan struct{} // guarded by mu: by question, closed once it is answered or given up
}

// answer is that to one request.
type answer struct {
	resp *http.Response
	err  error
}

// RoundTrip is http.RoundTripper's.
func (p *patient) RoundTrip(req *http.Request) (*http.Response, error) {
	asks := req.Method == http.MethodGet || req.Method == http.MethodHead
	if !asks || path.Base(path.Dir(path.Dir(req.URL.Path))) == "containers" {
		return p.RoundTripper.RoundTrip(req)
	}
	ctx, question := req.Context(), req.Method+" "+req.URL.RequestURI()
	for {
		owed := p.owes(question)
		if owed == nil {
			break
		}
		select {
		case <-owed:
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
		settle := p.owe(question)
		go await(answers, settle, release)
		return nil, ctx.Err()
	}
}

// owes returns what is closed once a question is answered; nil if the daemon owes no answer.
func (p *patient) owes(question string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.owed[question]
}

// owe notes that an answer is owed that nobody waits for any more, until it is settled. One of
// each question is enough: settle is nil where there is one.
func (p *patient) owe(question string) (settle func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.owed[question]; known {
		return nil
	}
	settled := make(chan struct{})
	p.owed[question] = settled
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.owed, question)
		close(settled)
	}
}

// await waits for an answer that is to be settled, and gives it up after a while.
func await(answers <-chan answer, settle, release func()) {
	defer release()
	if settle == nil {
		release()
		settle = func() {}
	}
	defer settle()
	forget := time.AfterFunc(forgets, release)
	defer forget.Stop()
	if a := <-answers; a.err == nil {
		_ = a.resp.Body.Close()
	}
}

// released is a body that gives back what its request holds.
type released struct {
	io.ReadCloser
	release func()
}

// Close is io.Closer's.
func (r *released) Close() error {
	defer r.release()
	return r.ReadCloser.Close()
}
