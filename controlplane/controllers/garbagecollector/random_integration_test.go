//go:build integration

package garbagecollector_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/store"
	bed "hostler.io/hostler/test/etcd"
)

const prefix = "/hostler"

// operations is how many a test makes: few, many with HOSTLER_TEST_LONG=1, and with any other number that
// many.
func operations(few, many int64) int64 {
	long := os.Getenv("HOSTLER_TEST_LONG")
	if long == "" {
		return few
	}
	if n, _ := strconv.ParseInt(long, 10, 64); n > 1 {
		return n
	}
	return many
}

// TestRandomOperationsOnEtcdAreCollectedByTheRules has people change objects at random while collectors
// and etcd are killed, and judges each write of a collector by the model, in the order of etcd's revisions.
func TestRandomOperationsOnEtcdAreCollectedByTheRules(t *testing.T) {
	operations := operations(2500, 1_000_000)
	c := bed.For(t, bed.Options{Flags: []string{"--quota-backend-bytes=4294967296", "--auto-compaction-mode=periodic", "--auto-compaction-retention=5m"}})
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	o := newObserver(client, prefix, onEtcd, func(key string) string {
		if strings.HasPrefix(key, "nodes/") || strings.HasPrefix(key, "objects/") {
			return key
		}
		return ""
	})
	defer o.start(t)()
	crowd := &people{store: fleet(t, c), place: fleetPlace{}, names: 4, claims: o.model.claims, create: o.create}
	done := crowd.work(t, operations)
	pause := time.Second
	if operations >= 10_000 {
		pause *= 4
	}
	depose := trouble{"leaders deposed", func() error {
		_, _ = client.Delete(t.Context(), prefix+"/elections/"+garbagecollector.Name)
		return nil
	}}
	killEtcd := trouble{"kills of etcd", func() error { return errors.Join(c.Members[0].Kill(), c.Run(t.Context())) }}
	start := func(name string) running {
		p := &process{Fleet: fleet(t, c)}
		return running{collect(t, p, name), p.kill}
	}
	counts := disturb(t, 3, start, pause, []trouble{killLeader, depose, killEtcd, depose, depose, killEtcd, depose, depose}, done)
	t.Logf("%d operations were stored, and there were %v", crowd.made.Load(), counts)
	o.settle(t, crowd)
}

// work has people change objects until so many operations were stored, and then closes done.
func (p *people) work(t *testing.T, operations int64) (done chan struct{}) {
	var acting sync.WaitGroup
	var rest sync.RWMutex // held while people rest: else no collector could end a deletion
	done = make(chan struct{})
	for i := range uint64(8) {
		acting.Go(func() {
			one := &person{p, rand.New(rand.NewPCG(1, i))}
			for p.made.Load() < operations && t.Context().Err() == nil {
				rest.RLock()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				one.act(ctx)
				cancel()
				rest.RUnlock()
				if operations < 10_000 {
					time.Sleep(time.Duration(one.IntN(20)) * time.Millisecond)
				}
			}
		})
	}
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(300 * time.Millisecond):
			}
			rest.Lock()
			time.Sleep(150 * time.Millisecond)
			rest.Unlock()
		}
	}()
	go func() {
		acting.Wait()
		close(done)
	}()
	return done
}

