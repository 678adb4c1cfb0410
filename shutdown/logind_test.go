package shutdown_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"hostler.io/hostler/shutdown"
)

// logind is a strict login manager in memory: calls in the wrong order fail the test. Locks are
// numbers, like descriptors. A closed number is reused, so closing it twice closes another lock.
type logind struct {
	t *testing.T

	mu        sync.Mutex
	maxDelay  time.Duration
	ceiling   time.Duration // limit of RaiseMaxDelay, if set; below 0 it grants nothing
	locks     map[int]bool
	inherited int // lock of an earlier process, if not 0, until it is adopted
	preparing bool
	watchers  []*watcher
	calls     []string
	fault     map[string]error // by method
	hang      map[string]chan struct{}
	released  chan time.Time // when the last lock was closed in a shutdown
	refuses   bool           // refuses locks, whatever Preparing returns
	closing   func()         // called before a lock is closed during a shutdown, if set
	unwatched bool           // allow calls without a subscription, from an attempt in progress
}

type watcher struct {
	queue chan shutdown.Event
	lost  chan error
}

var errBus = errors.New("the bus is gone")

func newLogind(t *testing.T) *logind {
	return &logind{
		t: t, maxDelay: 5 * time.Second, locks: map[int]bool{}, fault: map[string]error{},
		hang: map[string]chan struct{}{}, released: make(chan time.Time, 100),
	}
}

// enter records a call and applies its fault. It returns with mu held.
func (l *logind) enter(ctx context.Context, method string) error {
	l.mu.Lock()
	l.calls = append(l.calls, method)
	err, hang := l.fault[method], l.hang[method]
	if hang != nil {
		l.mu.Unlock()
		select {
		case <-hang:
		case <-ctx.Done():
			err = ctx.Err()
		}
		l.mu.Lock()
	}
	if err == nil && ctx.Err() == nil && len(l.watchers) == 0 && !l.unwatched && method != "Watch" && method != "MaxDelay" {
		l.mu.Unlock()
		select {
		case <-ctx.Done(): // when Run ends, its contexts end one after the other
		case <-time.After(time.Nanosecond): // when all goroutines are blocked
			l.t.Errorf("%s is called although nobody watches", method)
		}
		l.mu.Lock()
	}
	return err
}

func (l *logind) MaxDelay(ctx context.Context) (time.Duration, error) {
	err := l.enter(ctx, "MaxDelay")
	defer l.mu.Unlock()
	return l.maxDelay, err
}

func (l *logind) RaiseMaxDelay(ctx context.Context, d time.Duration) (time.Duration, error) {
	err := l.enter(ctx, "RaiseMaxDelay")
	defer l.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if l.ceiling != 0 && d > l.ceiling {
		l.maxDelay = max(0, l.ceiling)
		return l.maxDelay, errors.New("zzz.conf says InhibitDelayMaxSec=" + l.maxDelay.String())
	}
	l.maxDelay = max(l.maxDelay, d)
	return l.maxDelay, nil
}

func (l *logind) Inhibit(ctx context.Context, why string) (io.Closer, error) {
	err := l.enter(ctx, "Inhibit")
	defer l.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case l.inherited != 0:
		n := l.inherited
		l.inherited = 0
		return lock{l, n}, nil
	case l.preparing || l.refuses:
		return nil, fmt.Errorf("take a lock: %w", shutdown.ErrShutdownInProgress)
	case why == "":
		l.t.Errorf("Inhibit() gives no reason")
	}
	n := 3
	for l.locks[n] {
		n++
	}
	l.locks[n] = true
	return lock{l, n}, nil
}

// inherit adds a lock of an earlier process.
func (l *logind) inherit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inherited = 99
	l.locks[l.inherited] = true
}

func (l *logind) ReleaseAll() error {
	l.mu.Lock()
	n := l.inherited
	l.inherited = 0
	l.mu.Unlock()
	if n == 0 {
		return nil
	}
	return lock{l, n}.Close()
}

