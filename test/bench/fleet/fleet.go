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

// Client is an agent's client of its control plane.
type Client interface {
	controlplane.Client
	controlplane.NodeWatcher
}

// Pace is the duration of a Lease and the interval of its renewals.
type Pace struct {
	Duration time.Duration // of a Lease, in whole seconds
	Interval time.Duration // between two renewals
}

// Options configure a fleet.
type Options struct {
	Agents int
	Pace   Pace
	// Report is the interval of statuses.
	Report time.Duration
	// Spread is the time in which agents start, each at a random moment. If it is shorter than
	// Pace.Interval, agents renew in step from then on.
	Spread time.Duration
	// Template is the Node of all agents; each has its own name and identity.
	Template *corev1.Node
	// Connect makes the client of the agent of that name. Each agent calls it once, from its own
	// goroutine.
	Connect func(name string) (Client, error)
}

// Fleet is a number of running agents.
type Fleet struct {
	o       Options
	cancel  context.CancelFunc
	running sync.WaitGroup
	joined  chan struct{}        // gets one element for each agent that has joined
	lose    []context.CancelFunc // ends the agent with that index; not changed after Start

	mu       sync.Mutex       // guards the fields below
	took     []time.Duration  // durations of answered renewals
	failures map[string]int   // number of failed calls, by purpose
	first    map[string]error // first error of each
}

// Start starts a fleet. Its agents join one by one and run until Close or until ctx ends.
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

// live runs one agent.
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

// Joined waits until every agent has registered, renewed its Lease and written its status.
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

// Lose ends one agent, as if its host were lost: what it has stored stays.
func (f *Fleet) Lose(i int) { f.lose[i]() }

// Close ends all agents and waits for them.
func (f *Fleet) Close() {
	f.cancel()
	f.running.Wait()
}

// Took returns the durations of the successful renewals since the last call, sorted.
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

// Failed returns the number of failed calls. Agents repeat them.
func (f *Fleet) Failed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	sum := 0
	for _, n := range f.failures {
		sum += n
	}
	return sum
}

// Failures describes which calls have failed, how often, and the first error of each.
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
