// Package runs runs collections one at a time: at their interval, early on request of the agent,
// and on request of an operator. It reports the result of each run.
//
// It owns when a run starts, how long it may take, and its [Report]. It does not know what is
// collected.
package runs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/survey"
)

// DefaultRunLimit bounds one run unless Options say otherwise.
const DefaultRunLimit = 10 * time.Minute

// retryAfter is when a run that could not ask a runtime is tried again, if the
// interval is longer.
const retryAfter = time.Minute

// TriggerRequest is the Trigger of a run that a person requested.
const TriggerRequest = "request"

// Turn is held by the collector that runs. Collectors that measure the same filesystems
// share one: each would count what the other freed.
type Turn chan struct{}

// NewTurn returns a turn that nobody has.
func NewTurn() Turn { return make(Turn, 1) }

// Options is what every collector needs.
type Options struct {
	Survey   *survey.Survey
	Turn     Turn          // shared with other collectors; one of its own if nil
	Interval time.Duration // between automatic runs; above 0
	RunLimit time.Duration // one run takes no longer; 0 means DefaultRunLimit
	// LeaveAlone returns the runtimes from which automatic runs remove nothing; nil if there are
	// none. Runs on request ignore it.
	LeaveAlone func() []string
	// Observe is called after every run, also one that did nothing, before the
	// next may begin; nil for nobody.
	Observe func(Report)
	Log     *slog.Logger
}

func (o *Options) complete() error {
	switch {
	case o.Survey == nil || o.Survey.Runtimes == nil || o.Survey.Meter == nil || o.Survey.Uses == nil:
		return errors.New("collector: survey is incomplete")
	case o.Interval <= 0:
		return fmt.Errorf("collector: interval %s is not above 0", o.Interval)
	case o.RunLimit < 0:
		return fmt.Errorf("collector: run limit %s is negative", o.RunLimit)
	case o.Log == nil:
		return errors.New("collector: no logger")
	}
	if o.RunLimit == 0 {
		o.RunLimit = DefaultRunLimit
	}
	if o.Turn == nil {
		o.Turn = NewTurn()
	}
	return nil
}

// Work is one run of a collector: it notes in the report what it does.
type Work func(ctx context.Context, o gc.Options, report *Report, progress func(Progress))

// Loop runs collections one at a time: on its interval, early when triggered,
// and for a person.
type Loop struct {
	options Options
	only    gc.Options // what this collector collects
	work    Work

	early   chan string
	retimed chan struct{}

	mu       sync.Mutex // guards what follows
	interval time.Duration
	last     Report
	ran      bool
}

// NewLoop checks the options. What is requested is narrowed to what the collector
// collects: images, or containers.
func NewLoop(options Options, only gc.Options, work Work) (*Loop, error) {
	if err := options.complete(); err != nil {
		return nil, err
	}
	return &Loop{
		options: options, only: only, work: work, interval: options.Interval,
		early: make(chan string, 1), retimed: make(chan struct{}, 1),
	}, nil
}

// Run collects at once, then with every interval and after each Trigger, until
// ctx ends, and returns ctx's error. A run that fails is reported to Observe and
// does not end the loop.
func (l *Loop) Run(ctx context.Context) error {
	trigger := "start"
	for {
		report, err := l.once(ctx, l.only, trigger, nil)
		if err != nil {
			return err
		}
		if trigger, err = l.wait(ctx, report.unanswered); err != nil {
			return err
		}
	}
}

// ExcludedRuntimes returns the runtimes from which the run of a report removes nothing, as of now.
// Call it after each check: a runtime may have appeared since the run was requested.
func (l *Loop) ExcludedRuntimes(r *Report) []string {
	if r.Requested() || l.options.LeaveAlone == nil {
		return nil
	}
	return l.options.LeaveAlone()
}

// wait returns what starts the next run. A shorter interval counts from the moment it is set, so
// that a change of the configuration starts no run at once.
func (l *Loop) wait(ctx context.Context, unanswered bool) (string, error) {
	since := time.Now()
	due := l.pause(unanswered)
	for {
		timer := time.NewTimer(due - time.Since(since))
		select {
		case <-ctx.Done():
			timer.Stop()
			return "", ctx.Err()
		case why := <-l.early:
			timer.Stop()
			return why, nil
		case <-timer.C:
			return "interval", nil
		case <-l.retimed:
			timer.Stop()
			pause := l.pause(unanswered)
			due = min(time.Since(since)+pause, max(due, pause))
		}
	}
}

