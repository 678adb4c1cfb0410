package fleetsim

import (
	"time"

	"hostler.io/hostler/controlplane"
)

// sameMachine is the What of a twin that is a copy: it has the machine ID and the system UUID of the host, too.
const sameMachine = "with the same machine ID"

// twin starts another machine with the Node name of a host. Its agent only writes the Node and the Lease.
func (h *host) twin(what string) (begin, end func()) {
	twin := &host{w: h.w, name: h.name, zone: h.zone, machineID: "twin-of-" + h.name, process: newProcess(h.w.carrier, "twin-of-"+h.name)}
	if what == sameMachine {
		twin.machineID = h.machineID
	}
	return func() {
		h.copied = h.copied || what == sameMachine
		twin.booted, twin.boot = time.Now(), 1000
		twin.agent = newAgent(twin)
		twin.agent.loops = twin.agent.loops[:3]
		h.w.twins = append(h.w.twins, twin.process)
		go twin.agent.run(twin.process.ctx)
	}, twin.process.kill
}

// replaced checks that no other machine takes the Node of a host that renews its Lease. The slot of a machine without a Node
// becomes free.
func (t *truth) replaced(q *request, name string, before, after []byte) {
	was, is, f := decodeNode(before), decodeNode(after), t.of(name)
	if q.of.name != "twin-of-"+name || was == nil || f.hostile || controlplane.IdentityOf(was).Differs(t.w.host(name).identity()) || is != nil && !controlplane.IdentityOf(is).Differs(t.w.host(name).identity()) {
		return
	}
	t.forced(name)
	if at := within(f.renewals, q.asked, leaseDuration); at.After(f.registered) {
		t.w.fail("no Node of a living host is replaced", "%s takes Node %s by %s, whose Lease was renewed %v before", q.of.name, name, q.key, q.asked.Sub(at).Round(time.Millisecond))
	}
}

// identity is the identity of the machine.
func (h *host) identity() controlplane.Identity {
	m := h.machine()
	return controlplane.Identity{MachineID: m.MachineID, SystemUUID: m.SystemUUID}
}
