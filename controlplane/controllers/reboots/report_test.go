package reboots_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/slots"
)

// hostThat returns host n1 with request r1.
func hostThat(change func(*reboots.Host)) map[string]reboots.Host {
	h := reboots.Host{Node: slots.Node{Name: "n1", UID: "u", BootID: "b", Ready: true}, Request: &controlplane.RebootRequest{ID: "r1", Step: controlplane.RebootDraining}}
	change(&h)
	return map[string]reboots.Host{"n1": h}
}

func TestWhyARequestWaits(t *testing.T) {
	paused, full := &slots.Wait{Reason: slots.Paused, Message: "not yet"}, &slots.Wait{Reason: slots.Full, Message: "all slots are held"}
	dead := hostThat(func(h *reboots.Host) { h.Dead = true })
	says := hostThat(func(h *reboots.Host) { h.Request.Message = "outside of its window" })
	silent := hostThat(func(*reboots.Host) {})
	for name, c := range map[string]struct {
		hosts map[string]reboots.Host
		by    slots.ClientType
		wait  *slots.Wait
		want  string
	}{
		"an agent that is next":           {silent, slots.Agent, nil, "it gets a slot now"},
		"a client that is next":           {nil, slots.FleetLock, nil, "a slot is kept free for it until it repeats its request"},
		"a host that is dead":             {dead, slots.Agent, paused, "its host gives no sign of life"},
		"a dead host behind others":       {dead, slots.Agent, full, "all slots are held"},
		"a host that says why":            {says, slots.Agent, paused, "not yet: outside of its window"},
		"a host that says why, in a line": {says, slots.Agent, full, "all slots are held"},
		"a host that does not say why":    {silent, slots.Agent, paused, "not yet"},
		"a host that is not known":        {nil, slots.Agent, paused, "not yet"},
	} {
		v := slots.Verdict{Request: slots.Request{Client: slots.Client{ID: "n1", Type: c.by, Request: "r1"}}, Wait: c.wait}
		if got := reboots.GroupOf(c.hosts, nil).Why(v); got != c.want {
			t.Errorf("%s: Why() = %q, want %q", name, got, c.want)
		}
	}
}

func TestWhatAHolderWaitsFor(t *testing.T) {
	says := func(message string) func(*reboots.Host) {
		return func(h *reboots.Host) {
			h.Request.Message, h.Slot = "the host", &controlplane.RebootSlot{Message: message}
		}
	}
	emptying := func(blocked ...reboots.Blocked) map[string]reboots.Emptying {
		return map[string]reboots.Emptying{"n1": {Slot: controlplane.RebootSlot{Message: "this server"}, Blocked: blocked}}
	}
	for name, c := range map[string]struct {
		hosts    map[string]reboots.Host
		emptying map[string]reboots.Emptying
		want     string
	}{
		"a pod that cannot be evicted":    {hostThat(says("the leader")), emptying(reboots.Blocked{}), "this server"},
		"other pods":                      {hostThat(says("the leader")), emptying(), "the leader"},
		"on a server that does not lead":  {hostThat(says("the leader")), nil, "the leader"},
		"an answer without a message":     {hostThat(says("")), nil, "the host"},
		"no answer":                       {hostThat(func(h *reboots.Host) { h.Request.Message = "the host" }), nil, "the host"},
		"a host that is not known":        {nil, emptying(reboots.Blocked{}), ""},
		"a host that has another request": {hostThat(func(h *reboots.Host) { h.Request.ID, h.Request.Message = "r2", "the host" }), nil, ""},
		"a host that has no request now":  {hostThat(func(h *reboots.Host) { h.Request = nil }), nil, ""},
		"a host that says nothing at all": {hostThat(func(*reboots.Host) {}), nil, ""},
	} {
		holder := slots.Holder{Client: slots.Client{ID: "n1", Type: slots.Agent, Request: "r1"}, Node: "n1"}
		if got := reboots.GroupOf(c.hosts, c.emptying).WaitsFor(holder); got != c.want {
			t.Errorf("%s: WaitsFor() = %q, want %q", name, got, c.want)
		}
	}
}

func TestWhatIsSaidOfTheNodeOfAHolder(t *testing.T) {
	holder := slots.Holder{Node: "n1", UID: "u", BootID: "b"}
	for name, c := range map[string]struct {
		hosts  map[string]reboots.Host
		change func(*slots.Holder)
		want   string
	}{
		"the same boot":         {hostThat(func(*reboots.Host) {}), func(*slots.Holder) {}, "its Node is Ready, and has not booted since"},
		"another boot":          {hostThat(func(h *reboots.Host) { h.Ready = false }), func(h *slots.Holder) { h.BootID = "a" }, "its Node is not Ready, and has booted since"},
		"no boot ID":            {hostThat(func(*reboots.Host) {}), func(h *slots.Holder) { h.BootID = "" }, "its Node is Ready, and has not booted since"},
		"another Node":          {hostThat(func(*reboots.Host) {}), func(h *slots.Holder) { h.UID = "v" }, "its Node was deleted"},
		"no such Node":          {map[string]reboots.Host{}, func(*slots.Holder) {}, "its Node was deleted"},
		"Nodes are not known":   {nil, func(*slots.Holder) {}, ""},
		"a client that is none": {hostThat(func(*reboots.Host) {}), func(h *slots.Holder) { h.Node = "" }, ""},
	} {
		h := holder
		c.change(&h)
		if got := reboots.GroupOf(c.hosts, nil).Note(h); got != c.want {
			t.Errorf("%s: Note() = %q, want %q", name, got, c.want)
		}
	}
}

func TestWhenAHolderIsLate(t *testing.T) {
	h := slots.Holder{Since: metav1.NewTime(noon)}
	for after, want := range map[time.Duration]bool{time.Hour: false, time.Hour + time.Second: true} {
		if got := reboots.Late(h, noon.Add(after)); got != want {
			t.Errorf("Late() after %v = %t, want %t", after, got, want)
		}
	}
}
