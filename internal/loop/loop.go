// Package loop runs the loops of the agent: it restarts loops that end, and reports their health.
// It owns back-off, health and time limits. It does not know what a loop does.
package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Loop is one of the agent's controllers: a run function that is started again
// whenever it ends, and what is known of its health. It may be run only once;
// all other methods are safe for concurrent use.
type Loop struct {
	name string
	run  func(ctx context.Context) error

	mu            sync.Mutex    // guards what follows
	patience      time.Duration // see New
	lastHeartbeat time.Time     // by the monotonic clock
	lastSuccess   time.Time
	lastError     error
	failing       bool
	paused        bool // another owner does its job
	restarts      int
}

// New returns a loop that is not started. Patience is how long it may go without a
// Beat before it counts as stuck; zero for one that rightly waits for events alone.
func New(name string, patience time.Duration, run func(ctx context.Context) error) *Loop {
	return &Loop{name: name, patience: patience, run: run}
}

// Do says what a loop does that was made without a run function, so that what it runs can be
// made with its Beat, and returns the loop, which run gets too. It is called before Supervise.
func (l *Loop) Do(run func(ctx context.Context, l *Loop) error) *Loop {
	l.run = func(ctx context.Context) error { return run(ctx, l) }
	return l
}

// Name is what `hostler status` calls the loop.
func (l *Loop) Name() string { return l.name }

// Heartbeat records that the loop did one round of its work, and how it ended. It
// does not log: each package logs when trouble begins and ends. A person may
// request a round while the loop rests; no other follows from that.
func (l *Loop) Heartbeat(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.paused {
		l.lastHeartbeat = now
	}
	l.failing = err != nil
	if l.lastError = err; err == nil {
		l.lastSuccess = now
	}
}

// Pause notes that the loop waits in good order while another owner does its job.
func (l *Loop) Pause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastHeartbeat, l.paused, l.failing, l.lastError = time.Time{}, true, false, nil
}

// Wake counts the loop's patience from now.
func (l *Loop) Wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastHeartbeat, l.paused = time.Now(), false
}

// pause notes that the loop is about to be started again after err. What is
// known to have failed is not stuck.
func (l *Loop) pause(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastHeartbeat, l.failing, l.lastError = time.Time{}, true, err
	l.restarts++
}

// Allow changes the loop's patience, which is counted from now.
func (l *Loop) Allow(patience time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.patience = patience
	if !l.lastHeartbeat.IsZero() {
		l.lastHeartbeat = time.Now()
	}
}

// Stuck reports whether the loop has made no progress for longer than its patience.
func (l *Loop) Stuck(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.patience > 0 && !l.lastHeartbeat.IsZero() && now.Sub(l.lastHeartbeat) > l.patience
}

// Err is how the loop's last round failed; nil if it did not.
func (l *Loop) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastError
}

// Health is how a loop is, as `hostler status` shows it.
type Health struct {
	Name        string     `json:"name"`
	Healthy     bool       `json:"healthy"`
	LastSuccess *time.Time `json:"lastSuccess"` // null before the first one
	LastError   string     `json:"lastError"`
	Restarts    int        `json:"restarts"`
}

// Health is how the loop is.
func (l *Loop) Health(now time.Time) Health {
	stuck := l.Stuck(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Health{Name: l.name, Healthy: !l.failing && !stuck, Restarts: l.restarts}
	if l.lastError != nil {
		s.LastError = l.lastError.Error()
	}
	if !l.lastSuccess.IsZero() {
		t := l.lastSuccess.UTC()
		s.LastSuccess = &t
	}
	if stuck && s.LastError == "" {
		s.LastError = fmt.Sprintf("no progress since %s", l.lastHeartbeat.UTC().Format(time.RFC3339))
	}
	return s
}

// steady is how long a loop has to run before its next end is a new trouble.
const steady = time.Minute

// Supervise runs the loop until ctx ends. A run that returns or panics is
// started again after a pause that grows from one second to one minute. Why is
// logged once, and again when the loop runs steadily.
func (l *Loop) Supervise(ctx context.Context, log *slog.Logger) {
	fresh := wait.Backoff{Duration: time.Second, Factor: 2, Steps: 7, Cap: time.Minute, Jitter: 0.1}
	pause := fresh
	trouble := "" // what was logged and is not over
	for {
		l.Wake()
		before := trouble
		recovered := time.AfterFunc(steady, func() {
			if before != "" {
				log.Info("loop stable again", "loop", l.name)
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
			err = errors.New("returned without an error")
		}
		l.pause(err)
		if text := err.Error(); text != trouble {
			trouble = text
			details := []any{"loop", l.name, "error", err}
			if stack != "" {
				details = append(details, "stack", stack)
			}
			log.Error("restarting loop that ended", details...)
		}
		select {
		case <-time.After(pause.Step()):
		case <-ctx.Done():
			return
		}
	}
}

// protected turns a panic of a loop into an error with its stack, so that the other loops continue.
func (l *Loop) protected(ctx context.Context) (stack string, err error) {
	defer func() {
		if p := recover(); p != nil {
			stack, err = string(debug.Stack()), fmt.Errorf("panic: %v", p)
		}
	}()
	return "", l.run(ctx)
}

// Set is all loops of an agent, in the order in which `hostler status` shows them.
type Set []*Loop

// Stuck names the loops that make no progress.
func (s Set) Stuck() []string {
	now := time.Now()
	var stuck []string
	for _, l := range s {
		if l.Stuck(now) {
			stuck = append(stuck, l.name)
		}
	}
	return stuck
}

// Healthy is an error that names the loops that make no progress; nil if all do.
func (s Set) Healthy() error {
	if stuck := s.Stuck(); len(stuck) > 0 {
		return errors.New("no progress: " + strings.Join(stuck, ", "))
	}
	return nil
}

// Feed calls feed twice in each interval while every loop makes progress, until ctx ends; an interval of
// 0 is for a service manager without a watchdog. A call that fails in time is progress: a restart would
// not help, and a fleet of them would be a storm when the control plane is back.
func (s Set) Feed(ctx context.Context, interval time.Duration, feed func(), log *slog.Logger) {
	if interval == 0 {
		return
	}
	tick := time.NewTicker(interval / 2)
	defer tick.Stop()
	stuck := false
	for {
		err := s.Healthy()
		switch {
		case err != nil && !stuck:
			log.Error("stopped watchdog notifications", "error", err)
		case err == nil && stuck:
			log.Info("resumed watchdog notifications")
		}
		if stuck = err != nil; !stuck {
			feed()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
