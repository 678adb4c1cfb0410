package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"hostler.io/hostler/agent/api"
)

// loop is one of the agent's controllers: a run function that is started again
// whenever it ends, and what is known of its health. It may be run only once;
// all other methods are safe for concurrent use.
type loop struct {
	name string
	run  func(ctx context.Context) error

	mu sync.Mutex // guards what follows
	// patience is how long the loop may go without a beat before the watchdog
	// counts it as stuck; zero for a loop that rightly waits for events alone.
	patience    time.Duration
	lastBeat    time.Time // by the monotonic clock
	lastSuccess time.Time
	lastError   string
	failing     bool
	resting     bool // another owner does its job
	restarts    int
}

// beat records that the loop did one round of its work, and how it ended. It
// does not log: each room says itself when trouble begins and ends. A person may
// ask for a round while the loop rests; no other follows from that.
func (l *loop) beat(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.resting {
		l.lastBeat = now
	}
	l.failing = err != nil
	if err != nil {
		l.lastError = err.Error()
	} else {
		l.lastSuccess, l.lastError = now, ""
	}
}

// rest notes that the loop waits in good order while another owner does its job.
func (l *loop) rest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastBeat, l.resting, l.failing, l.lastError = time.Time{}, true, false, ""
}

// wake counts the loop's patience from now.
func (l *loop) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastBeat, l.resting = time.Now(), false
}

// pause notes that the loop is about to be started again after err. What is
// known to have failed is not stuck.
func (l *loop) pause(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastBeat, l.failing, l.lastError = time.Time{}, true, err.Error()
	l.restarts++
}

// allow changes the loop's patience, which is counted from now.
func (l *loop) allow(patience time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.patience = patience
	if !l.lastBeat.IsZero() {
		l.lastBeat = time.Now()
	}
}

// stuck tells whether the loop has made no progress for longer than its patience.
func (l *loop) stuck(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.patience > 0 && !l.lastBeat.IsZero() && now.Sub(l.lastBeat) > l.patience
}

// snapshot is what `hostler status` shows of the loop.
func (l *loop) snapshot(now time.Time) api.Loop {
	stuck := l.stuck(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := api.Loop{Name: l.name, Healthy: !l.failing && !stuck, LastError: l.lastError, Restarts: l.restarts}
	if !l.lastSuccess.IsZero() {
		t := l.lastSuccess.UTC()
		s.LastSuccess = &t
	}
	if stuck && s.LastError == "" {
		s.LastError = fmt.Sprintf("no progress since %s", l.lastBeat.UTC().Format(time.RFC3339))
	}
	return s
}

// steady is how long a loop has to run before its next end is a new trouble.
const steady = time.Minute

// supervise runs the loop until ctx ends. A run that returns or panics is
// started again after a pause that grows from one second to one minute. Why is
// logged once, and again when the loop runs steadily.
func (l *loop) supervise(ctx context.Context, log *slog.Logger) {
	fresh := wait.Backoff{Duration: time.Second, Factor: 2, Steps: 7, Cap: time.Minute, Jitter: 0.1}
	pause := fresh
	trouble := "" // what was logged and is not over
	for {
		l.wake()
		before := trouble
		recovered := time.AfterFunc(steady, func() {
			if before != "" {
				log.Info("loop runs steadily again", "loop", l.name)
			}
		})
		stack, err := l.protected(ctx)
		if !recovered.Stop() {
			pause, trouble = fresh, ""
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("ended by itself")
		}
		l.pause(err)
		if text := err.Error(); text != trouble {
			trouble = text
			log.Error("loop ended and is started again", "loop", l.name, "error", err, "stack", stack)
		}
		select {
		case <-time.After(pause.Step()):
		case <-ctx.Done():
			return
		}
	}
}

// protected turns a panic of the loop into an error, so that one loop's fault
// does not end the others, and says where it came from.
func (l *loop) protected(ctx context.Context) (stack string, err error) {
	defer func() {
		if p := recover(); p != nil {
			stack, err = string(debug.Stack()), fmt.Errorf("panic: %v", p)
		}
	}()
	return "", l.run(ctx)
}
