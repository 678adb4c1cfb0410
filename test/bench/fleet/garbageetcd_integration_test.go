//go:build integration

package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	etcdstore "hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/lab"
)

// BenchmarkGarbageOnEtcd measures the garbage collector of `hostler server` on etcd: how fast it
// deletes trees of 10,000 objects, its memory, and the cost of a foreground or orphan deletion next
// to 10,000 Nodes.
func BenchmarkGarbageOnEtcd(b *testing.B) {
	binary := filepath.Join(b.TempDir(), "hostler")
	check(b, lab.Build(b.Context(), "hostler.io/hostler", version, binary))
	const n = 10_000
	for _, c := range []struct {
		name   string
		owner  func(i int) int // owner of object i; negative for none
		roots  int             // number of deleted objects, which are the first ones
		policy metav1.DeletionPropagation
		stay   int // number of objects that stay
	}{
		{"a tree, ten dependents each", func(i int) int { return (i - 1) / 10 }, 1, metav1.DeletePropagationBackground, 0},
		{"a tree, in the foreground", func(i int) int { return (i - 1) / 10 }, 1, metav1.DeletePropagationForeground, 0},
		{"one owner", func(int) int { return 0 }, 1, metav1.DeletePropagationBackground, 0},
		{"one owner, in the foreground", func(int) int { return 0 }, 1, metav1.DeletePropagationForeground, 0},
		{"one owner, orphaned", func(int) int { return 0 }, 1, metav1.DeletePropagationOrphan, n},
		{"10,000 owners with one each", func(i int) int { return i - n }, n, metav1.DeletePropagationBackground, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			g := newThings(b)
			total := n + c.roots
			for i := range total {
				owner := -1
				if i >= c.roots {
					owner = c.owner(i)
				}
				g.put("", i, owner)
			}
			server := startReplica(b, binary, g.cluster.Endpoints())
			g.ready()
			cpu, began := server.cpu(), time.Now()
			for i := range c.roots {
				g.remove(fmt.Sprintf("things/o%d", i), c.policy)
			}
			g.await(c.stay)
			took := time.Since(began)
			fmt.Printf("%-30s %6.0f a second, %5.1f s in all, %5.1f s of CPU, RSS %.0f MB\n", c.name, n/took.Seconds(), took.Seconds(), server.cpu()-cpu, float64(server.rss())/1e6)
		})
	}
	b.Run("memory", func(b *testing.B) {
		g := newThings(b)
		for i := range 10 * n {
			g.put("shop", i, i/10)
		}
		server := startReplica(b, binary, g.cluster.Endpoints())
		g.ready()
		time.Sleep(10 * time.Second)
		fmt.Printf("%-30s RSS %.0f MB\n", "100,000 objects", float64(server.rss())/1e6)
	})
	b.Run("beside nodes", func(b *testing.B) {
		for _, nodes := range []int{0, n} {
			g := newThings(b)
			simulate(b, g.client, nodes)
			startReplica(b, binary, g.cluster.Endpoints())
			g.ready()
			g.put("", 0, -1)
			began := time.Now()
			g.remove("things/o0", metav1.DeletePropagationOrphan)
			g.await(0)
			one := time.Since(began)
			const owners = 100
			for i := range owners {
				g.put("", i, -1)
			}
			began = time.Now()
			for i := range owners {
				g.remove(fmt.Sprintf("things/o%d", i), metav1.DeletePropagationOrphan)
			}
			slowest := g.await(0)
			fmt.Printf("%-30s one orphan deletion %v, 100 of them %v; slowest write of others meanwhile %v\n", fmt.Sprintf("%d Nodes", nodes), one.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), slowest.Round(time.Millisecond))
		}
	})
}

// things are objects in an etcd cluster.
type things struct {
	b       *testing.B
	cluster *etcd.Cluster
	client  *clientv3.Client
	fleet   *etcdstore.Fleet
	pending []clientv3.Op
}

func newThings(b *testing.B) *things {
	b.Helper()
	g := &things{b: b, cluster: etcd.For(b, etcd.Options{Flags: []string{quota}})}
	var err error
	g.client, err = clientv3.New(clientv3.Config{Endpoints: g.cluster.Endpoints()})
	check(b, err)
	g.fleet, err = etcdstore.NewFleet(etcdstore.Options{Endpoints: g.cluster.Endpoints(), Prefix: prefix, Insecure: true})
	check(b, err)
	b.Cleanup(func() {
		_ = g.client.Close()
		_ = g.fleet.Close()
	})
	return g
}

// put stores object i with an owner, if owner is not negative.
func (g *things) put(namespace string, i, owner int) {
	g.b.Helper()
	o := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Thing"}}
	o.Name, o.Namespace, o.UID = fmt.Sprintf("o%d", i), namespace, types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
	o.Labels = map[string]string{"app": "shop", "tier": "front"}
	if owner >= 0 && owner != i {
		block := true
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: o.APIVersion, Kind: o.Kind, Name: fmt.Sprintf("o%d", owner), UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", owner)), BlockOwnerDeletion: &block}}
	}
	value, err := json.Marshal(o)
	check(g.b, err)
	g.pending = append(g.pending, clientv3.OpPut(prefix+"/objects/things/"+strings.TrimPrefix(namespace+"/"+o.Name, "/"), string(value)))
	if len(g.pending) == 100 {
		g.flush()
	}
}

func (g *things) flush() {
	g.b.Helper()
	if len(g.pending) > 0 {
		_, err := g.client.Txn(g.b.Context()).Then(g.pending...).Commit()
		check(g.b, err)
		g.pending = nil
	}
}

// remove requests the deletion of an object.
func (g *things) remove(name string, policy metav1.DeletionPropagation) {
	g.b.Helper()
	g.flush()
	check(g.b, g.fleet.Delete(g.b.Context(), store.Objects, name, store.Preconditions{}, policy))
}

// ready waits until a server collects: it deletes an object whose owner never existed.
func (g *things) ready() {
	g.b.Helper()
	g.flush()
	before := g.count()
	g.put("", 1_000_000, 1_000_001)
	g.flush()
	g.await(before)
}

func (g *things) count() int {
	g.b.Helper()
	answer, err := g.client.Get(g.b.Context(), prefix+"/objects/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	check(g.b, err)
	return int(answer.Count)
}

// await waits until that many objects are left and none is being deleted. It returns the duration
// of the slowest write during that time.
func (g *things) await(left int) (slowest time.Duration) {
	g.b.Helper()
	ctx, cancel := context.WithTimeout(g.b.Context(), 5*time.Minute)
	defer cancel()
	for ; g.count() > left; time.Sleep(10 * time.Millisecond) {
		began := time.Now()
		_, err := g.client.Put(ctx, "/other", "")
		check(g.b, err)
		slowest = max(slowest, time.Since(began))
	}
	return slowest
}
