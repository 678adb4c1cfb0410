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

// Loop is one of the agent's controllers: a run function that is restarted whenever it returns, and
// its health. It may be run only once; all other methods are safe for concurrent use.
type Loop struct {
	name string
	run  func(ctx context.Context) error

	longest time.Duration // longest pause before a restart

	mu            sync.Mutex    // guards the fields below
	patience      time.Duration // see New
	lastHeartbeat time.Time     // by the monotonic clock
	lastSuccess   time.Time
	lastError     error
	failing       bool
	paused        bool // another owner does its job
	restarts      int
}

// New returns a loop that is not started. If it has no Heartbeat for longer than patience, it
// counts as stuck. A loop that only waits for events has patience 0.
func New(name string, patience time.Duration, run func(ctx context.Context) error) *Loop {
	return &Loop{name: name, patience: patience, run: run, longest: time.Minute}
}

// Eager makes the pauses before restarts at most that long, and returns the loop. It is for a loop
// whose result others wait for. Call it before Supervise.
func (l *Loop) Eager(longest time.Duration) *Loop {
	l.longest = longest
	return l
}

// Do sets the run function of a loop that was made without one, and returns the loop. Use it if run
// needs parts that are built with the loop's Heartbeat. Call it before Supervise.
func (l *Loop) Do(run func(ctx context.Context, l *Loop) error) *Loop {
	l.run = func(ctx context.Context) error { return run(ctx, l) }
	return l
}

// Name returns the name that `hostler status` shows.
func (l *Loop) Name() string { return l.name }

// Heartbeat records that the loop finished one round, and the round's error. It does not log: each
// package logs when a problem begins and ends. A round that a person requests while the loop is
// paused does not start the patience: no round follows it.
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

// Pause records that the loop waits because another owner does its job.
func (l *Loop) Pause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastHeartbeat, l.paused, l.failing, l.lastError = time.Time{}, true, false, nil
}

// Wake ends a pause and restarts the patience.
func (l *Loop) Wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastHeartbeat, l.paused = time.Now(), false
}

// pause records that the loop failed with err and is about to restart. A loop that failed does not
// count as stuck.
func (l *Loop) pause(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastHeartbeat, l.failing, l.lastError = time.Time{}, true, err
	l.restarts++
}

// Allow changes the patience and restarts it.
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

// Err returns the error of the last round.
func (l *Loop) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastError
}

// Health is the health of a loop, as `hostler status` shows it.
type Health struct {
	Name        string     `json:"name"`
	Healthy     bool       `json:"healthy"`
	LastSuccess *time.Time `json:"lastSuccess"` // null before the first success
	LastError   string     `json:"lastError"`
	Restarts    int        `json:"restarts"`
}

// Health returns the loop's health.
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

// steady is how long a loop must run until its failure counts as a new problem.
const steady = time.Minute

// Supervise runs the loop until ctx ends. If it returns or panics, Supervise restarts it after a
// pause that grows from one second to one minute, or less: see Eager. It logs each cause once, and logs when the loop
// runs steadily again.
func (l *Loop) Supervise(ctx context.Context, log *slog.Logger) {
	fresh := wait.Backoff{Duration: time.Second, Factor: 2, Steps: 7, Cap: l.longest, Jitter: 0.1}
	pause := fresh
	trouble := "" // the error that was logged and is not over
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

// protected turns a panic of a loop into an error with its stack, so that other loops continue.
func (l *Loop) protected(ctx context.Context) (stack string, err error) {
	defer func() {
		if p := recover(); p != nil {
			stack, err = string(debug.Stack()), fmt.Errorf("panic: %v", p)
		}
	}()
	return "", l.run(ctx)
}

// Set is all loops of the agent, in the order in which `hostler status` shows them.
type Set []*Loop

// Stuck returns the names of the loops that make no progress.
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

// Healthy returns an error that names the loops that make no progress, or nil.
func (s Set) Healthy() error {
	if stuck := s.Stuck(); len(stuck) > 0 {
		return errors.New("no progress: " + strings.Join(stuck, ", "))
	}
	return nil
}

// Feed calls feed twice in each interval while every loop makes progress, until ctx ends. An
// interval of 0 means that the service manager has no watchdog. A round that fails in time counts
// as progress. A restart would not help, and restarts of a whole fleet would overload a control
// plane that recovers.
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
