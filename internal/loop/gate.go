package loop

import (
	"context"
	"fmt"
	"sync"
)

// Gate lets loops run while it is open, and pauses them for a reason while it is shut. It is safe
// for concurrent use.
type Gate struct {
	mu      sync.Mutex // guards the fields below
	reason  string     // why it is shut; empty while it is open
	changed chan struct{}
	inside  int           // how many loops run
	idle    chan struct{} // closed when no loop runs; nil if nobody waits for that
}

// NewGate returns a gate that is shut for that reason, or open if the reason is empty.
func NewGate(reason string) *Gate { return &Gate{reason: reason, changed: make(chan struct{})} }

// Set shuts the gate for that reason, or opens it if the reason is empty. Shutting cancels loops
// that run, and does not wait for them.
func (g *Gate) Set(reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason == reason {
		return
	}
	g.reason = reason
	close(g.changed)
	g.changed = make(chan struct{})
}

// Reason returns why the gate is shut, or "" if it is open.
func (g *Gate) Reason() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reason
}

// Idle waits until no loop runs behind a shut gate. It returns an error if ctx ends first.
func (g *Gate) Idle(ctx context.Context) error {
	g.mu.Lock()
	if g.inside == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait until loops pause: %w", context.Cause(ctx))
	}
}

// While calls run while the gate is open, and pauses the loop while it is shut. It returns when ctx
// ends, or when run returns by itself.
func (g *Gate) While(ctx context.Context, l *Loop, run func(context.Context) error) error {
	for {
		entered, changed := g.enter()
		if !entered {
			l.Pause()
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		l.Wake()
		err := g.untilShut(ctx, changed, run)
		select {
		case <-changed: // even if it is open again by now
			if ctx.Err() == nil {
				continue
			}
		default:
		}
		return err
	}
}

// enter reports whether the gate is open, and counts the caller if it is. The channel is closed at
// the next change.
func (g *Gate) enter() (open bool, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason != "" {
		return false, g.changed
	}
	g.inside++
	return true, g.changed
}

// untilShut calls run, and cancels it when the gate is shut.
func (g *Gate) untilShut(ctx context.Context, changed <-chan struct{}, run func(context.Context) error) error {
	running, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-changed:
			stop()
		case <-running.Done():
		}
	}()
	defer func() {
		stop()
		<-watched
		g.mu.Lock()
		defer g.mu.Unlock()
		g.inside--
		if g.inside == 0 && g.idle != nil {
			close(g.idle)
			g.idle = nil
		}
	}()
	return run(running)
}