// pause is the time to the next run.
func (l *Loop) pause(unanswered bool) time.Duration {
	if unanswered {
		return min(l.Interval(), retryAfter)
	}
	return l.Interval()
}

// Trigger requests a run now, or right after the one that is in progress, and says
// why, in a word. It does not wait.
func (l *Loop) Trigger(why string) {
	select {
	case l.early <- why:
	default: // one is requested already
	}
}

// Retry is Trigger if the last run could not query a runtime, or if a runtime has appeared since.
// Otherwise it does nothing.
func (l *Loop) Retry(why string) {
	l.mu.Lock()
	last, ran := l.last, l.ran
	l.mu.Unlock()
	fresh := func(name string) bool { return !slices.Contains(last.runtimes, name) }
	if ran && (last.unanswered || slices.ContainsFunc(l.runtimes(), fresh)) {
		l.Trigger(why)
	}
}

// runtimes names those of this host, as of now.
func (l *Loop) runtimes() []string {
	var names []string
	for _, rt := range l.options.Survey.Runtimes() {
		names = append(names, rt.Name())
	}
	return names
}

// Collect runs for a person and returns the report. It waits for a run that is
// in progress. The error is only of a run that did not take place: bad options, or
// ctx ended first. Progress, if not nil, is called if it has to wait, and for each
// object in turn.
func (l *Loop) Collect(ctx context.Context, o gc.Options, progress func(Progress)) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, fmt.Errorf("collect: %w", err)
	}
	o.Images, o.Containers = l.only.Images, l.only.Containers
	return l.once(ctx, o, TriggerRequest, progress)
}

// Last returns the report of the last finished run, and false before the first.
func (l *Loop) Last() (Report, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last, l.ran
}

// Interval is the time between automatic runs.
func (l *Loop) Interval() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.interval
}

// SetInterval changes the time between automatic runs, above 0, counted from the last one. A
// shorter one brings the next run no nearer than an interval from now.
func (l *Loop) SetInterval(d time.Duration) {
	l.mu.Lock()
	l.interval = d
	l.mu.Unlock()
	select {
	case l.retimed <- struct{}{}:
	default:
	}
}

func (l *Loop) once(ctx context.Context, o gc.Options, trigger string, progress func(Progress)) (Report, error) {
	if progress == nil {
		progress = func(Progress) {}
	}
	turn := l.options.Turn
	select {
	case turn <- struct{}{}:
	default:
		progress(Progress{Waiting: true})
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return Report{}, fmt.Errorf("collect: wait for the running collection: %w", ctx.Err())
		}
	}
	defer func() { <-turn }()
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, l.options.RunLimit, errRunLimit)
	defer cancel()
	report := NewReport(trigger)
	report.runtimes = l.runtimes()
	l.work(bounded, o, report, progress)
	report.Duration = metav1.Duration{Duration: time.Since(report.StartedAt)}

	l.mu.Lock()
	before := l.last.trouble
	if ctx.Err() != nil { // whether earlier troubles are over is not known
		for kind, text := range before {
			if _, reported := report.trouble[kind]; !reported {
				report.trouble[kind] = text
			}
		}
	}
	l.last, l.ran = *report, true
	l.mu.Unlock()
	l.log(report, before)
	if l.options.Observe != nil {
		l.options.Observe(*report)
	}
	return *report, nil
}

// log says what a run did, if it did anything, and each trouble when it begins
// and when it is over.
func (l *Loop) log(r *Report, before map[string]string) {
	log := l.options.Log
	if len(r.Removed) > 0 {
		log.Info("collected", "trigger", r.Trigger, "filesystems", r.Filesystems, "removed", len(r.Removed), "requestedBytes", r.RequestedBytes,
			"estimatedBytes", r.EstimatedBytes, "freedBytes", r.FreedBytes, "duration", r.Duration.Duration, "ended", r.Ended)
	}
	for kind, text := range r.trouble {
		if _, old := before[kind]; !old {
			log.Warn("collection impaired", "what", kind, "error", text)
		}
	}
	for kind := range before {
		if _, still := r.trouble[kind]; !still {
			log.Info("collection no longer impaired", "what", kind)
		}
	}
}

var errRunLimit = errors.New("the collection took too long")

// Cancelled is why a run ended whose caller disconnected, or whose agent stops.
const Cancelled = "cancelled"

// WhyDone returns why the context of a run ended, as text for the report.
func WhyDone(ctx context.Context) string {
	if errors.Is(context.Cause(ctx), errRunLimit) {
		return "time limit reached"
	}
	return Cancelled
}
