package lifecycle_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/store/memory"
)

// TestServersThatAreKilledLoseAndRepeatNoTaint kills servers again and again while half of a
// fleet is dead.
func TestServersThatAreKilledLoseAndRepeatNoTaint(t *testing.T) {
	rounds := uint64(4)
	if os.Getenv("HOSTLER_TEST_LONG") != "" {
		rounds = 80 // a thousand kills
	}
	kills := 0
	for seed := range rounds {
		kills += killServers(t, seed)
	}
	t.Logf("%d kills", kills)
}

func killServers(t *testing.T, seed uint64) (kills int) {
	const hosts, interval = 60, 10 * time.Second
	inBubble(t, true, func(t *testing.T, f fakes) {
		random := rand.New(rand.NewPCG(seed, 2))
		var doomed []func()
		dead := map[string]string{}
		for i := range hosts {
			zone, name := fmt.Sprintf("z%d", i%2), fmt.Sprintf("h%02d", i)
			kill := f.agent(name, zone)
			if i%4 < 2 {
				doomed, dead[name] = append(doomed, kill), zone
			}
		}
		start := func(left *left) (*server, *memory.Process) {
			m := f.store.Process()
			f := f
			f.seen, f.left = m, left
			return f.serve(fmt.Sprint("s", random.Uint64()), lifecycle.DefaultPolicy()), m
		}
		first, firstStore := start(nil)
		second, secondStore := start(nil)
		pass(time.Minute)
		for _, kill := range doomed {
			kill()
		}
		pass(leaseDuration)
		added := map[string]time.Time{}
		for since := time.Now(); len(added) < len(dead); {
			if time.Since(since) > time.Hour {
				t.Fatalf("seed %d: %d of %d dead hosts are tainted after an hour", seed, len(added), len(dead))
			}
			pass(time.Duration(random.IntN(20000)) * time.Millisecond)
			// The leader is killed. Some time later, another process starts instead.
			if first.election.Status().Leading {
				first, second, firstStore, secondStore = second, first, secondStore, firstStore
			}
			left := second.leaves(nil)
			secondStore.Kill()
			second.stop()
			kills++
			for name := range dead {
				for _, taint := range f.node(name).Spec.Taints {
					if taint.Effect != corev1.TaintEffectNoExecute {
						continue
					}
					if before, known := added[name]; known && !before.Equal(taint.TimeAdded.Time) {
						t.Errorf("seed %d: %s was tainted at %v, and again at %v", seed, name, before, taint.TimeAdded)
					}
					added[name] = taint.TimeAdded.Time
				}
			}
			pass(time.Duration(random.IntN(3000)) * time.Millisecond)
			second, secondStore = start(left)
		}
		for _, zone := range []string{"z0", "z1"} {
			checkPace(t, seed, zone, dead, f, interval)
		}
		synctest.Wait()
	})
	return kills
}

// checkPace checks that the taints of a zone were added at its rate, at most late by the time of an
// election.
func checkPace(t *testing.T, seed uint64, zone string, dead map[string]string, f fakes, interval time.Duration) {
	t.Helper()
	var times []time.Time
	for name, in := range dead {
		if in != zone {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, f.node(name).Annotations[lifecycle.AnnotationTainted])
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, at)
	}
	slices.SortFunc(times, time.Time.Compare)
	for i := 1; i < len(times); i++ {
		switch gap := times[i].Sub(times[i-1]); {
		case gap < interval:
			t.Errorf("seed %d: zone %s: %v between two taints, want at least %v", seed, zone, gap, interval)
		case gap > interval+15*time.Second:
			t.Errorf("seed %d: zone %s: %v between two taints, want at most 15s more than %v", seed, zone, gap, interval)
		}
	}
}
