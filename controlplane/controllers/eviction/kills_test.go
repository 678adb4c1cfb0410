package eviction_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// expected is a pod and its due time.
type expected struct {
	name string
	due  time.Time // zero for never
}

// TestServersThatAreKilledEvictOnTimeAndOnce kills servers again and again while Nodes are tainted,
// some of them only for a while.
func TestServersThatAreKilledEvictOnTimeAndOnce(t *testing.T) {
	rounds := uint64(5)
	if os.Getenv("HOSTLER_TEST_LONG") != "" {
		rounds = 60 // more than a thousand kills
	}
	kills := 0
	for seed := range rounds {
		synctest.Test(t, func(t *testing.T) {
			kills += killServers(rig{t, memory.New(memory.Options{EndsLeases: true}), store.Pods(true)}, seed)
		})
	}
	t.Logf("%d kills", kills)
}

func killServers(r rig, seed uint64) (kills int) {
	const hosts, perHost = 40, 5
	random := rand.New(rand.NewPCG(seed, 3))
	var pods []expected
	var end time.Time
	for i := range hosts {
		node := fmt.Sprintf("h%02d", i)
		r.node(node)
		for k := range perHost {
			var tolerations []corev1.Toleration
			seconds := int64(-1)
			if k > 0 {
				seconds = int64(random.IntN(300))
				tolerations = append(tolerations, tolerates("a", seconds))
			}
			name := r.pod(node, fmt.Sprintf("p%d", k), tolerations...)
			e := expected{name: name}
			if i%2 == 0 { // at a whole second, because timeAdded has no fractions
				e.due = time.Now().Add(time.Minute + time.Duration(i)*time.Second + max(time.Duration(seconds), 0)*time.Second)
				if e.due.After(end) {
					end = e.due
				}
			}
			pods = append(pods, e)
		}
	}
	begin := time.Now()
	for i := range hosts {
		node := fmt.Sprintf("h%02d", i)
		time.AfterFunc(time.Minute+time.Duration(i)*time.Second, func() {
			if i%2 == 0 {
				r.node(node, taint("a", time.Now()))
			}
		})
	}
	start := func() (*replica, *memory.Process) {
		m := r.store.Process()
		return r.serve(fmt.Sprint("s", random.Uint64()), m), m
	}
	first, firstStore := start()
	second, secondStore := start()
	for time.Now().Before(end.Add(time.Minute)) {
		time.Sleep(time.Duration(random.IntN(20000)) * time.Millisecond)
		if first.election.Status().Leading {
			first, second, firstStore, secondStore = second, first, secondStore, firstStore
		}
		secondStore.Kill()
		second.stop()
		kills++
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
		second, secondStore = start()
	}
	for _, pod := range pods {
		at, evicted := r.evicted(pod.name)
		switch {
		case pod.due.IsZero() && evicted:
			r.Errorf("seed %d: pod %s was evicted at %v, and its Node was never tainted", seed, pod.name, at.Sub(begin))
		case pod.due.IsZero():
		case !evicted:
			r.Errorf("seed %d: pod %s was due at %v and is not evicted", seed, pod.name, pod.due.Sub(begin))
		case at.Before(pod.due) || at.Sub(pod.due) > 15*time.Second:
			r.Errorf("seed %d: pod %s was due at %v, and evicted at %v", seed, pod.name, pod.due.Sub(begin), at.Sub(begin))
		}
	}
	if got, want := r.store.Calls(memory.Delete), 0; got != want {
		r.Errorf("seed %d: %d objects were deleted, want %d: hosts delete them", seed, got, want)
	}
	return kills
}
