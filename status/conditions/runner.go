package conditions

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/status"
)

const (
	// ScanInterval is how often the folder is scanned for changes.
	ScanInterval = 10 * time.Second
	// maxRunning bounds concurrent checks.
	maxRunning = 4
	// stopGrace is how long Run, after ctx ends, waits for checks that it has killed. The host may
	// be shutting down.
	stopGrace = 2 * pipeGrace
)

// Options configure a Runner.
type Options struct {
	Policy Policy
	// Changed is called when a condition appears, disappears, or has another answer.
	Changed func()
	// Appeared is called when a temporary problem appears or changes its message.
	Appeared func(p Program, message string)
	// Observe is called after each run.
	Observe func(p Program, r Result)
	Log     *slog.Logger
}

// Runner scans the folder, runs the checks that are due, and publishes their last results. Its
// methods are safe for concurrent use.
type Runner struct {
	options Options
	read    func(Policy) ([]Program, []Fault)
	execute func(context.Context, Program) (Result, <-chan struct{})
	wake    chan struct{} // has a token if the policy has changed

	// The fields below belong to Run's goroutine.
	checks  map[string]*check // by path
	scan    *scan             // in progress; nil if there is none
	busy    map[string]bool   // paths of checks whose process has not ended
	running int               // number of runs without a result yet
	ended   chan outcome

	policy    atomic.Pointer[Policy] // set by any goroutine
	scanned   atomic.Bool            // the folder has been read
	published atomic.Pointer[answers]
}

// answers is what Run publishes. It is never modified.
type answers struct {
	checks   []Check // sorted by type
	faults   []Fault
	findings []status.Custom
}

// check is a program and its state.
type check struct {
	program Program
	due     time.Time // by the monotonic clock
	last    Result
	broken  *Fault // why it does not run any more, or nil
}

// outcome is the result of a run, or the later end of its process.
type outcome struct {
	program Program
	result  Result
	gone    bool
}

// New reads the folder, if that answers in time, but runs no check.
func New(o Options) (*Runner, error) {
	if err := o.Policy.Validate(); err != nil {
		return nil, err
	}
	if o.Changed == nil || o.Appeared == nil || o.Observe == nil || o.Log == nil {
		return nil, errors.New("conditions: Changed, Appeared, Observe and Log are required")
	}
	r := &Runner{
		options: o, read: Read, execute: execute, wake: make(chan struct{}, 1),
		checks: map[string]*check{}, busy: map[string]bool{}, ended: make(chan outcome),
	}
	r.policy.Store(&o.Policy)
	r.published.Store(&answers{checks: []Check{}})
	r.runScan(time.Now())
	return r, nil
}

// SetPolicy replaces the policy, which must be valid.
func (r *Runner) SetPolicy(p Policy) {
	r.policy.Store(&p)
	select {
	case r.wake <- struct{}{}:
	default: // a token is pending
	}
}

// Custom returns the results for the Node, sorted by type.
func (r *Runner) Custom() []status.Custom { return slices.Clone(r.published.Load().findings) }

// Scanned reports whether the folder has been read. Until then, Custom and Checks are empty.
func (r *Runner) Scanned() bool { return r.scanned.Load() }

// Checks returns the checks, sorted by type.
func (r *Runner) Checks() []Check { return slices.Clone(r.published.Load().checks) }

// Faults returns the faults of files in the folder.
func (r *Runner) Faults() []Fault { return slices.Clone(r.published.Load().faults) }

// Folder returns the path of the folder with the checks.
func (r *Runner) Folder() string { return r.policy.Load().Folder }

