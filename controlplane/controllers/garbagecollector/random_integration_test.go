//go:build integration

package garbagecollector_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
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

// TestRandomOperationsOnEtcdAreCollectedByTheRules has people change objects at random while collectors
// and etcd are killed, and judges each write of a collector by the model, in the order of etcd's revisions.
// HOSTLER_TEST_LONG=1 makes it a million operations, and any other number that many.
func TestRandomOperationsOnEtcdAreCollectedByTheRules(t *testing.T) {
	operations := int64(2500)
	if long := os.Getenv("HOSTLER_TEST_LONG"); long != "" {
		if operations, _ = strconv.ParseInt(long, 10, 64); operations < 2 {
			operations = 1_000_000
		}
	}
	c := bed.For(t, bed.Options{Flags: []string{"--quota-backend-bytes=4294967296", "--auto-compaction-mode=periodic", "--auto-compaction-retention=5m"}})
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	o := &observer{client: client, model: newModel(&claims{tried: map[state][]chan outcome{}}), moved: make(chan struct{}, 1)}
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	var watched sync.WaitGroup
	watched.Go(func() { o.watch(watching, t) })
	crowd := &people{store: fleet(t, c), names: 4, claims: o.model.claims, create: o.create}
	var acting sync.WaitGroup
	var rest sync.RWMutex // held while people rest: else no collector could end a deletion
	done := make(chan struct{})
	for i := range uint64(8) {
		acting.Go(func() {
			p := &person{crowd, rand.New(rand.NewPCG(1, i))}
			for crowd.made.Load() < operations && t.Context().Err() == nil {
				rest.RLock()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				p.act(ctx)
				cancel()
				rest.RUnlock()
				if operations < 10_000 {
					time.Sleep(time.Duration(p.IntN(20)) * time.Millisecond)
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
	pause := time.Second
	if operations >= 10_000 {
		pause *= 4
	}
	kills := disturb(t, c, client, pause, done)
	t.Logf("%d operations were stored, and there were %v", crowd.made.Load(), kills)
	o.quiet(t)
	o.mu.Lock()
	paths := o.model.held()
	o.mu.Unlock()
	crowd.releaseAll(t.Context(), paths)
	o.quiet(t)
	stop()
	watched.Wait()
	t.Logf("%v", o.model.counts)
	o.model.report(t, "at the end")
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

// disturb kills leaders and etcd, and deposes leaders, until people have done their work, and lets at
// least one of three collectors run after that.
func disturb(t *testing.T, c *bed.Cluster, client *clientv3.Client, pause time.Duration, done <-chan struct{}) map[string]int {
	kills := map[string]int{}
	type running struct {
		*replica
		*process
	}
	next, kinds := 0, 0
	start := func() running {
		next++
		p := &process{Fleet: fleet(t, c)}
		return running{collect(t, p, fmt.Sprint("server-", next)), p}
	}
	servers := []running{start(), start(), start()}
	random := rand.New(rand.NewPCG(2, 2))
	for {
		select {
		case <-done:
			return kills
		case <-time.After(pause + time.Duration(random.Int64N(int64(2*pause)))):
		}
		switch kinds++; kinds % 8 {
		case 1: // the next one leads after the end of the term
			for i, s := range servers {
				if s.election.Status().Leading {
					s.kill()
					s.stop()
					servers[i] = start()
					kills["kills of a leader"]++
					break
				}
			}
		case 3, 6:
			if err := c.Members[0].Kill(); err != nil {
				t.Error(err)
			}
			if err := c.Run(t.Context()); err != nil {
				t.Error(err)
				return kills
			}
			kills["kills of etcd"]++
		default:
			_, _ = client.Delete(t.Context(), prefix+"/elections/"+garbagecollector.Name)
			kills["leaders deposed"]++
		}
	}
}

// observer has the model follow etcd.
type observer struct {
	client *clientv3.Client
	moved  chan struct{} // receives after changes

	mu     sync.Mutex // guards what follows
	model  *model
	marker string // the last
}

// create stores an object if there is none of that name.
func (o *observer) create(ctx context.Context, kind store.Kind, name string, value []byte) error {
	path := prefix + "/" + kind.Folder() + name
	answer, err := o.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(path), "=", 0)).Then(clientv3.OpPut(path, string(value))).Commit()
	if err == nil && !answer.Succeeded {
		return controlplane.ErrConflict
	}
	return err
}

// watch takes in all changes from the first revision on.
func (o *observer) watch(ctx context.Context, t *testing.T) {
	for answer := range o.client.Watch(ctx, prefix+"/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
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
	path := strings.TrimPrefix(string(e.Kv.Key), prefix+"/")
	switch {
	case path == "marker":
		o.marker = string(e.Kv.Value)
	case !strings.HasPrefix(path, "nodes/") && !strings.HasPrefix(path, "objects/"):
	case e.Type == clientv3.EventTypeDelete:
		o.model.apply(change{e.Kv.ModRevision, path, nil})
	default:
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(e.Kv.Value, &object); err != nil {
			t.Errorf("%s = %s: %v", path, e.Kv.Value, err)
		}
		o.model.apply(change{e.Kv.ModRevision, path, newRecord(path, e.Kv.ModRevision, &object)})
	}
}

// quiet waits until nothing is left to be done, and for all changes up to then.
func (o *observer) quiet(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	left := func() []string {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.model.left()
	}
	for round := 0; ; round++ {
		marker := fmt.Sprint(rand.Uint64())
		if _, err := o.client.Put(ctx, prefix+"/marker", marker); err != nil {
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