// fleet is a store with connections of its own.
func fleet(t testing.TB, c *bed.Cluster) *etcd.Fleet {
	t.Helper()
	f, err := etcd.NewFleet(etcd.Options{Endpoints: c.Endpoints(), Prefix: prefix, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// process is a store as one process has it that can be killed.
type process struct {
	*etcd.Fleet
	killed atomic.Bool
}

// kill cuts all connections: nothing of the process arrives any more.
func (p *process) kill() {
	p.killed.Store(true)
	_ = p.Close()
}

// Resign implements store.Elector: a process that was killed does not resign.
func (p *process) Resign(ctx context.Context, term store.Term) error {
	if p.killed.Load() {
		return controlplane.ErrUnavailable
	}
	return p.Fleet.Resign(ctx, term)
}

// running is a collector, and what cuts it off as if it was killed.
type running struct {
	*replica
	kill func()
}

// trouble is something that a fleet has to stand.
type trouble struct {
	name  string
	cause func() error
}

// killLeader is the trouble that a collector is killed that leads. The next one leads after the end of the
// term.
var killLeader = trouble{name: "kills of a leader"}

// disturb causes one trouble after the other until people have done their work, and lets collectors run
// after that. It counts troubles.
func disturb(t *testing.T, collectors int, start func(name string) running, pause time.Duration, troubles []trouble, done <-chan struct{}) map[string]int {
	counts, next := map[string]int{}, 0
	run := func() running {
		next++
		return start(fmt.Sprint("server-", next))
	}
	var servers []running
	for range collectors {
		servers = append(servers, run())
	}
	random := rand.New(rand.NewPCG(2, 2))
	for i := 0; ; i++ {
		select {
		case <-done:
			return counts
		case <-time.After(pause + time.Duration(random.Int64N(int64(2*pause)))):
		}
		what := troubles[i%len(troubles)]
		if what.cause != nil {
			if err := what.cause(); err != nil {
				t.Error(err)
				return counts
			}
			counts[what.name]++
			continue
		}
		if leader := slices.IndexFunc(servers, func(s running) bool { return s.election.Status().Leading }); leader >= 0 {
			servers[leader].kill()
			servers[leader].stop()
			servers[leader] = run()
			counts[what.name]++
		}
	}
}

// observer has the model follow etcd.
type observer struct {
	client *clientv3.Client
	prefix string
	path   func(key string) string // that the model has for a key; empty for one that it does not have
	moved  chan struct{}           // receives after changes

	mu     sync.Mutex // guards what follows
	model  *model
	marker string // the last
}

func newObserver(client *clientv3.Client, prefix string, r rules, path func(string) string) *observer {
	return &observer{client: client, prefix: prefix, path: path, moved: make(chan struct{}, 1), model: newModel(newClaims(), r)}
}

// start watches until it is stopped, or the test ends.
func (o *observer) start(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var watched sync.WaitGroup
	watched.Go(func() { o.watch(ctx, t) })
	return func() {
		cancel()
		watched.Wait()
	}
}

// settle waits for quiet twice, the second time without finalizers of other programs, and reports what is
// wrong.
func (o *observer) settle(t *testing.T, crowd *people) {
	t.Helper()
	o.quiet(t)
	o.mu.Lock()
	paths := o.model.held()
	o.mu.Unlock()
	crowd.releaseAll(t.Context(), paths)
	o.quiet(t)
	o.mu.Lock()
	defer o.mu.Unlock()
	t.Logf("%v", o.model.counts)
	o.model.report(t, "at the end")
}

// create stores an object if there is none of that name.
func (o *observer) create(ctx context.Context, kind store.Kind, name string, object *metav1.PartialObjectMetadata) error {
	path := o.prefix + "/" + kind.Folder() + name
	answer, err := o.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(path), "=", 0)).Then(clientv3.OpPut(path, text(object))).Commit()
	if err == nil && !answer.Succeeded {
		return controlplane.ErrConflict
	}
	return err
}

// watch takes in all changes from the first revision on.
func (o *observer) watch(ctx context.Context, t *testing.T) {
	for answer := range o.client.Watch(ctx, o.prefix+"/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		if err := answer.Err(); err != nil && ctx.Err() == nil {
			t.Errorf("the watch of the model ends: %v", err)
			return
		}
		o.mu.Lock()
		for _, e := range answer.Events {
			o.take(t, e)
		}
		o.mu.Unlock()
		select {
		case o.moved <- struct{}{}:
		default:
		}
	}
}

func (o *observer) take(t *testing.T, e *clientv3.Event) {
	key := strings.TrimPrefix(string(e.Kv.Key), o.prefix+"/")
	if key == "marker" {
		o.marker = string(e.Kv.Value)
		return
	}
	path := o.path(key)
	switch {
	case path == "":
	case e.Type == clientv3.EventTypeDelete:
		o.model.apply(change{e.Kv.ModRevision, path, nil})
	default:
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(e.Kv.Value, &object); err != nil {
			t.Errorf("%s = %s: %v", key, e.Kv.Value, err)
		}
		o.model.apply(change{e.Kv.ModRevision, path, newRecord(path, e.Kv.ModRevision, &object)})
	}
}

// quiet waits until nothing is left to be done, and for all changes up to then.
func (o *observer) quiet(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	left := func() []string {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.model.left()
	}
	for round := 0; ; round++ {
		marker := fmt.Sprint(rand.Uint64())
		if _, err := o.client.Put(ctx, o.prefix+"/marker", marker); err != nil {
			t.Fatal(err)
		}
		for seen := ""; seen != marker || len(left()) > 0; {
			select {
			case <-o.moved:
			case <-ctx.Done():
				t.Logf("there was no quiet: %d are left", len(left()))
				return
			}
			o.mu.Lock()
			seen = o.marker
			o.mu.Unlock()
		}
		if round == 1 { // nothing was done in between
			return
		}
	}
}
