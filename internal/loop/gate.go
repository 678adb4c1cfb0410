package loop

import (
	"context"
	"fmt"
	"sync"
)

// Gate lets loops work while it is open, and rest for a reason while it is shut.
// It is safe for concurrent use.
type Gate struct {
	mu      sync.Mutex // guards what follows
	reason  string     // why it is shut; empty while it is open
	changed chan struct{}
	inside  int           // how many run
	idle    chan struct{} // closed when nobody runs; nil if nobody waits for that
}

// NewGate returns a gate that is shut for that reason, or open if it is empty.
func NewGate(reason string) *Gate { return &Gate{reason: reason, changed: make(chan struct{})} }

// Set shuts the gate for that reason, or opens it if the reason is empty. What runs
// is told to end, and not waited for.
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

// Reason is why the gate is shut; empty while it is open.
func (g *Gate) Reason() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reason
}

// Idle returns when nothing runs any more behind a gate that was shut, or says that
// ctx ended before.
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

// While runs as long as the gate is open, and lets the loop rest while it is shut.
// It returns when ctx ends, or the run does by itself.
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
		case <-changed: // also if it is open again now
			if ctx.Err() == nil {
				continue
			}
		default:
		}
		return err
	}
}

// enter reports whether the gate is open, and counts the caller. The channel is closed at the next
// change.
func (g *Gate) enter() (open bool, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason != "" {
		return false, g.changed
	}
	g.inside++
	return true, g.changed
}

// untilShut runs until the gate is shut.
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
