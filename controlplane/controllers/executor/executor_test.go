package executor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/executor"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
)

// action is a write to an object.
type action struct{ object, version string }

func (a action) Object() string  { return a.object }
func (a action) Version() string { return a.version }

// job is a controller that has to write each of its objects once.
type job struct {
	mu     sync.Mutex // guards the fields below
	due    map[string]string
	err    error          // of writes
	paused error          // why there is no decision
	lacks  error          // which facts a decision lacks
	hang   time.Duration  // of writes
	calls  map[string]int // by object
	most   int            // highest number of concurrent writes, in total and to one object
	now    map[string]int // writes in progress, by object
	change loop.Signal
	stays  bool // the cache does not show writes

	decisions int
}

func newJob(objects int) *job {
	j := &job{due: map[string]string{}, calls: map[string]int{}, now: map[string]int{}}
	for i := range objects {
		j.due[fmt.Sprintf("nodes/n%03d", i)] = "1"
	}
	return j
}

func (j *job) decide(now time.Time) (due []action, next time.Time, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.decisions++
	for object, version := range j.due {
		due = append(due, action{object, version})
	}
	return due, now.Add(5 * time.Second), j.paused
}

func (j *job) facts(time.Time) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lacks
}

func (j *job) write(ctx context.Context, _ store.Term, a action) error {
	j.mu.Lock()
	j.calls[a.object]++
	j.now[a.object]++
	running := 0
	for object, n := range j.now {
		running += n
		if n > 1 {
			panic("two writes at a time to " + object)
		}
	}
	j.most = max(j.most, running)
	err, hang := j.err, j.hang
	j.mu.Unlock()
	select {
	case <-time.After(hang):
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.now[a.object]--
	if err == nil && !j.stays {
		delete(j.due, a.object)
		j.change.Send()
	}
	return err
}

func (j *job) set(change func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change()
	j.change.Send()
}

// run runs a leading executor in a bubble.
func run(t *testing.T, j *job, test func(*executor.Executor[action])) {
	synctest.Test(t, func(t *testing.T) {
		j.change = loop.NewSignal() // of this bubble
		e := executor.New(executor.Job[action]{Facts: j.facts, Decide: j.decide, Write: j.write, Done: func(action, *slog.Logger) {}}, j.change, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- e.Run(ctx, func(error) {}) }()
		go func() { ended <- e.Lead(ctx, store.Term{}) }()
		test(e)
		cancel()
		for range 2 {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Run() or Lead() = %v, want the end of the context", err)
			}
		}
	})
}

func TestEachActionIsDoneOnceAndSeveralAtATime(t *testing.T) {
	j := newJob(100)
	j.hang = time.Second
	run(t, j, func(e *executor.Executor[action]) {
		time.Sleep(time.Minute)
		synctest.Wait()
		for object, n := range j.calls {
			if n != 1 {
				t.Errorf("%s was written %d times, want once", object, n)
			}
		}
		if r := e.Report(); len(j.calls) != 100 || j.most != 16 || r.Writes.Stored != 100 || !r.OldestDue.IsZero() || len(r.Failing) > 0 {
			t.Errorf("calls = %d, at most %d at a time, report = %+v, want 100, 16 at a time, all stored", len(j.calls), j.most, r)
		}
	})
}

