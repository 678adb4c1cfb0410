// Package runs runs collections one at a time: at their interval, early on request of the agent,
// and on request of a user. It reports the result of each run.
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

// DefaultRunLimit bounds one run if Options has no limit.
const DefaultRunLimit = 10 * time.Minute

// retryAfter is the pause before the next run if a runtime did not answer, unless the interval is
// shorter.
const retryAfter = time.Minute

// TriggerRequest is the Trigger of a run that a user requested.
const TriggerRequest = "request"

// Turn is held by the collector that runs. Collectors on the same filesystems share one; otherwise
// each would count what the other freed.
type Turn chan struct{}

// NewTurn returns a free turn.
func NewTurn() Turn { return make(Turn, 1) }

// Options are the options of every collector.
type Options struct {
	Survey   *survey.Survey
	Turn     Turn          // shared with other collectors; nil creates one
	Interval time.Duration // between automatic runs; above 0
	RunLimit time.Duration // time limit of one run; 0 means DefaultRunLimit
	// LeaveAlone returns the runtimes from which automatic runs remove nothing; nil if there are
	// none. Requested runs ignore it.
	LeaveAlone func() []string
	// Observe is called after every run, even if it did nothing, and before the next one; nil if
	// not needed.
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

// Work is one run of a collector. It records its results in the report.
type Work func(ctx context.Context, o gc.Options, report *Report, progress func(Progress))

// Loop runs collections one at a time: at its interval, early when triggered, and on request.
type Loop struct {
	options Options
	only    gc.Options // what this collector collects
	work    Work

	early   chan string
	retimed chan struct{}

	mu       sync.Mutex // guards the fields below
	interval time.Duration
	last     Report
	ran      bool
}

// NewLoop validates the options. Requests are limited to what the collector collects: images, or
// containers.
func NewLoop(options Options, only gc.Options, work Work) (*Loop, error) {
	if err := options.complete(); err != nil {
		return nil, err
	}
	return &Loop{
		options: options, only: only, work: work, interval: options.Interval,
		early: make(chan string, 1), retimed: make(chan struct{}, 1),
	}, nil
}

// Run collects at once, then at every interval and after each Trigger, until ctx ends. It returns
// ctx's error. A failed run is reported to Observe and does not end the loop.
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

// ExcludedRuntimes returns the runtimes from which the run of a report removes nothing now. Call it
// after each scan, because a runtime may have appeared during the run.
func (l *Loop) ExcludedRuntimes(r *Report) []string {
	if r.Requested() || l.options.LeaveAlone == nil {
		return nil
	}
	return l.options.LeaveAlone()
}

// wait returns the trigger of the next run. A changed interval counts from the moment it is set, so
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

// Trigger requests a run now, or right after the current one. why is the trigger in its report. It
// does not block.
func (l *Loop) Trigger(why string) {
	select {
	case l.early <- why:
	default: // already requested
	}
}

// Retry triggers a run if the last one could not query a runtime, or if a runtime has appeared
// since. Otherwise it does nothing.
func (l *Loop) Retry(why string) {
	l.mu.Lock()
	last, ran := l.last, l.ran
	l.mu.Unlock()
	fresh := func(name string) bool { return !slices.Contains(last.runtimes, name) }
	if ran && (last.unanswered || slices.ContainsFunc(l.runtimes(), fresh)) {
		l.Trigger(why)
	}
}

// runtimes names the current runtimes of this host.
func (l *Loop) runtimes() []string {
	var names []string
	for _, rt := range l.options.Survey.Runtimes() {
		names = append(names, rt.Name())
	}
	return names
}

// Collect runs a requested collection and returns the report. It waits for the current run. It
// returns an error only if the run did not take place: invalid options, or ctx ended before.
// progress, if not nil, is called if it has to wait, and for each object.
func (l *Loop) Collect(ctx context.Context, o gc.Options, progress func(Progress)) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, fmt.Errorf("collect: %w", err)
	}
	o.Images, o.Containers = l.only.Images, l.only.Containers
	return l.once(ctx, o, TriggerRequest, progress)
}

// Last returns the report of the last finished run; false if there is none.
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

// SetInterval sets the interval of automatic runs, which must be above 0. It counts from the last
// run. A shorter interval starts the next run at least one interval from now.
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
	if ctx.Err() != nil { // the run was cut short, so earlier troubles may remain
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

// log logs what a run removed. It logs each trouble when it begins and when it ends.
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

// Cancelled is why a run ended early: its caller disconnected, or the agent stops.
const Cancelled = "cancelled"

// WhyDone returns why the context of a run ended, as text for the report.
func WhyDone(ctx context.Context) string {
	if errors.Is(context.Cause(ctx), errRunLimit) {
		return "time limit reached"
	}
	return Cancelled
}
