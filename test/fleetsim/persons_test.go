package fleetsim

import (
	"sync"
	"time"

	"hostler.io/hostler/agent/reboot"
)

// wishes are the requests of persons for reboots of a host that were accepted.
type wishes struct {
	mu       sync.Mutex // guards the fields below
	accepted *wish      // the last one; nil if there is none that has to be carried out
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
	go func() {
		agent.member.Set("left")
		if agent.member.Idle(ctx) != nil || agent.reporter.Leave(ctx, "person") != nil && agent.reporter.Left() == nil {
			agent.member.Set("")
		}
	}()
}

// returns registers the host again.
func (h *host) returns() {
	agent, ctx := h.agent, h.process.ctx
	go func() {
		if _, err := agent.reporter.Return(ctx, "person"); err == nil {
			agent.member.Set("")
		}
	}()
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
	if w == nil || w.boot != h.boot {
		return nil
	}
	return w
}
