package slots

import (
	"fmt"
	"slices"
	"time"
)

// AgentRequest is the request of an agent, as it stands on its Node.
type AgentRequest struct {
	Client
	Paused bool
}

// TakeIn takes in the requests of all agents of a group, in the order in which they were made. One that waits
// already keeps its place, and those of agents that have no request any more lose theirs. If there are too
// many, paused ones have no place.
func (s *State) TakeIn(requests []AgentRequest, now time.Time) {
	current := make(map[string]AgentRequest, len(requests))
	for _, r := range requests {
		r.Reason = Shorten(r.Reason)
		current[r.ID] = r
	}
	s.Waiting = slices.DeleteFunc(slices.Clone(s.Waiting), func(r Request) bool { return r.By == Agent && current[r.ID].Request != r.Client.Request })
	for i, r := range s.Waiting {
		if r.By == Agent {
			s.Waiting[i].Client, s.Waiting[i].Paused = current[r.ID].Client, current[r.ID].Paused
		}
	}
	for _, r := range requests {
		if s.Holder(r.ID) != nil || s.Request(r.ID) != nil || s.full() && (r.Paused || !s.dropPaused()) {
			continue
		}
		s.Requests++
		s.Waiting = append(s.Waiting, Request{Client: current[r.ID].Client, Number: s.Requests, Since: stamp(now), Asked: stamp(now), Paused: r.Paused})
	}
}

// full reports whether no agent has a place among those that wait.
func (s *State) full() bool {
	agents := 0
	for _, r := range s.Waiting {
		if r.By == Agent {
			agents++
		}
	}
	return agents >= mostAgents || len(s.Waiting) >= mostWaiting
}

// dropPaused takes the place of the newest request that is paused. It reports whether there was one.
func (s *State) dropPaused() bool {
	for i, r := range slices.Backward(s.Waiting) {
		if r.Paused {
			s.Waiting = slices.Delete(s.Waiting, i, i+1)
			return true
		}
	}
	return false
}

// Grant gives a slot to each request of agents that gets one now, and returns them.
func (s *State) Grant(p Policy, nodes Nodes, now time.Time) []Client {
	var granted []Client
	for _, v := range s.Plan(p, nodes, now, "") {
		if _, is := nodes[v.ID]; v.Wait == nil && v.By == Agent && is {
			s.grant(v.Request, nodes, now)
			granted = append(granted, v.Client)
		}
	}
	return granted
}

// WaitOf says why a request of an agent gets no slot, that is not among those that wait.
func (s *State) WaitOf(id string) Wait {
	if s.Holder(id) != nil || s.Request(id) != nil {
		return Wait{OtherClient, "an earlier request of this host, or one by FleetLock, has not ended yet"}
	}
	return Wait{QueueFull, fmt.Sprintf("%d requests wait already, this one is recorded later", len(s.Waiting))}
}