// Run runs the checks until ctx ends, and then kills the running ones. It calls heartbeat with each
// round, at least once in a ScanInterval.
func (r *Runner) Run(ctx context.Context, heartbeat func()) error {
	var workers sync.WaitGroup
	stop, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		r.await(&workers)
	}()
	var scannedAt time.Time
	for {
		if time.Since(scannedAt) >= ScanInterval {
			scannedAt = time.Now()
			if r.runScan(scannedAt) {
				r.options.Changed()
			}
		}
		next := r.start(stop, &workers)
		heartbeat()
		if later := scannedAt.Add(ScanInterval); later.Before(next) {
			next = later
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
		case <-r.wake:
			scannedAt = time.Time{}
		case o := <-r.ended:
			r.handle(o)
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

// await waits for the workers, but not for a check that cannot be killed. Run may be called again
// then.
func (r *Runner) await(workers *sync.WaitGroup) {
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	_ = bounded.Call(ctx, func() error { workers.Wait(); return nil })
	r.running = 0
	clear(r.busy)
}

// runScan scans the folder, and reports whether conditions have changed.
func (r *Runner) runScan(now time.Time) (changed bool) {
	policy, before := *r.policy.Load(), r.published.Load().faults
	programs, faults, answered := r.readFolder(policy)
	if !answered {
		r.note(append(slices.DeleteFunc(slices.Clone(before), isUnresponsive), unresponsive(policy.Folder)))
		return false // the last scan stays valid
	}
	changed = !r.scanned.Load()
	checks, types := map[string]*check{}, map[corev1.NodeConditionType]bool{}
	for _, p := range programs {
		types[p.Type] = true
		c := r.checks[p.Path]
		switch {
		case c == nil || c.program.Type != p.Type || c.program.Temporary != p.Temporary:
			r.options.Log.Info("found condition check", "path", p.Path, "type", p.Type, "user", p.User, "interval", p.Interval, "timeout", p.Timeout)
			c = &check{due: now}
			changed = true
		case c.broken != nil:
			r.options.Log.Info("condition check enabled again", "path", p.Path, "type", p.Type)
			c.due, changed = now, true
		case c.program != p:
			c.due = now
		}
		c.program, c.broken = p, nil
		checks[p.Path] = c
	}
	for path, c := range r.checks {
		if checks[path] != nil {
			continue
		}
		if f := brokenBy(faults, path, policy.Folder); f != nil && !types[c.program.Type] {
			changed = changed || c.broken == nil
			c.broken = f
			checks[path] = c
			continue
		}
		changed = true
		r.options.Log.Info("condition check was removed", "path", path, "type", c.program.Type)
	}
	r.checks = checks
	r.note(faults)
	r.publish()
	r.scanned.Store(true)
	return changed
}

// brokenBy returns the fault that keeps an earlier check from running, unless somebody removed or
// disabled the check.
func brokenBy(faults []Fault, path, folder string) *Fault {
	for i, f := range faults {
		if (f.Path == path || f.Path == path+".yaml" || f.Path == folder) && !f.off {
			return &faults[i]
		}
	}
	return nil
}

// start starts the checks that are due, the longest due first, and returns when to call it again.
func (r *Runner) start(ctx context.Context, workers *sync.WaitGroup) (next time.Time) {
	now := time.Now()
	next = now.Add(ScanInterval)
	for _, c := range slices.SortedFunc(maps.Values(r.checks), func(a, b *check) int { return a.due.Compare(b.due) }) {
		p := c.program
		switch {
		case r.busy[p.Path] || c.broken != nil:
		case c.due.After(now):
			if c.due.Before(next) {
				next = c.due
			}
		case r.running < maxRunning: // else wait until a running one ends
			c.due = now.Add(p.Interval)
			r.busy[p.Path] = true
			r.running++
			workers.Go(func() { r.work(ctx, p) })
		}
	}
	return next
}

// work runs a check. It reports its result, and when its process has ended.
func (r *Runner) work(ctx context.Context, p Program) {
	result, gone := r.execute(ctx, p)
	select {
	case r.ended <- outcome{program: p, result: result}:
	case <-ctx.Done(): // the check was killed, too
		return
	}
	select {
	case <-gone:
	case <-ctx.Done():
		return
	}
	select {
	case r.ended <- outcome{program: p, gone: true}:
	case <-ctx.Done():
	}
}

// handle handles an outcome.
func (r *Runner) handle(o outcome) {
	if o.gone {
		delete(r.busy, o.program.Path)
		return
	}
	r.running--
	r.options.Observe(o.program, o.result)
	if o.result.Answer == status.NotRun && r.runScan(time.Now()) { // the file may have been removed
		r.options.Changed()
	}
	c := r.checks[o.program.Path]
	if c == nil || c.program.Type != o.program.Type || c.broken != nil {
		return // the file is another check now
	}
	before := c.last
	c.last = o.result
	r.publish()
	switch {
	case !c.program.Temporary:
		if before.Answer != o.result.Answer {
			r.options.Changed()
		}
	case o.result.Answer != status.Problem:
	case before.Answer != status.Problem || before.Message != o.result.Message:
		r.options.Log.Warn("temporary problem", "type", c.program.Type, "reason", c.program.Reason, "message", o.result.Message)
		r.options.Appeared(c.program, o.result.Message)
	}
}

// publish makes the last results visible to other goroutines.
func (r *Runner) publish() {
	next := answers{checks: []Check{}, faults: r.published.Load().faults}
	for _, c := range slices.SortedFunc(maps.Values(r.checks), func(a, b *check) int {
		return strings.Compare(string(a.program.Type), string(b.program.Type))
	}) {
		p, answer, message := c.program, c.last.Answer, c.last.Message
		if c.broken != nil {
			answer, message = status.NotRun, c.broken.String()+"; "+c.broken.Fix
		}
		one := Check{
			Path: p.Path, Type: p.Type, Temporary: p.Temporary, User: p.User,
			Interval: metav1.Duration{Duration: p.Interval}, Timeout: metav1.Duration{Duration: p.Timeout},
			Answer: answer, Message: message, Duration: metav1.Duration{Duration: c.last.Took}, Faulty: c.broken != nil, Fault: c.broken,
		}
		if !c.last.Started.IsZero() {
			started := c.last.Started.UTC()
			one.LastRun = &started
		}
		next.checks = append(next.checks, one)
		if !p.Temporary {
			next.findings = append(next.findings, status.Custom{Type: p.Type, Reason: p.Reason, Answer: answer, Message: message})
		}
	}
	r.published.Store(&next)
}
