package restart

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
)

const (
	// atOnce is the maximum number of parallel starts, because a host that has just booted is busy. A
	// start that takes longer than busyBound does not count: it waits, such as for a volume.
	atOnce, busyBound = 4, 10 * time.Second
	// firstPause and longestPause are the shortest and the longest pause between passes, if
	// containers are pending, no attempt is due and nothing has changed.
	firstPause, longestPause = time.Second, time.Minute
	// listBound bounds a list of pods. startBound bounds one start. flushBound is how long a start
	// waits until the journal is on disk.
	listBound, startBound, flushBound = 10 * time.Second, 3 * time.Minute, 2 * time.Second
)

// Options are the options of a Restarter.
type Options struct {
	Set     *runtime.Set
	Journal *journal.Journal
	Log     *slog.Logger
	// Never disables all starts.
	Never bool
	// Held reports that nothing may be started now, for example because the host shuts down.
	Held func() bool
	// Report is called with each container that was started, or whose start failed. Calls may be
	// concurrent.
	Report func(journal.Restart)
	// Wake starts a pass at once, because a runtime has appeared or a shutdown was cancelled.
	Wake <-chan struct{}
	// PendingUnits returns what systemd has yet to start: the network, mounts, and those of the
	// given units. Nil without systemd.
	PendingUnits func(ctx context.Context, units ...string) ([]PendingUnit, error)
	// Proc is the proc filesystem through which the files of the host are read, below process 1;
	// /proc if empty.
	Proc string
}

// Restarter starts the containers again that a shutdown stopped. Run's goroutine owns it.
type Restarter struct {
	o   Options
	log *slog.Logger

	known     sinces // since when each container is pending; Run's goroutine owns it
	answering sinces // since when the runtime of each answers; likewise

	host    *host
	needs   map[pending]need // of containers that are due or tried again; likewise
	watched watched          // likewise

	starts  sync.WaitGroup
	running map[pending]chan struct{} // starts, until a pass after their end, which closes the channel; likewise
	ended   loop.Signal               // a start has ended after its pass
}

// pending identifies a container that a shutdown has stopped.
type pending struct {
	key
	asked int64
}

func pendingFor(o journal.Restart) pending {
	return pending{key{o.Runtime, o.ID}, o.AskedAt.UnixNano()}
}

// New returns a Restarter. Call Run to start it.
func New(o Options) *Restarter {
	return &Restarter{o: o, log: o.Log.With("component", "restart"), host: newHost(cmp.Or(o.Proc, "/proc")), running: map[pending]chan struct{}{}, ended: loop.NewSignal()}
}

