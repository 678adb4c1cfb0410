package fleetsim

import (
	"sync"
	"sync/atomic"
	"time"

	"hostler.io/hostler/agent/reboot"
)

// wishes are the requests of persons for reboots of a host that were accepted.
type wishes struct {
	mu       sync.Mutex // guards accepted
	accepted *wish      // the last one; nil if there is none that has to be carried out

	leaving atomic.Int32 // requests of persons to leave that are in progress
}

// wish is a request that was accepted in a boot.
type wish struct {
	boot int
	at   time.Time
}

// person returns the start and the end of what a person does with a host.
func (h *host) person(f fault) (begin, end func()) {
	switch f.Kind {
	case personAsks:
		return func() { h.ask(reboot.Ask{Reason: "new kernel"}) }, nil
	case personForces:
		return func() { h.ask(reboot.Ask{Reason: "hung task", Now: true}) }, nil
	case personStops:
		return h.cancel, nil
	case personLeaves:
		return h.leave, h.returns
	}
	return func() { h.flap(f.To) }, nil
}

// ask requests a reboot.
func (h *host) ask(a reboot.Ask) {
	agent, boot, at := h.agent, h.boot, time.Now()
	go func() {
		if _, err := agent.reboot.Request("person", a); err != nil {
			return
		}
		h.wishes.mu.Lock()
		defer h.wishes.mu.Unlock()
		h.wishes.accepted = &wish{boot, at}
	}()
}

// cancel cancels the reboot.
func (h *host) cancel() {
	agent := h.agent
	go func() {
		if _, err := agent.reboot.Cancel("person"); err != nil {
			return
		}
		h.wishes.mu.Lock()
		defer h.wishes.mu.Unlock()
		h.wishes.accepted = nil
	}()
}

// leave deregisters the host.
func (h *host) leave() {
	agent, ctx := h.agent, h.process.ctx
	h.w.truth.forced(h.name) // its slot becomes free
	h.wishes.leaving.Add(1)
	go func() {
		defer h.wishes.leaving.Add(-1)
		agent.member.Set("left")
		if agent.member.Idle(ctx) != nil || agent.reporter.Leave(ctx, "person") != nil && agent.reporter.Left() == nil {
			agent.member.Set("")
		}
	}()
}

// returns registers the host again. The person repeats that until it is done.
func (h *host) returns() {
	alive := h.w.truth.of(h.name).alive
	switch {
	case h.gone:
		return
	case alive && h.wishes.leaving.Load() == 0 && h.agent.reporter.Left() == nil:
		h.agent.member.Set("")
		return
	case alive:
		agent, ctx := h.agent, h.process.ctx
		go func() {
			if _, err := agent.reporter.Return(ctx, "person"); err == nil {
				agent.member.Set("")
			}
		}()
	}
	h.w.at(time.Since(h.w.start)+10*time.Second, "a person checks whether "+h.name+" has returned", h.returns)
}

// flap makes a check request a reboot for a short time, again and again.
func (h *host) flap(until time.Duration) {
	passed := time.Since(h.w.start)
	if passed > until {
		h.require(false)
		return
	}
	wants := h.wants()
	h.require(!wants)
	pause := time.Duration(h.w.plan.draw("flap", h.name, passed).IntN(15000)) * time.Millisecond
	h.w.at(passed+pause, "the check of "+h.name+" flaps", func() { h.flap(until) })
}

// unfulfilled returns the wish of a person that was accepted, and is neither fulfilled nor cancelled nor
// waiting; nil if there is none.
func (h *host) unfulfilled() *wish {
	h.wishes.mu.Lock()
	defer h.wishes.mu.Unlock()
	w := h.wishes.accepted
	if w == nil || w.boot != h.boot || h.gone {
		return nil
	}
	return w
}
