package fleetsim

import (
	"fmt"
	"hash/fnv"
	"testing/synctest"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store/memory"
)

// step is one release of the driver, and what was written before it.
type step struct {
	at   time.Duration // since the start
	text string
	hash uint64
}

// event is something that happens at a time of the plan.
type event struct {
	at   time.Time
	text string
	do   func()
}

// most is more steps than a fleet makes at one time, unless something repeats without a pause.
const most = 100_000

// drive releases requests and lets time pass until then.
func (w *world) drive(until time.Time) {
	var last time.Time
	steps := 0
	for w.failure == "" {
		synctest.Wait()
		now := time.Now()
		if steps++; now.After(last) {
			last, steps = now, 0
		}
		if steps > most {
			w.fail("nothing repeats without a pause", "%d steps, the last one: %s", steps, w.steps[len(w.steps)-1].text)
			return
		}
		if len(w.events) > 0 && !w.events[0].at.After(now) {
			e := w.events[0]
			w.events = w.events[1:]
			w.note(e.text)
			w.trace(e.text)
			e.do()
			continue
		}
		q, at := w.carrier.next(now, w.roughness)
		if q != nil {
			w.release(q)
			continue
		}
		if !now.Before(until) {
			return
		}
		w.sleep(until, at)
	}
}

// sleep waits for the next request or event.
func (w *world) sleep(until, at time.Time) {
	if len(w.events) > 0 && w.events[0].at.Before(until) {
		until = w.events[0].at
	}
	if !at.IsZero() && at.Before(until) {
		until = at
	}
	w.slept.Add(1)
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.carrier.arrived:
	}
}

// release delivers a request to the store, or its answer to the process.
func (w *world) release(q *request) {
	c := w.carrier
	if q.served {
		w.trace("answer " + q.key)
		c.mu.Lock()
		c.remove(q)
		c.mu.Unlock()
		w.truth.answered(q)
		q.answer <- q.err
		return
	}
	if w.meetsRequest(q) {
		return
	}
	w.trace(q.key + " " + string(q.fate))
	err := q.of.obstacle(q.Request)
	if err == nil {
		err = w.obstacle(q.Request)
	}
	if q.fate == refused {
		err = fmt.Errorf("%w: try again later", controlplane.ErrUnavailable)
	}
	if err == nil {
		w.serving, w.truth.deposed = q, !w.store.Leads(q.Term)
		err = q.serve()
		w.serving = nil
	}
	if q.fate == broken && err == nil {
		err = fmt.Errorf("%w: connection broken", controlplane.ErrUnavailable)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q.served, q.err = true, err
	if q.left {
		c.remove(q)
		return
	}
	if q.fate == delivered && atOnce(q.Call) {
		c.remove(q)
		q.answer <- err
		return
	}
	q.due = time.Now().Add(time.Millisecond + time.Duration(w.plan.draw("answer", q.key).Int64N(int64(15*time.Millisecond))))
}

// atOnce reports whether an answer needs no time. An event comes from the store, so there is no way
// back. The frequent calls, which read and write no objects, would only make runs slower.
func atOnce(c memory.Call) bool {
	return c == memory.Event || c == memory.Ping || c == memory.Elect || c == memory.Extend || c == memory.Progress || c == lockAsked
}

// trace records a step.
func (w *world) trace(text string) {
	h := fnv.New64a()
	at := time.Since(w.start)
	fmt.Fprintln(h, w.last, text, w.store.Revision(), w.truth.content, at)
	w.last = h.Sum64()
	w.steps = append(w.steps, step{at, text, w.last})
}