// TestChangesWithoutAPauseDoNotDelayDecisions has changes that follow one another faster than a decision begins.
func TestChangesWithoutAPauseDoNotDelayDecisions(t *testing.T) {
	j := newJob(1)
	run(t, j, func(*executor.Executor[action]) {
		for began := time.Now(); time.Since(began) < 500*time.Millisecond; time.Sleep(10 * time.Microsecond) {
			j.change.Send()
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.decisions < 3 || j.decisions > 8 {
			t.Errorf("%d decisions in half a second, want one each 100 ms", j.decisions)
		}
	})
}

func TestAWriteThatFailsIsTriedAgainLessAndLessOften(t *testing.T) {
	j := newJob(1)
	j.err = fmt.Errorf("%w: refused", controlplane.ErrForbidden)
	run(t, j, func(e *executor.Executor[action]) {
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := j.calls["nodes/n000"]; n < 10 || n > 20 {
			t.Errorf("tries in 10 minutes = %d, want 1, 2, 4 ... 60 s apart", n)
		}
		if r := e.Report(); !errors.Is(r.Failing["nodes/n000"], controlplane.ErrForbidden) || r.OldestDue.IsZero() {
			t.Errorf("report = %+v, want why the object fails, and since when it is due", r)
		}
		j.set(func() { j.err = nil; j.due["nodes/n000"] = "2" }) // another version is tried at once
		time.Sleep(time.Second)
		synctest.Wait()
		if r := e.Report(); r.Writes.Stored != 1 || len(r.Failing) > 0 {
			t.Errorf("report = %+v, want it stored", r)
		}
	})
}

func TestAPausedControllerWritesNothing(t *testing.T) {
	j := newJob(1)
	j.paused = errors.New("reading")
	run(t, j, func(e *executor.Executor[action]) {
		time.Sleep(time.Minute)
		synctest.Wait()
		if r := e.Report(); len(j.calls) > 0 || r.Paused != "reading" || r.Waits != "reading" {
			t.Errorf("calls = %v, report = %+v, want none, and why", j.calls, r)
		}
	})
}

func TestAReportSaysWhichFactsADecisionLacks(t *testing.T) {
	j := newJob(1)
	if r := executor.New(executor.Job[action]{Facts: j.facts}, loop.NewSignal(), slog.New(slog.DiscardHandler)).Report(); r.Waits != "no decision yet" {
		t.Errorf("report before the first decision = %+v, want that there is none", r)
	}
	run(t, j, func(e *executor.Executor[action]) {
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, lacks := range []error{nil, errors.New("listing pods: 3 so far"), nil} { // since the last decision
			j.mu.Lock()
			j.lacks = lacks
			j.mu.Unlock()
			want := ""
			if lacks != nil {
				want = lacks.Error()
			}
			if r := e.Report(); r.Waits != want || r.Paused != "" || r.Writes.Stored != 1 {
				t.Errorf("report = %+v, want that it waits for %q", r, want)
			}
		}
	})
}

func TestAWriteThatTheCacheDoesNotShowIsLag(t *testing.T) {
	j := newJob(1)
	j.stays = true
	run(t, j, func(e *executor.Executor[action]) {
		time.Sleep(8 * time.Second)
		synctest.Wait()
		if lag := e.Report().WatchLag; j.calls["nodes/n000"] != 1 || lag < 4*time.Second || lag > 8*time.Second {
			t.Errorf("lag = %v after %d writes, want that of one write which is not shown for 8 s", lag, j.calls["nodes/n000"])
		}
		j.set(func() { delete(j.due, "nodes/n000") })
		time.Sleep(time.Second)
		synctest.Wait()
		if lag := e.Report().WatchLag; lag < 8*time.Second || lag > 9*time.Second {
			t.Errorf("lag = %v, want about 8 s", lag)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if lag := e.Report().WatchLag; lag != 0 {
			t.Errorf("lag = %v minutes after the last write, want none", lag)
		}
	})
}

func TestNothingIsInFlightWhenLeadReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(3)
		j.hang, j.change = time.Hour, loop.NewSignal()
		e := executor.New(executor.Job[action]{Facts: j.facts, Decide: j.decide, Write: j.write, Done: func(action, *slog.Logger) {}}, j.change, slog.New(slog.DiscardHandler))
		running, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(running, func(error) {}) }()
		leading, depose := context.WithTimeout(t.Context(), 5*time.Second)
		defer depose()
		if err := e.Lead(leading, store.Term{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lead() = %v, want the end of its context", err)
		}
		for object, n := range j.now {
			if n != 0 {
				t.Errorf("a write to %s is in flight", object)
			}
		}
		before := len(j.calls)
		time.Sleep(time.Minute)
		if synctest.Wait(); before != 3 || j.calls["nodes/n000"] != 1 {
			t.Errorf("calls = %v, want one of each, and none without leadership", j.calls)
		}
		stop()
		<-ended
	})
}

// TestHostsTakeTurns has a host that stores many objects, which are due first.
func TestHostsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var due []action
		for _, folder := range []string{"events/mallory/e", "pods/mallory/shop/p", "pods/n/shop/p"} {
			for i := range 100 {
				due = append(due, action{fmt.Sprint(folder, i), "1"})
			}
		}
		due = append(due, action{"nodes/n", "1"}, action{"tickets/t", "1"})
		var mu sync.Mutex
		var written []string
		e := executor.New(executor.Job[action]{
			Facts:  func(time.Time) error { return nil },
			Decide: func(now time.Time) ([]action, time.Time, error) { return due, now.Add(time.Hour), nil },
			Write: func(ctx context.Context, _ store.Term, a action) error {
				mu.Lock()
				written = append(written, a.object)
				mu.Unlock()
				<-ctx.Done() // so that only the first writes begin
				return ctx.Err()
			},
			Done: func(action, *slog.Logger) {},
		}, loop.NewSignal(), slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go func() { _ = e.Run(ctx, func(error) {}) }()
		go func() { _ = e.Lead(ctx, store.Term{}) }()
		time.Sleep(500 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		for _, want := range []string{"nodes/n", "tickets/t", "pods/n/shop/p0", "pods/n/shop/p1", "pods/n/shop/p2"} {
			if !slices.Contains(written, want) {
				t.Errorf("first writes = %q, want %s among them", written, want)
			}
		}
	})
}

// TestLogLinesOfOneHostAreBounded has a host whose objects change all the time.
func TestLogLinesOfOneHostAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		round := 0
		var log bytes.Buffer
		e := executor.New(executor.Job[action]{
			Facts: func(time.Time) error { return nil },
			Decide: func(now time.Time) (due []action, next time.Time, err error) {
				mu.Lock()
				defer mu.Unlock()
				if round++; round < 20 {
					for i := range 100 {
						due = append(due, action{fmt.Sprint("pods/mallory/shop/p", i), fmt.Sprint(round)})
					}
					due = append(due, action{"pods/n/shop/p", fmt.Sprint(round)})
				}
				return due, now.Add(time.Second), nil
			},
			Write: func(context.Context, store.Term, action) error { return nil },
			Done:  func(a action, log *slog.Logger) { log.Info("written", "object", a.object) },
		}, loop.NewSignal(), slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go func() { _ = e.Run(ctx, func(error) {}) }()
		go func() { _ = e.Lead(ctx, store.Term{}) }()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		of := func(text string) int { return strings.Count(log.String(), text) }
		written := int(e.Report().Writes.Stored)
		if mallory, n := of("object=pods/mallory/"), of("object=pods/n/"); mallory != 1000 || n < 15 || of(fmt.Sprintf("folder=pods/mallory lines=%d", written-mallory-n)) != 1 {
			t.Errorf("of %d writes, %d lines about mallory and %d about n are logged, want 1000 and all, and how many were left out:\n%s", written, mallory, n, log.String()[log.Len()-300:])
		}
	})
}
