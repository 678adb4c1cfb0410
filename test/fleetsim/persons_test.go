package fleetsim

import (
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// wishes are the requests of persons for reboots of a host that were accepted.
type wishes struct {
	mu        sync.Mutex // guards the fields below
	accepted  *wish      // the last one; nil if there is none that has to be carried out
	cancelled cancelled

	leaving atomic.Int32 // requests of persons to leave that are in progress
}

// wish is a request that was accepted in a boot.
type wish struct {
	boot int
	at   time.Time
	id   string // of the request
	now  bool
}

// cancelled is a request that a person has cancelled, and the agent that did it: another one may not know that.
type cancelled struct {
	id     string
	starts int
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
	case personCordons:
		return func() { h.cordon(true, f.What) }, func() { h.cordon(false, f.What) }
	case personLeaves:
		return h.leave, h.returns
	}
	return func() { h.flap(f.To) }, nil
}

// ask requests a reboot.
func (h *host) ask(a reboot.Ask) {
	agent, boot, at := h.agent, h.boot, time.Now()
	go func() {
		report, err := agent.reboot.Request("person", a)
		if err != nil {
			return
		}
		h.wishes.mu.Lock()
		defer h.wishes.mu.Unlock()
		h.wishes.accepted, h.wishes.cancelled = &wish{boot, at, report.Request.ID, a.Now}, cancelled{}
	}()
}

// cancel cancels the reboot.
func (h *host) cancel() {
	agent, starts := h.agent, h.starts
	go func() {
		report, err := agent.reboot.Cancel("person")
		if err != nil {
			return
		}
		h.wishes.mu.Lock()
		defer h.wishes.mu.Unlock()
		if h.wishes.accepted = nil; report.Request.Cancelled != "" { // no person has requested it again
			h.wishes.cancelled = cancelled{report.Request.ID, starts}
		}
	}()
}

// kubectl is the What of a person who changes the Node on the control plane, and not with a command of its host.
const kubectl = "with kubectl"

// cordon makes a person cordon or uncordon the Node. A command counts when it is done. What a person changes on the control
// plane counts unless the Node is cordoned for a reboot, or a command is not done: then nobody can see which one is the last.
func (h *host) cordon(on bool, how string) {
	t := h.w.truth
	if delete(t.cordons, h.name); t.of(h.name).hostile {
		return
	}
	agent, ctx := h.agent, h.process.ctx
	if how != kubectl && !h.w.plan.Kubelets {
		if !t.of(h.name).alive {
			return
		}
		go func() {
			if r, err := agent.cordoner.Cordon(ctx, on); err == nil && !r.Pending && r.Message == "" {
				_ = agent.command(ctx, commandCordon, func() error { t.cordons[h.name] = on; return nil })
			}
		}()
		return
	}
	h.w.store.Edit(store.Nodes, h.name, func(o store.Object) {
		node := o.(*corev1.Node)
		slot, err := controlplane.RebootSlotOf(node.Annotations)
		own := agent.reporter.Decided()
		if node.Spec.Unschedulable != on && err == nil && (slot == nil || !slot.Cordoned) && (own == nil || own.Delivered && !own.Own) {
			t.cordons[h.name] = on
		}
		node.Spec.Unschedulable = on
	})
}

// cordoned checks that nothing undoes what a person has decided about the pods that a Node takes. A reboot may cordon it.
func (t *truth) cordoned(q *request, name string, was, is *corev1.Node) {
	on, decided := t.cordons[name]
	if was == nil || is == nil || was.UID != is.UID {
		delete(t.cordons, name)
		return
	}
	if !decided || was.Spec.Unschedulable == is.Spec.Unschedulable || is.Spec.Unschedulable == on {
		return
	}
	r := t.w.host(name).agent.reboot.Report().Request
	if _, holds := t.slots.holders[name]; !on && (holds || r != nil && r.Now) {
		return
	}
	t.w.fail("what a person cordons or uncordons stays so", "%s set unschedulable=%v on Node %s by %s, and a person has decided otherwise", q.of.name, is.Spec.Unschedulable, name, q.key)
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
		_ = agent.flusher("leave")()
	}()
}

// returns registers the host again. The person repeats that until it is done.
func (h *host) returns() {
	alive := h.w.truth.of(h.name).alive
	switch {
	case h.gone:
		return
	case alive && h.wishes.leaving.Load() == 0 && h.agent.reporter.Left() == nil && !h.disk.late():
		h.agent.member.Set("")
		return
	case alive:
		agent, ctx := h.agent, h.process.ctx
		go func() {
			if _, err := agent.reporter.Return(ctx, "person"); err == nil {
				agent.member.Set("")
				_ = agent.flusher("leave")()
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
	pause := time.Duration(1+h.w.plan.draw("flap", h.name, passed).IntN(15000)) * time.Millisecond
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

// cancels reports whether a person has cancelled a request of an agent.
func (w *wishes) cancels(id string, starts int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cancelled == cancelled{id, starts}
}

// remembers checks that the agent has not forgotten a request of a person, or a part of it.
func (h *host) remembers() {
	r, w := h.agent.reboot.Report().Request, h.unfulfilled()
	if w != nil && (r == nil || r.ID == w.id && r.Cancelled == "" && (r.By == "" || w.now && !r.Now)) {
		h.w.fail("no request of a person is forgotten", "%s has accepted a request %v ago, and has %+v", h.name, time.Since(w.at).Round(time.Second), r)
	}
}
