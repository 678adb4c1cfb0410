package election_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/election"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// bench has candidates for one controller.
type bench struct {
	t     *testing.T
	store *memory.Store

	mu      sync.Mutex
	leading map[string]time.Time // since when
	most    int                  // at the same time
	stopped map[string]time.Time // when a candidate last stopped leading
	// firstStop is when a candidate first stopped leading.
	firstStop map[string]time.Time
}

func inBubble(t *testing.T, test func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		test(t, &bench{t: t, store: memory.New(memory.Options{}), leading: map[string]time.Time{}, stopped: map[string]time.Time{}, firstStop: map[string]time.Time{}})
	})
}

// candidate starts a candidate, and returns a function that stops it.
func (b *bench) candidate(name string) (e *election.Election, stop func()) {
	e = election.New(b.store, "c", name, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.Run(ctx, func(ctx context.Context, term store.Term) error {
			b.mark(name, true)
			<-ctx.Done()
			b.mark(name, false)
			return nil
		}, func(error) {})
	}()
	stop = func() {
		cancel()
		<-ended
	}
	b.t.Cleanup(stop)
	return e, stop
}

func (b *bench) mark(name string, leads bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if leads {
		b.leading[name] = time.Now()
		b.most = max(b.most, len(b.leading))
		return
	}
	delete(b.leading, name)
	b.stopped[name] = time.Now()
	if _, before := b.firstStop[name]; !before {
		b.firstStop[name] = time.Now()
	}
}

// leaders returns the present leaders.
func (b *bench) leaders() string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	names := []string{}
	for name := range b.leading {
		names = append(names, name)
	}
	return fmt.Sprint(names)
}

func (b *bench) want(leaders string) {
	b.t.Helper()
	if got := b.leaders(); got != leaders {
		b.t.Errorf("leaders = %s, want %s", got, leaders)
	}
}

func TestOneOfSeveralCandidatesLeads(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		first, stop := b.candidate("first")
		time.Sleep(time.Second)
		second, _ := b.candidate("second")
		time.Sleep(time.Hour)
		b.want("[first]")
		if s := second.Status(); s.Leading || s.Leader.Candidate != "first" || s.Err != nil {
			t.Errorf("status of the second = %+v, want that first leads", s)
		}
		if s := first.Status(); !s.Leading {
			t.Errorf("status of the first = %+v, want that it leads", s)
		}
		stop()
		time.Sleep(election.Interval + time.Millisecond)
		b.want("[second]")
		if b.most != 1 {
			t.Errorf("%d candidates led at the same time", b.most)
		}
	})
}

func TestFiveCandidatesLeadOneAfterTheOther(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		stops := map[string]func(){}
		for i := range 5 {
			name := fmt.Sprintf("c%d", i)
			_, stops[name] = b.candidate(name)
		}
		for range 5 {
			time.Sleep(election.Interval + time.Millisecond)
			leader := strings.Trim(b.leaders(), "[]")
			stop, waits := stops[leader]
			if !waits {
				t.Fatalf("leaders = %q, want one of those that have not led", leader)
			}
			delete(stops, leader)
			stop()
		}
		if b.most != 1 {
			t.Errorf("%d candidates led at the same time", b.most)
		}
	})
}

func TestALeaderThatCannotExtendItsTermStopsBeforeTheNextOneBegins(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.candidate("first")
		time.Sleep(time.Minute)
		b.want("[first]")
		b.store.Inject(memory.Extend, memory.Fault{Err: controlplane.ErrUnavailable})
		cut := time.Now()
		b.candidate("second")
		time.Sleep(5 * time.Minute) // they lead in turns
		b.store.Heal()
		time.Sleep(election.Duration + 2*election.Interval)
		if got := b.leaders(); got != "[second]" && got != "[first]" {
			t.Errorf("leaders = %s, want one", got)
		}
		if b.most != 1 {
			t.Errorf("%d candidates led at the same time", b.most)
		}
		if at := b.firstStop["first"].Sub(cut); at > election.Deadline {
			t.Errorf("the first led %v after its last term was extended, want at most %v", at, election.Deadline)
		}
	})
}

func TestALeaderThatHangsIsFollowedWithinFifteenSeconds(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		// The first process is killed, and its term expires.
		if term, _, err := b.store.Elect(t.Context(), "c", "killed", election.Duration); err != nil || term == (store.Term{}) {
			t.Fatalf("Elect() = %v, %v", term, err)
		}
		killed := time.Now()
		b.candidate("second")
		time.Sleep(15 * time.Second)
		b.want("[second]")
		if late := b.leading["second"].Sub(killed); late < election.Duration {
			t.Errorf("the second leads after %v, although the term of the first lasts %v", late, election.Duration)
		}
	})
}

func TestADeposedLeaderStopsAtOnceAndTriesAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.candidate("first")
		time.Sleep(time.Minute)
		b.store.Depose("c")
		time.Sleep(election.Interval + time.Millisecond)
		synctest.Wait()
		b.mu.Lock()
		_, stopped := b.stopped["first"]
		b.mu.Unlock()
		if !stopped {
			t.Error("the leader still leads after it lost its term")
		}
		time.Sleep(2 * election.Interval)
		b.want("[first]")
	})
}

func TestAStoreThatIsAwayIsTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.store.Inject(memory.Any, memory.Fault{Err: controlplane.ErrUnavailable})
		e, _ := b.candidate("first")
		time.Sleep(time.Minute)
		b.want("[]")
		if e.Status().Err == nil {
			t.Error("Status() reports no error while the store is away")
		}
		b.store.Heal()
		time.Sleep(2 * election.Interval)
		b.want("[first]")
		if err := e.Status().Err; err != nil {
			t.Errorf("Status() = %v, want no error", err)
		}
	})
}
