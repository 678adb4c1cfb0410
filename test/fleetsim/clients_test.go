package fleetsim

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store/memory"
	"hostler.io/hostler/internal/bounded"
)

// The messages between a FleetLock client and a server. They do not reach the store.
const (
	lockAsked    memory.Call = "Ask"
	lockAnswered memory.Call = "Reply"
)

// The paths of the FleetLock protocol.
const (
	preReboot   = "/v1/pre-reboot"
	steadyState = "/v1/steady-state"
)

// The start and the end of the reboot of a client.
const (
	commandDown  memory.Call = "Down"
	commandStart memory.Call = "Start"
)

// client is a FleetLock client, which reboots its machine again and again. It outlives its processes.
type client struct {
	w       *world
	name    string // of its process
	id      string // of a host, or of a machine without a Node
	process *process
	busy    atomic.Bool // see works
}

func newClient(w *world, i int) *client {
	c := &client{w: w, name: clientName(i), id: clientName(i)}
	if r := w.plan.draw("client", i); r.IntN(3) == 0 {
		c.id = w.plan.anyHost(r)
	}
	return c
}

func clientName(i int) string { return fmt.Sprintf("client-%d", i+1) }

// starts starts a process of the client.
func (c *client) starts() {
	c.process = newProcess(c.w.carrier, c.name)
	c.busy.Store(false)
	p := c.process
	go func() { _ = c.run(p) }()
}

// works reports whether the client waits for a slot, or has one. A client on a host that does not boot again does
// neither.
func (c *client) works() bool {
	h := c.w.host(c.id)
	return c.busy.Load() && (h == nil || !h.gone)
}

// run reboots the machine until the faults are over, or the process is killed. A reboot that has begun is completed.
func (c *client) run(p *process) error {
	for {
		pause := func(what string, least, most int) error {
			return bounded.Sleep(p.ctx, time.Duration(least+c.w.plan.draw(c.name, what, time.Since(c.w.start)).IntN(most-least))*time.Second)
		}
		if err := pause("idle", 20, 150); err != nil || time.Since(c.w.start) > c.w.plan.Length {
			return err
		}
		c.busy.Store(true)
		asked, err := c.insist(p, preReboot)
		if err != nil {
			return err
		}
		if err := p.Do(p.ctx, memory.Request{Call: commandDown, Object: c.id}, func() error { c.reboots(asked); return nil }); err != nil {
			return err
		}
		if err := pause("reboot", 30, 240); err != nil {
			return err
		}
		if err := p.Do(p.ctx, memory.Request{Call: commandStart, Object: c.id}, func() error { c.rebooted(); return nil }); err != nil {
			return err
		}
		if _, err := c.insist(p, steadyState); err != nil {
			return err
		}
		c.busy.Store(false)
	}
}

// insist repeats a request until a server answers that it is done. It returns when it made the request that was
// answered.
func (c *client) insist(p *process, path string) (asked time.Time, err error) {
	for {
		asked, r := time.Now(), c.w.plan.draw(c.name, path, time.Since(c.w.start))
		if c.call(p, c.w.servers[r.IntN(len(c.w.servers))], path) {
			return asked, nil
		}
		if err := bounded.Sleep(p.ctx, time.Duration(5+r.IntN(25))*time.Second); err != nil {
			return asked, err
		}
	}
}

// call makes a request to a server, and reports whether the client gets the answer that it is done.
func (c *client) call(p *process, s *server, path string) bool {
	ctx, cancel := context.WithTimeout(p.ctx, callTime)
	defer cancel()
	answer := make(chan int, 1)
	if p.Do(ctx, memory.Request{Call: lockAsked, Object: s.name}, func() error { return c.deliver(s, path, answer) }) != nil {
		return false
	}
	select {
	case status := <-answer:
		return p.Do(ctx, memory.Request{Call: lockAnswered, Object: s.name}, c.up) == nil && status == http.StatusOK
	case <-ctx.Done():
		return false
	}
}

// up returns an error while the host of the client is down. Only the driver's goroutine calls it.
func (c *client) up() error {
	if c.w.host(c.id) != nil && !c.w.truth.of(c.id).alive {
		return errKilled
	}
	return nil
}

// deliver gives a request to the present process of a server.
func (c *client) deliver(s *server, path string, answer chan<- int) error {
	ctx, handler := s.process.ctx, s.fleetlock
	if err := c.up(); err != nil || ctx.Err() != nil {
		return errKilled
	}
	body := fmt.Sprintf(`{"client_params": {"id": %q, "group": %q}}`, c.id, controlplane.DefaultRebootGroup)
	go func() {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("fleet-lock-protocol", "true")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		answer <- w.Code
	}()
	return nil
}

// reboots begins the reboot of the machine, for which the client requested a slot.
func (c *client) reboots(asked time.Time) {
	c.w.truth.clientReboots(c, asked)
	if h := c.w.host(c.id); h != nil && c.w.truth.of(c.id).alive {
		h.dies()
	}
}

// rebooted ends the reboot of the machine.
func (c *client) rebooted() {
	delete(c.w.truth.slots.amid, c.machine())
	if h := c.w.host(c.id); h != nil && c.w.active[fmt.Sprint(hostDies, "/", h.name, "/")] == 0 {
		h.bootsAgain()
	}
}

// machine names the machine of the client. A host can reboot in two ways.
func (c *client) machine() string { return c.id + " by FleetLock" }

// clientReboots checks that a client that reboots has a slot.
func (t *truth) clientReboots(c *client, asked time.Time) {
	t.slots.amid[c.machine()] = asked
	_, holds := t.slots.holders[c.id]
	t.count()
	if lost := t.slots.lost[c.id]; !holds && (lost.IsZero() || time.Since(lost) > notice) {
		t.w.fail("no reboot without a slot", "%s reboots, and has no slot since %v", c.machine(), lost)
	}
}

// died makes persons release the slot of a client that was killed, and then starts it again.
func (c *client) died() {
	if c.w.releases(c.id) {
		delete(c.w.truth.slots.amid, c.machine())
		c.rebooted()
		c.starts()
		return
	}
	c.w.at(time.Since(c.w.start)+10*time.Second, "a person checks the slot of "+c.id, c.died)
}

// releases makes a person release the slot and the request of a FleetLock client. It reports whether it has neither.
func (w *world) releases(id string) bool {
	state := stateOf(w.plan.group(), w.store.Raw(w.plan.group()))
	is := func(c slots.Client) bool { return c.ID == id && c.Type == slots.FleetLock }
	if !slices.ContainsFunc(state.Holders, func(h slots.Holder) bool { return is(h.Client) }) && !slices.ContainsFunc(state.Waiting, func(r slots.Request) bool { return is(r.Client) }) {
		return true
	}
	for _, s := range w.servers {
		if s.process.ctx.Err() == nil {
			w.freeSlotOf(s, id)
			break
		}
	}
	return false
}
