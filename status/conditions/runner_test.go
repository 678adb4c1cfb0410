package conditions_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/internal/logtest"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/conditions"
)

// bench is a Runner with fake programs, whose results and durations a test sets. It has a field for
// each value that a test sets or reads. It lives in a synctest bubble.
type bench struct {
	*conditions.Runner
	folder string
	log    *logtest.Book

	mu        sync.Mutex // guards the fields below
	message   map[corev1.NodeConditionType]conditions.Result
	takes     map[corev1.NodeConditionType]time.Duration // until the result
	lingers   map[corev1.NodeConditionType]time.Duration // from the result to the end of the process
	started   map[corev1.NodeConditionType][]time.Duration
	began     time.Time
	running   int
	most      int
	changes   int
	heartbeat time.Time
	longest   time.Duration // between two heartbeats
	appeared  []string
	observed  int
}

func newBench(t *testing.T, names ...string) *bench {
	t.Helper()
	b := &bench{
		folder: t.TempDir(), log: &logtest.Book{}, message: map[corev1.NodeConditionType]conditions.Result{}, began: time.Now(),
		takes: map[corev1.NodeConditionType]time.Duration{}, lingers: map[corev1.NodeConditionType]time.Duration{}, started: map[corev1.NodeConditionType][]time.Duration{},
	}
	for _, name := range names {
		put(t, b.folder+"/"+name, script, 0o755)
	}
	var err error
	b.Runner, err = conditions.New(conditions.Options{
		Policy:  policy(b.folder),
		Changed: func() { b.set(func() { b.changes++ }) },
		Appeared: func(p conditions.Program, m string) {
			b.set(func() { b.appeared = append(b.appeared, p.Reason+": "+m) })
		},
		Observe: func(conditions.Program, conditions.Result) { b.set(func() { b.observed++ }) },
		Log:     b.log.Logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	b.SetExecute(b.execute)
	return b
}

func (b *bench) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *bench) execute(ctx context.Context, p conditions.Program) (conditions.Result, <-chan struct{}) {
	b.mu.Lock()
	b.started[p.Type] = append(b.started[p.Type], time.Since(b.began))
	b.running++
	b.most = max(b.most, b.running)
	takes, lingers := b.takes[p.Type], b.lingers[p.Type]
	b.mu.Unlock()
	started := time.Now()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
	}
	gone := make(chan struct{})
	time.AfterFunc(lingers, func() { close(gone) })
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	r := b.message[p.Type]
	r.Started, r.Took = started, time.Since(started)
	return r, gone
}

// start runs the Runner until the bubble ends.
func (b *bench) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := b.Run(ctx, b.wantHeartbeats); !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want that it was cancelled", err)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	synctest.Wait()
}

func (b *bench) wantHeartbeats() {
	b.set(func() {
		if !b.heartbeat.IsZero() {
			b.longest = max(b.longest, time.Since(b.heartbeat))
		}
		b.heartbeat = time.Now()
	})
}

// heartbeatGap returns the longest time without a heartbeat until now.
func (b *bench) heartbeatGap() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(b.longest, time.Since(b.heartbeat))
}

// starts returns the start times of a check.
func (b *bench) starts(kind corev1.NodeConditionType) []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.started[kind])
}

// reported returns how often a change was reported.
func (b *bench) reported() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changes
}

func (b *bench) after(d time.Duration) { time.Sleep(d); synctest.Wait() }

func answers(list []status.Custom) []string {
	var texts []string
	for _, c := range list {
		texts = append(texts, string(c.Type)+" "+c.Answer.String())
	}
	return texts
}

func (b *bench) wantAnswers(t *testing.T, when string, want ...string) {
	t.Helper()
	if got := answers(b.Custom()); !slices.Equal(got, want) {
		t.Errorf("%s Custom() = %q, want %q", when, got, want)
	}
}

func TestChecksRunOnTheirIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "a")
		put(t, b.folder+"/b", header("interval: 7s", "reason: Bad"), 0o755)
		b.message["hostler.io/A"] = conditions.Result{Answer: status.Passed}
		b.message["hostler.io/B"] = conditions.Result{Answer: status.Problem, Message: "oh"}
		b.takes["hostler.io/B"] = 2 * time.Second
		b.wantAnswers(t, "before the first run", "hostler.io/A not-asked")
		b.start(t)
		b.wantAnswers(t, "during the first run", "hostler.io/A passed", "hostler.io/B not-asked")
		b.after(65 * time.Second)
		for kind, want := range map[corev1.NodeConditionType][]time.Duration{"hostler.io/A": {0, 30 * time.Second, time.Minute}, "hostler.io/B": {0, 7 * time.Second, 14 * time.Second}} {
			if got := b.starts(kind); !slices.Equal(got[:3], want) {
				t.Errorf("%s was started at %v, want %v first", kind, got, want)
			}
		}
		if n := len(b.starts("hostler.io/B")); n != 10 {
			t.Errorf("b was started %d times, want 10", n)
		}
		if got := b.Custom()[1]; got.Reason != "Bad" || got.Message != "oh" {
			t.Errorf("Custom() = %+v, want reason and message", got)
		}
		if b.reported() != 3 || b.observed != 13 {
			t.Errorf("%d changes and %d runs were reported, want 3 (b is new, two answers) and 13", b.reported(), b.observed)
		}
		c := b.Checks()[1]
		if c.LastRun == nil || c.Duration.Duration != 2*time.Second || c.Interval.Duration != 7*time.Second {
			t.Errorf("Checks() = %+v, want its last run of 2s", c)
		}
	})
}

func TestNoMoreThanSomeRunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "a", "b", "c", "d", "e", "f", "g", "h", "i")
		for _, c := range b.Custom() {
			b.takes[c.Type] = 5 * time.Second
		}
		b.start(t)
		b.after(16 * time.Second)
		if b.most != conditions.MaxRunning || b.observed != 9 {
			t.Errorf("%d ran at once, %d in all, want %d and 9", b.most, b.observed, conditions.MaxRunning)
		}
	})
}

func TestACheckThatCannotBeKilledIsNotStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "a", "b", "c", "d", "e")
		for _, c := range b.Custom()[:4] {
			b.message[c.Type], b.takes[c.Type], b.lingers[c.Type] = conditions.Result{Answer: status.TimedOut}, 10*time.Second, time.Hour
		}
		b.message["hostler.io/E"] = conditions.Result{Answer: status.Passed}
		b.start(t)
		b.after(59 * time.Minute)
		if a, e := len(b.starts("hostler.io/A")), len(b.starts("hostler.io/E")); a != 1 || e < 110 {
			t.Errorf("a was started %d times, e %d times, want that a is waited for, and nothing else waits", a, e)
		}
		b.wantAnswers(t, "meanwhile", "hostler.io/A timeout", "hostler.io/B timeout", "hostler.io/C timeout", "hostler.io/D timeout", "hostler.io/E passed")
		b.set(func() { clear(b.lingers) })
		b.after(2 * time.Minute)
		if n := len(b.starts("hostler.io/A")); n < 2 {
			t.Errorf("a was started %d times, want it started again once it was gone", n)
		}
	})
}

func TestTemporaryProblemsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		put(t, b.folder+"/hiccup", header("temporary: true", "reason: Hiccup", "interval: 10s"), 0o755)
		say := func(a status.Answer, message string) {
			b.set(func() { b.message["hostler.io/Hiccup"] = conditions.Result{Answer: a, Message: message} })
			b.after(20 * time.Second)
		}
		b.start(t)
		say(status.Passed, "well")
		say(status.Problem, "one")
		say(status.Problem, "two")
		say(status.Undecided, "what")
		say(status.Problem, "two")
		if want := []string{"Hiccup: one", "Hiccup: two", "Hiccup: two"}; !slices.Equal(b.appeared, want) {
			t.Errorf("reported %q, want %q", b.appeared, want)
		}
		b.wantAnswers(t, "a temporary one is no condition:")
		if got := b.Checks(); len(got) != 1 || got[0].Answer != status.Problem {
			t.Errorf("Checks() = %+v, want it with its problem", got)
		}
	})
}

func TestFilesAppearChangeBreakAndDisappear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "a")
		for _, kind := range []corev1.NodeConditionType{"hostler.io/A", "hostler.io/B"} {
			b.message[kind] = conditions.Result{Answer: status.Passed}
		}
		b.start(t)
		put(t, b.folder+"/b", script, 0o755)
		b.after(conditions.ScanInterval)
		b.wantAnswers(t, "after one has come", "hostler.io/A passed", "hostler.io/B passed")

		before := len(b.starts("hostler.io/A"))
		put(t, b.folder+"/a", script+"# changed\n", 0o755)
		b.after(conditions.ScanInterval)
		if n := len(b.starts("hostler.io/A")); n != before+1 {
			t.Errorf("a was started %d times after it was changed, want once", n-before)
		}

		put(t, b.folder+"/a", script, 0o757)
		b.after(conditions.ScanInterval)
		b.wantAnswers(t, "after others may write it", "hostler.io/A not-run", "hostler.io/B passed")
		if m := b.Custom()[0].Message; !strings.Contains(m, "is writable by users other than root") || !strings.Contains(m, "chmod go-w") {
			t.Errorf("Custom() = %q, want why, and the fix", m)
		}
		if c, faults := b.Checks()[0], b.Faults(); len(faults) != 1 || !c.Faulty || c.Fault == nil || *c.Fault != faults[0] {
			t.Errorf("Checks() = %+v, faults %v, want it to name the fault", c, faults)
		}
		before = len(b.starts("hostler.io/A"))
		b.after(time.Hour)
		if n := len(b.starts("hostler.io/A")); n != before || b.log.Count("invalid condition check") != 1 {
			t.Errorf("it was started %d times, log %s, want it not run, and one log message about that", n-before, b.log)
		}
		put(t, b.folder+"/a", script, 0o755)
		b.after(conditions.ScanInterval)
		b.wantAnswers(t, "after the fix", "hostler.io/A passed", "hostler.io/B passed")

		put(t, b.folder+"/twin", header("type: hostler.io/B"), 0o755)
		b.after(conditions.ScanInterval)
		b.wantAnswers(t, "with a twin", "hostler.io/A passed", "hostler.io/B not-run")
		if err := os.Remove(b.folder + "/b"); err != nil {
			t.Fatal(err)
		}
		b.after(conditions.ScanInterval)
		b.wantAnswers(t, "with the twin alone", "hostler.io/A passed", "hostler.io/B passed")

		if err := os.Chmod(b.folder+"/a", 0o644); err != nil {
			t.Fatal(err)
		}
		changes := b.reported()
		b.after(conditions.ScanInterval)
		b.wantAnswers(t, "after it was switched off", "hostler.io/B passed")
		if f := b.Faults(); len(f) != 1 || !strings.Contains(f[0].String(), "not executable") || b.reported() != changes+1 {
			t.Errorf("Faults() = %v, %d changes reported, want that it is not executable, and one", f, b.reported()-changes)
		}
	})
}

