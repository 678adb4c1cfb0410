package garbagecollector_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// A store that does not answer has the first read of many wait, not one after the other.
func TestAStoreThatDoesNotAnswerIsReadOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rig{t, memory.New(memory.Options{EndsLeases: true})}
		r.collector("a")
		const nodes = 100
		for i := range nodes {
			r.node(fmt.Sprintf("n%d", i))
		}
		r.settle()
		r.store.Inject(memory.Get, memory.Fault{Err: controlplane.ErrUnavailable})
		before := r.store.Calls(memory.Get)
		for i := range nodes {
			r.store.Remove(store.Nodes, fmt.Sprintf("n%d", i))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := r.store.Calls(memory.Get) - before; got > 20 {
			t.Errorf("%d reads in 10 s, want one each second", got)
		}
		r.store.Heal()
		before = r.store.Calls(memory.Get)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := r.store.Calls(memory.Get) - before; got < nodes {
			t.Errorf("%d reads once the store answers, want one for each of %d Nodes", got, nodes)
		}
	})
}