// Run starts pending containers until ctx ends. While none are pending, it only waits.
func (r *Restarter) Run(ctx context.Context) error {
	defer r.starts.Wait()
	pause := firstPause
	for {
		var again, check <-chan time.Time
		if r.pending() {
			due := r.pass(ctx)
			again = time.After(min(pause, due))
			pause = min(2*pause, longestPause)
			if len(r.needs) > 0 {
				check = time.After(hostPoll)
			}
		}
		for waits := true; waits; {
			select {
			case <-again:
				waits = false
			case <-check:
				if check = time.After(hostPoll); r.hostChanged(ctx) {
					waits, pause = false, firstPause
				}
			case <-r.ended:
				waits = false
			case <-r.o.Wake:
				waits, pause = false, firstPause
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

func (r *Restarter) pending() bool {
	return slices.ContainsFunc(r.o.Journal.Restarts(), func(o journal.Restart) bool { return o.Outcome == "" })
}

// pass checks all pending containers, and returns the time until the next attempt is due.
func (r *Restarter) pass(ctx context.Context) time.Duration {
	maps.DeleteFunc(r.running, func(_ pending, ended chan struct{}) bool { return isClosed(ended) })
	f := Facts{Restarts: r.o.Journal.Restarts(), Never: r.o.Never}
	if !f.Never {
		if r.o.Held() {
			return longestPause
		}
		f.Pods, f.Unreachable = r.list(ctx)
		f.Unable = r.unable
		f.Starting = func(o journal.Restart) bool { return r.running[pendingFor(o)] != nil }
		f.Waited = r.known.follow(f.Restarts, func(journal.Restart) bool { return true })
		f.AnsweringFor = r.answering.follow(f.Restarts, func(o journal.Restart) bool { return !f.Unreachable(o.Runtime) })
		r.readHost(ctx, &f)
	}
	decisions := Plan(f, time.Now())
	for _, d := range decisions {
		switch d.Action {
		case Leave:
			r.settle(d.Restart)
		case Wait:
			r.noteWait(f.Restarts, d.Restart)
		case Start:
			r.noteTry(d)
		}
	}
	r.startAll(ctx, decisions)
	return r.nextDue(time.Now())
}

// nextDue returns the time until the next attempt for a container whose start has failed.
func (r *Restarter) nextDue(now time.Time) time.Duration {
	due := longestPause
	for _, o := range r.o.Journal.Restarts() {
		if left := untilRetry(o, now); o.Outcome == "" && o.Tries > 0 && left > 0 {
			due = min(due, left)
		}
	}
	return due
}

// list lists the pods, and reports which runtimes did not answer.
func (r *Restarter) list(ctx context.Context) ([]runtime.Pod, func(string) bool) {
	ctx, cancel := context.WithTimeout(ctx, listBound)
	defer cancel()
	members := map[string]bool{}
	for _, m := range r.o.Set.Members() {
		members[m.Name()] = true
	}
	pods, err := r.o.Set.Pods(ctx)
	if failed := (*runtime.SetError)(nil); errors.As(err, &failed) {
		for _, f := range failed.Failed {
			delete(members, f.Runtime)
		}
	}
	return pods, func(name string) bool { return !members[name] }
}

// sinces has, for each pending container, since when a condition is true.
type sinces map[pending]time.Time

// follow updates for which containers the condition is true. It returns a function that returns for
// how long.
func (s *sinces) follow(all []journal.Restart, is func(journal.Restart) bool) func(journal.Restart) time.Duration {
	now := sinces{}
	for _, o := range all {
		if o.Outcome == "" && is(o) {
			since, ok := (*s)[pendingFor(o)]
			if !ok {
				since = time.Now()
			}
			now[pendingFor(o)] = since
		}
	}
	*s = now
	return func(o journal.Restart) time.Duration {
		since, ok := now[pendingFor(o)]
		if !ok {
			return 0
		}
		return time.Since(since)
	}
}

// unable reports whether a runtime cannot start containers again.
func (r *Restarter) unable(name string) bool {
	return slices.ContainsFunc(r.o.Set.Members(), func(m runtime.Runtime) bool {
		_, able := m.(runtime.Starter)
		return m.Name() == name && !able
	})
}

// attempt is the attempt to start a container.
type attempt struct {
	passed chan struct{} // closed when others need not wait for it
	ended  chan struct{}
	tried  bool // valid after ended is closed
}

// startAll starts containers in parallel, and returns when all have ended or take longer than busyBound. A container
// starts after those that it needs have been tried. If the first attempt for one of them takes longer, a later pass
// starts it.
func (r *Restarter) startAll(ctx context.Context, decisions []Decision) {
	attempts, slots := make([]*attempt, len(decisions)), make(chan struct{}, atOnce)
	passed := func(attempts []*attempt) {
		for _, a := range attempts {
			<-a.passed
		}
	}
	for i, d := range decisions { // what a container needs comes before it
		if i > 0 && d.Restart.Priority != decisions[i-1].Restart.Priority {
			passed(attempts[:i])
		}
		a := &attempt{passed: make(chan struct{}), ended: make(chan struct{})}
		attempts[i] = a
		if d.Action == Start {
			r.running[pendingFor(d.Restart)] = a.ended
		}
		r.starts.Go(func() {
			pass, late := sync.OnceFunc(func() { close(a.passed) }), false
			defer func() { // in this order: a pass that is woken must see that the start has ended
				close(a.ended)
				pass()
				if late {
					r.ended.Send()
				}
			}()
			if d.Action != Start {
				a.tried = true
				return
			}
			for _, n := range d.After {
				<-attempts[n].passed
				if first := decisions[n].Restart.Tries == 0; first && !(isClosed(attempts[n].ended) && attempts[n].tried) {
					return
				}
			}
			slots <- struct{}{}
			release := sync.OnceFunc(func() { <-slots })
			defer release()
			bound := time.AfterFunc(busyBound, func() { release(); pass() })
			r.start(ctx, d)
			a.tried, late = true, !bound.Stop()
		})
	}
	passed(attempts)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// start starts one container. The attempt is on disk before, so that a later process checks whether the
// container runs, and continues to count. If the disk does not take it in time, the container is started all
// the same: one that stays down harms more than one attempt too many.
func (r *Restarter) start(ctx context.Context, d Decision) {
	now := d.Restart
	now.Tries, now.TriedAt = now.Tries+1, time.Now()
	if ctx.Err() != nil || r.o.Held() || !r.o.Journal.NoteRestart(now) {
		return
	}
	flush, flushed := context.WithTimeout(ctx, flushBound)
	r.o.Journal.Flush(flush)
	flushed()
	if r.o.Held() || !r.o.Journal.NoteRestart(now) { // a drain has started since
		r.o.Journal.NoteRestart(d.Restart) // it was not tried
		return
	}
	starting, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	err := r.o.Set.StartContainer(starting, d.Container)
	switch {
	case err == nil:
		now.Outcome, now.Reason = journal.Restarted, ""
	case ctx.Err() != nil:
		return // the failure may not be the container's
	case now.Tries >= maxTries, errors.Is(err, runtime.ErrUnsupported):
		now.Outcome, now.Reason = journal.RestartFailed, err.Error()
	default:
		now.Reason = err.Error()
		if now.Tries == 1 {
			r.log.Warn("cannot restart container yet", "container", now.Name, "id", now.ID, "runtime", now.Runtime, "error", err)
		}
		r.o.Journal.NoteRestart(now)
		return
	}
	now.At = time.Now()
	r.settle(now)
}

// Observe receives the pods of all runtimes. A container whose restart failed, and that somebody has started or
// removed since, does not count as failed any more. It is safe for concurrent use.
func (r *Restarter) Observe(pods []runtime.Pod) {
	listed := containers(pods)
	for _, o := range r.o.Journal.Restarts() {
		if o.Outcome != journal.RestartFailed {
			continue
		}
		c, there := listed[key{o.Runtime, o.ID}]
		switch {
		case !there && !r.lists(o.Runtime):
			continue
		case !there:
			o.Outcome, o.Reason = journal.LeftStopped, "it was removed"
		case c.State == runtime.Running:
			o.Outcome, o.Reason = journal.RunsAnyway, ""
		default:
			continue
		}
		o.At = time.Now()
		r.o.Journal.NoteRestart(o)
	}
}

// lists reports whether a runtime is there, so that its containers are among those that were listed.
func (r *Restarter) lists(name string) bool {
	return slices.ContainsFunc(r.o.Set.Members(), func(m runtime.Runtime) bool { return m.Name() == name })
}

// settle records and reports the outcome of a container.
func (r *Restarter) settle(now journal.Restart) {
	if pending := r.o.Journal.NoteRestart(now); !pending && now.Outcome != journal.Restarted {
		return // a drain has begun since, and has waived it
	}
	attributes := []any{"container", now.Name, "id", now.ID, "runtime", now.Runtime}
	switch now.Outcome {
	case journal.Restarted:
		r.log.Info("restarted container that the "+now.By()+" stopped", attributes...)
		r.o.Report(now)
	case journal.RestartFailed:
		r.log.Warn("cannot restart container that the "+now.By()+" stopped", append(attributes, "tries", now.Tries, "error", now.Reason)...)
		r.o.Report(now)
	case journal.LeftStopped:
		r.log.Info("did not restart container that the "+now.By()+" stopped", append(attributes, "reason", now.Reason)...)
	}
}