// Nobody must remove the conditions of checks that are not known yet.
func TestAFolderThatHangsFromTheStartIsNotTakenForEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		if !b.Scanned() {
			t.Error("Scanned() = false of a folder that was read")
		}
		b.Unscan()
		hangs := make(chan struct{})
		b.SetRead(func(conditions.Policy) ([]conditions.Program, []conditions.Fault) { <-hangs; return nil, nil })
		b.start(t)
		b.after(time.Minute)
		if b.Scanned() || b.reported() != 0 {
			t.Errorf("Scanned() = %t, %d changes reported, want neither while the folder hangs", b.Scanned(), b.reported())
		}
		close(hangs)
		b.after(2 * conditions.ScanInterval)
		if !b.Scanned() || b.reported() != 1 {
			t.Errorf("Scanned() = %t, %d changes reported, want that the folder is known now", b.Scanned(), b.reported())
		}
	})
}

// A link to a network mount that does not answer makes reading the folder hang.
func TestAFolderThatHangsBlocksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "a")
		b.message["hostler.io/A"] = conditions.Result{Answer: status.Passed}
		hangs, checks := make(chan struct{}), 0
		b.SetRead(func(p conditions.Policy) ([]conditions.Program, []conditions.Fault) {
			b.set(func() { checks++ })
			if p.Folder == b.folder {
				<-hangs
			}
			return conditions.Read(p)
		})
		b.start(t)
		put(t, b.folder+"/b", script, 0o755)
		b.after(time.Hour)
		if n := len(b.starts("hostler.io/A")); n < 100 {
			t.Errorf("a was started %d times in an hour, want it to continue", n)
		}
		if gap := b.heartbeatGap(); gap > conditions.ScanInterval+conditions.ScanGrace {
			t.Errorf("the loop sent no heartbeat for %v, want at most the time of a check and its grace period", gap)
		}
		b.wantAnswers(t, "meanwhile", "hostler.io/A passed")
		if f := b.Faults(); len(f) != 1 || f[0].Path != b.folder || !strings.Contains(f[0].String(), "does not answer") || b.log.Count("invalid condition check") != 1 {
			t.Errorf("Faults() = %v, log %s, want that the folder does not answer, reported once", f, b.log)
		}
		b.set(func() {
			if checks != 1 {
				t.Errorf("%d checks are in progress, want one", checks)
			}
		})

		other := policy(t.TempDir())
		put(t, other.Folder+"/c", script, 0o755)
		b.SetPolicy(other)
		b.after(conditions.ScanInterval)
		if got := b.Checks(); len(got) != 1 || got[0].Type != "hostler.io/C" || len(b.Faults()) != 0 {
			t.Errorf("in another folder Checks() = %+v, faults %v, want what is there", got, b.Faults())
		}
		close(hangs)
		b.SetPolicy(policy(b.folder))
		b.after(conditions.ScanInterval)
		b.wantAnswers(t, "when it answers again", "hostler.io/A passed", "hostler.io/B not-asked")
	})
}

func TestANewPolicyIsUsedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "a")
		b.start(t)
		next := policy(b.folder)
		next.Interval = 2 * time.Second
		b.SetPolicy(next)
		b.after(9 * time.Second)
		if n := len(b.starts("hostler.io/A")); n != 6 {
			t.Errorf("it was started %d times, want at first, at once, and four times more", n)
		}
	})
}
