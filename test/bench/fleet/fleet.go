package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/bounded"
)

// Client is how an agent reaches its control plane.
type Client interface {
	controlplane.Client
	controlplane.NodeWatcher
}

// Pace is how a Lease is kept.
type Pace struct {
	Duration time.Duration // for which it is good, in whole seconds
	Interval time.Duration // from one renewal to the next
}

// Options say what a fleet is to be like.
type Options struct {
	Agents int
	Pace   Pace
	// Report is from one status to the next.
	Report time.Duration
	// Spread is the time in which agents start, each at a random moment. A shorter one
	// than Pace.Interval has them renew in step from then on.
	Spread time.Duration
	// Template is what agents say of their hosts; each has a name and an identity of
	// its own.
	Template *corev1.Node
	// Connect makes the client of the agent of that name. It is called by each agent
	// once, from a goroutine of its own.
	Connect func(name string) (Client, error)
}

// Fleet is a number of agents at work.
type Fleet struct {
	o       Options
	cancel  context.CancelFunc
	running sync.WaitGroup
	joined  chan struct{}        // has an element for each agent that is there
	lose    []context.CancelFunc // ends that agent; not changed after Start

	mu       sync.Mutex       // guards what follows
	took     []time.Duration  // by renewals that were answered
	failures map[string]int   // of calls, by what they were to do
	first    map[string]error // of these
}

// Start starts a fleet, whose agents join one by one until Close or until ctx ends.
func Start(ctx context.Context, o Options) *Fleet {
	ctx, cancel := context.WithCancel(ctx)
	f := &Fleet{
		o: o, cancel: cancel, joined: make(chan struct{}, o.Agents),
		failures: map[string]int{}, first: map[string]error{},
	}
	for i := range o.Agents {
		life, end := context.WithCancel(ctx)
		f.lose = append(f.lose, end)
		f.running.Go(func() {
			defer end()
			f.live(life, i)
		})
	}
	return f
}

// live is an agent's life.
func (f *Fleet) live(ctx context.Context, i int) {
	if bounded.Sleep(ctx, rand.N(max(f.o.Spread, 1))) != nil {
		return
	}
	name := Name(i)
	client, err := f.o.Connect(name)
	if err != nil {
		f.fail("connect", err)
		return
	}
	a, err := newAgent(f, client, name, i)
	if err != nil {
		f.fail("begin", errors.Join(err, client.Close()))
		return
	}
	a.run(ctx)
	if err := client.Close(); err != nil {
		f.fail("close", err)
	}
}

// Joined waits until every agent has registered, renewed its Lease and written its
// status.
func (f *Fleet) Joined(ctx context.Context) error {
	for i := range f.o.Agents {
		select {
		case <-f.joined:
		case <-ctx.Done():
			return fmt.Errorf("of %d agents %d have joined: %w: failed so far: %s", f.o.Agents, i, context.Cause(ctx), f.Failures())
		}
	}
	return nil
}

// Lose ends one agent, as a host is lost: what it has stored stays.
func (f *Fleet) Lose(i int) { f.lose[i]() }

// Close ends all agents and returns when they have ended.
func (f *Fleet) Close() {
	f.cancel()
	f.running.Wait()
}

// Took returns how long renewals took since it was asked last, those alone that were
// answered well, the quickest first.
func (f *Fleet) Took() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	took := f.took
	f.took = nil
	slices.Sort(took)
	return took
}

func (f *Fleet) renewed(took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.took = append(f.took, took)
}

// Failed is how many calls have failed, for whatever reason: agents make them again.
func (f *Fleet) Failed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	sum := 0
	for _, n := range f.failures {
		sum += n
	}
	return sum
}

// Failures tells which calls have failed, how often, and how the first of each did.
func (f *Fleet) Failures() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.failures) == 0 {
		return "none"
	}
	var reported []string
	for _, what := range slices.Sorted(maps.Keys(f.failures)) {
		reported = append(reported, fmt.Sprintf("%s %d times, first: %v", what, f.failures[what], f.first[what]))
	}
	return strings.Join(reported, "; ")
}

func (f *Fleet) fail(what string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failures[what]++; f.failures[what] == 1 {
		f.first[what] = err
	}
}