func (l *logind) Preparing(ctx context.Context) (bool, error) {
	err := l.enter(ctx, "Preparing")
	defer l.mu.Unlock()
	return l.preparing, err
}

func (l *logind) PreparingKind(context.Context) (string, error) { return "reboot", nil }

func (l *logind) MaxDelaySource(context.Context) (string, error) { return "zz-hostler.conf", nil }

func (l *logind) Watch(ctx context.Context, events chan<- shutdown.Event) error {
	if err := l.enter(ctx, "Watch"); err != nil {
		l.mu.Unlock()
		return err
	}
	w := &watcher{queue: make(chan shutdown.Event, 1000), lost: make(chan error, 1)}
	w.queue <- shutdown.Event{Type: shutdown.Subscribed}
	l.watchers = append(l.watchers, w)
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.watchers = slices.DeleteFunc(l.watchers, func(o *watcher) bool { return o == w })
	}()
	for {
		select {
		case e := <-w.queue:
			select {
			case events <- e:
			case <-ctx.Done():
				return ctx.Err()
			}
		case err := <-w.lost:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lock is a lock of the fake. Close closes its number, even if that was reused.
type lock struct {
	logind *logind
	n      int
}

func (k lock) Close() error {
	l := k.logind
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.locks[k.n] {
		l.t.Errorf("descriptor %d is closed although nobody has it open", k.n)
	}
	if l.preparing && l.closing != nil {
		l.closing()
	}
	delete(l.locks, k.n)
	if l.preparing && len(l.locks) == 0 {
		l.released <- time.Now()
	}
	return nil
}

// announce sends an event to all watchers. The caller holds mu.
func (l *logind) announce(e shutdown.Event) {
	for _, w := range l.watchers {
		w.queue <- e
	}
}

// change changes the fake. Calls of an earlier process may still be in progress.
func (l *logind) change(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// shutdown announces a shutdown.
func (l *logind) shutdown(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.preparing = true
	l.announce(shutdown.Event{Type: shutdown.Prepare, Kind: kind})
}

// cancel cancels the shutdown.
func (l *logind) cancel() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.preparing = false
	l.announce(shutdown.Event{Type: shutdown.Cancel})
}

// cancelWithoutSignal cancels the shutdown without an event.
func (l *logind) cancelWithoutSignal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.preparing = false
}

// restart has the effect of systemctl restart systemd-logind: locks survive, the shutdown does not.
func (l *logind) restart(away time.Duration) {
	l.mu.Lock()
	l.announce(shutdown.Event{Type: shutdown.Lost})
	l.preparing = false
	l.mu.Unlock()
	time.Sleep(away)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.announce(shutdown.Event{Type: shutdown.Returned})
}

// loseBus ends all watches.
func (l *logind) loseBus() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.watchers {
		w.lost <- errBus
	}
}

// breaks makes a method return err; nil repairs it.
func (l *logind) breaks(method string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault[method] = err
}

// hangs makes a method hang until the returned function is called.
func (l *logind) hangs(method string) (resume func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	gate := make(chan struct{})
	l.hang[method] = gate
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.hang, method)
		close(gate)
	}
}

func (l *logind) held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.locks)
}

func (l *logind) callCount(method string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, c := range l.calls {
		if c == method {
			n++
		}
	}
	return n
}

// rehander returns the held lock again, like package systemd, and closers that it returned before
// become invalid.
type rehander struct {
	*logind
	latest *claim
}

type claim struct {
	of   *rehander
	lock io.Closer
}

func (r *rehander) Inhibit(ctx context.Context, why string) (io.Closer, error) {
	if r.latest != nil {
		r.latest = &claim{r, r.latest.lock}
		return r.latest, nil
	}
	lock, err := r.logind.Inhibit(ctx, why)
	if err != nil {
		return nil, err
	}
	r.latest = &claim{r, lock}
	return r.latest, nil
}

func (c *claim) Close() error {
	if c.of.latest != c {
		return nil
	}
	c.of.latest = nil
	return c.lock.Close()
}
