package slots

import (
	"slices"
	"time"
)

// AgentRequest is the request of an agent, as the annotation of its Node has it.
type AgentRequest struct {
	Client
	Paused bool
}

// UpdateQueue updates the queue with the current requests of all agents of a group, oldest first. A request that
// already waits keeps its place; one that is not current is removed. One that pauses while a slot is kept free for it
// goes to the end: else a host could keep others from slots for ever, and never hold one. In a full queue, a new request
// that is not paused replaces a paused one.
func (s *State) UpdateQueue(requests []AgentRequest, p Policy, nodes Nodes, now time.Time) {
	kept := map[string]bool{}
	for _, v := range s.Plan(p, nodes, now, "") {
		kept[v.ID] = v.Wait == nil || v.Wait.Reason == Unconfirmed
	}
	current := make(map[string]AgentRequest, len(requests))
	for _, r := range requests {
		r.Reason = Shorten(r.Reason)
		current[r.ID] = r
	}
	s.forget(now)
	s.Waiting = slices.DeleteFunc(s.Waiting, func(r Request) bool {
		return r.Type == Agent && (current[r.ID].Request != r.Client.Request || current[r.ID].Paused && kept[r.ID])
	})
	for i, r := range s.Waiting {
		if r.Type == Agent {
			s.Waiting[i].Client, s.Waiting[i].Paused = current[r.ID].Client, current[r.ID].Paused
		}
	}
	for _, r := range requests {
		if s.Holder(r.ID) != nil || s.Request(r.ID) != nil || s.waiting(Agent) >= mostAgents && (r.Paused || !s.dropPaused()) {
			continue
		}
		s.Requests++
		s.Waiting = append(s.Waiting, Request{Client: current[r.ID].Client, Number: s.Requests, Since: stamp(now), Asked: stamp(now), Paused: r.Paused})
	}
}

// waiting returns how many clients of a type wait. Those of one type take no place from the others.
func (s *State) waiting(by ClientType) (n int) {
	for _, r := range s.Waiting {
		if r.Type == by {
			n++
		}
	}
	return n
}

// dropPaused removes the newest paused request from the queue. It reports whether there was one.
func (s *State) dropPaused() bool {
	for i, r := range slices.Backward(s.Waiting) {
		if r.Paused {
			s.Waiting = slices.Delete(s.Waiting, i, i+1)
			return true
		}
	}
	return false
}

// Adopt gives a slot to an agent that reboots already, also if there is none left. It does nothing if the client has
// a slot, or if its Node does not exist.
func (s *State) Adopt(c Client, nodes Nodes, now time.Time) {
	if _, is := nodes[c.ID]; !is || s.Holder(c.ID) != nil {
		return
	}
	c.Reason = Shorten(c.Reason)
	s.Requests++
	s.grant(Request{Client: c, Number: s.Requests}, nodes, now)
}

// Grant gives a slot to each waiting agent that may have one now, and returns these agents.
func (s *State) Grant(p Policy, nodes Nodes, now time.Time) []Client {
	var granted []Client
	for _, v := range s.Plan(p, nodes, now, "") {
		if _, is := nodes[v.ID]; v.Wait == nil && v.Type == Agent && is {
			s.grant(v.Request, nodes, now)
			granted = append(granted, v.Client)
		}
	}
	return granted
}

// OlderFirst is the message of a request behind many older ones. It stays true while these change.
const OlderFirst = "older requests of the group wait too; on a server, `hostler fleet slots` lists them"

// WaitOf says why an agent gets no slot whose request is not in the queue.
func (s *State) WaitOf(id string) Wait {
	if s.Holder(id) != nil || s.Request(id) != nil {
		return Wait{OtherClient, "an earlier request of this host, or one by FleetLock, has not ended yet"}
	}
	return Wait{QueueFull, OlderFirst}
}
