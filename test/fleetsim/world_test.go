package fleetsim

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// world is a run in progress. The driver's goroutine owns all fields but the journal.
type world struct {
	plan    plan
	start   time.Time
	store   *memory.Store
	carrier *carrier
	servers []*server
	hosts   []*host
	clients []*client
	twins   []*process
	truth   *truth
	storage storage
	events  []event        // by time
	active  map[string]int // how many equal faults there are now
	rough   []fault        // faults of requests that there are now
	aimed   []fault        // faults that wait for their moment
	serving *request
	journal *journal
	// slept counts the sleeps of the driver. Timers of the store, which run while it sleeps, read it: so they see
	// what the driver wrote before.
	slept atomic.Int64

	steps   []step
	last    uint64 // hash of the last step
	failure string // why the run has failed; empty if it has not
	class   string // the violated rule
	begun   kind   // of the fault that began last
}

// storage is what faults do to the store as a whole.
type storage struct {
	away  bool
	since time.Time // since when it is away
	// longestAway is how long it was away at most.
	longestAway time.Duration
	full        bool            // no writes
	forbidden   map[string]bool // hosts whose pods may not be evicted
	permitted   time.Time       // when they last could be evicted again
	ended       time.Time       // when it last ended all Leases
	restored    memory.Snapshot // what a restore restores
}

// outcome is the result of a run.
type outcome struct {
	plan    plan
	failure string
	class   string
	begun   kind     // of the last fault before the violation
	events  []string // the last ones
	steps   []step
	hours   float64 // simulated
}

// simulate runs a plan in a bubble.
func simulate(t *testing.T, p plan) (o outcome) {
	synctest.Test(t, func(*testing.T) {
		w := newWorld(p)
		w.run()
		o = outcome{plan: p, failure: w.failure, class: w.class, begun: w.begun, events: w.journal.last(), steps: w.steps, hours: time.Since(w.start).Hours()}
	})
	return o
}

func newWorld(p plan) *world {
	w := &world{plan: p, start: time.Now(), carrier: newCarrier(p), journal: &journal{start: time.Now()}, active: map[string]int{}}
	w.truth, w.storage.forbidden = newTruth(w), map[string]bool{}
	bookmarks := time.Duration(0)
	if p.Engine == kubernetes {
		bookmarks = 10 * time.Second
	}
	w.store = memory.New(memory.Options{EndsLeases: p.Engine == etcd, Expiry: 500 * time.Millisecond, LocalTerms: p.Engine == kubernetes, Bookmarks: bookmarks, Wrote: w.truth.wrote})
	w.storage.restored = w.store.Snapshot()
	for i := range p.Servers {
		w.servers = append(w.servers, newServer(w, serverName(i)))
	}
	for i := range p.Hosts {
		w.hosts = append(w.hosts, newHost(w, hostName(i), p.zone(i)))
	}
	for i := range p.Clients {
		w.clients = append(w.clients, newClient(w, i))
	}
	return w
}

// run runs the plan, and then checks that the fleet recovers.
func (w *world) run() {
	for i, s := range w.servers {
		w.at(time.Duration(i)*1370*time.Millisecond, "start "+s.name, s.boots)
	}
	for i, h := range w.hosts {
		w.at(time.Duration(i)*733*time.Millisecond%(20*time.Second)+time.Duration(i)*time.Microsecond, "start "+h.name, h.boots)
	}
	for i, c := range w.clients {
		w.at(warmup/2+time.Duration(i)*time.Second, "start "+c.name, c.starts)
	}
	for _, f := range w.plan.Faults {
		w.schedule(f)
	}
	w.drive(w.start.Add(w.plan.Length))
	w.settle()
	w.stop()
}

// at adds an event.
func (w *world) at(after time.Duration, text string, do func()) {
	e := event{w.start.Add(after), text, do}
	i, _ := slices.BinarySearchFunc(w.events, e, func(a, b event) int { return cmp.Or(a.at.Compare(b.at), -1) })
	w.events = slices.Insert(w.events, i, e)
}

// stop ends all processes, and with them all requests.
func (w *world) stop() {
	for _, s := range w.servers {
		s.process.kill()
	}
	for _, h := range w.hosts {
		h.process.kill()
	}
	for _, c := range w.clients {
		c.process.kill()
	}
	for _, p := range w.twins {
		p.kill()
	}
	time.Sleep(callTime) // the write to a disk does not end with its process
	synctest.Wait()
}

// fail records the first violation of a rule.
func (w *world) fail(class, format string, args ...any) {
	if w.failure != "" {
		return
	}
	w.class, w.failure = class, fmt.Sprintf("%s, at %v: %s", class, time.Since(w.start).Round(time.Millisecond), fmt.Sprintf(format, args...))
	w.note("VIOLATION " + w.failure)
}

func (w *world) note(text string) { w.journal.add("driver", text) }

// server returns the server of that name; nil for another process.
func (w *world) server(name string) *server {
	for _, s := range w.servers {
		if s.name == name {
			return s
		}
	}
	return nil
}

// host returns the host of that name; nil for another process.
func (w *world) host(name string) *host {
	for _, h := range w.hosts {
		if h.name == name {
			return h
		}
	}
	return nil
}

// journal has the last log lines of all processes.
type journal struct {
	start time.Time
	mu    sync.Mutex
	lines []string // guarded by mu
}

// mostLines is how many lines a journal keeps.
const mostLines = 4000

func (j *journal) add(who, text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf("%10.3fs %-10s %s", time.Since(j.start).Seconds(), who, text))
	if len(j.lines) > 2*mostLines {
		j.lines = slices.Clone(j.lines[len(j.lines)-mostLines:])
	}
}

func (j *journal) last() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

// logger returns the log of a process.
func (j *journal) logger(who string) *slog.Logger { return slog.New(lines{j, who, nil}) }

// lines is the handler of a log.
type lines struct {
	journal *journal
	who     string
	attrs   []slog.Attr
}

func (l lines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l lines) Handle(_ context.Context, r slog.Record) error {
	var text strings.Builder
	text.WriteString(r.Message)
	for _, a := range l.attrs {
		fmt.Fprintf(&text, " %s=%v", a.Key, a.Value)
	}
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&text, " %s=%v", a.Key, a.Value)
		return true
	})
	l.journal.add(l.who, text.String())
	return nil
}

func (l lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lines{l.journal, l.who, slices.Concat(l.attrs, attrs)}
}

func (l lines) WithGroup(string) slog.Handler { return l }

// pods is the kind of pods.
func (p plan) pods() store.Kind { return store.Pods(p.Engine == etcd) }
