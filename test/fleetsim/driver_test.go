package fleetsim

import (
	"errors"
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
	switch {
	case q.fate == refused && local(q.Call):
		err = errIO
	case q.fate == refused:
		err = fmt.Errorf("%w: try again later", controlplane.ErrUnavailable)
	}
	if err == nil && q.fate != ignored {
		w.serving, w.truth.deposed = q, !w.store.Leads(q.Term)
		err = q.serve()
		w.serving = nil
	}
	switch {
	case err != nil:
	case q.fate == broken && local(q.Call):
		err = errIO
	case q.fate == broken:
		err = fmt.Errorf("%w: connection broken", controlplane.ErrUnavailable)
	case q.fate == partial:
		err = errLeft
	}
	if q.Call == commandReboot && (q.fate == refused || q.fate == ignored) {
		w.stays(w.host(q.of.name), q.fate)
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
	most := 15 * time.Millisecond
	if q.fate == slow {
		most = slowest[q.Call]
	}
	q.due = time.Now().Add(time.Millisecond + time.Duration(w.plan.draw("answer", q.key).Int64N(int64(most))))
}

// The errors of commands and saves.
var (
	errIO   = errors.New("input/output error")
	errLeft = errors.New("pods still run")
)

// slowest is the longest time of a command or save that is slow: longer than what waits for it waits.
var slowest = map[memory.Call]time.Duration{
	commandFlush: 20 * time.Second, commandSave: 20 * time.Second, commandUndo: time.Minute,
	commandDrain: 3 * time.Minute, commandSelfDrain: 3 * time.Minute, commandReboot: 90 * time.Second,
}

// atOnce reports whether an answer needs no time. An event comes from the store, so there is no way
// back. The frequent calls, which read and write no objects, would only make runs slower.
func atOnce(c memory.Call) bool {
	return c == memory.Event || c == memory.Ping || c == memory.Elect || c == memory.Extend || c == memory.Progress || c == lockAsked || c == commandSave
}

// trace records a step.
func (w *world) trace(text string) {
	h := fnv.New64a()
	at := time.Since(w.start)
	fmt.Fprintln(h, w.last, text, w.store.Revision(), w.truth.content, at)
	w.last = h.Sum64()
	w.steps = append(w.steps, step{at, text, w.last})
}
