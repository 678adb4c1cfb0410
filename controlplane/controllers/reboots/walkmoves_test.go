package reboots_test

import (
	"slices"

	"hostler.io/hostler/controlplane"
)

// moves returns all steps that are possible in a state.
func (w *walk) moves(s *state) []move {
	return slices.Concat(w.hostMoves(s), w.leaderMoves(s), w.secondMoves(s), w.chance(s))
}

// hostMoves returns the steps of the host.
func (w *walk) hostMoves(s *state) (list []move) {
	if to := *s; to.host.announce(&to.world, w.requests) {
		list = append(list, move{"host: writes and reads its Node", to})
	}
	waits := s.host.step == controlplane.RebootWaiting || s.host.step == controlplane.RebootGranted
	if waits && s.left.flaps > 0 {
		to := *s
		to.left.flaps--
		to.host.step = controlplane.RebootWanted
		list = append(list, move{"host: a check fails", to})
	}
	if s.host.step.Running() && s.host.step != controlplane.RebootVerifying && s.left.powerCut > 0 {
		to := *s
		to.left.powerCut--
		to.host.step = controlplane.RebootVerifying
		list = append(list, move{"host: boots after a power cut", to})
	}
	return list
}

// leaderMoves returns the steps of the leader.
func (w *walk) leaderMoves(s *state) (list []move) {
	for at, what := range []string{"the Node", "the record"} {
		to := *s
		switch {
		case s.leader.old[at] != nil && s.leader.old[at] != s.objects[at]:
			to.leader.old[at] = nil
			list = append(list, move{"leader: sees " + what + " again", to})
		case s.leader.old[at] == nil && s.objects[at] != nil && s.left.lags > 0:
			to.left.lags--
			to.leader.old[at] = s.objects[at]
			list = append(list, move{"leader: does not see " + what + " for a while", to})
		}
	}
	due := w.dueOf(s.copies())
	for _, does := range []string{toChange, toAnswer} {
		of := func(s *state) **operation {
			if does == toChange {
				return &s.leader.changes
			}
			return &s.leader.answers
		}
		o := *of(s)
		if o == nil && slices.Contains(due, does) {
			o = &operation{does: does, copies: s.copies()}
		}
		if o == nil {
			continue
		}
		list = append(list, w.step(s, "leader: ", *o, func(to *state, next *operation, _ bool) {
			*of(to) = next
			if does == toChange && to.objects[aRecord] != s.objects[aRecord] && to.left.losses == s.left.losses {
				to.leader.old[aRecord] = nil // the answer has the record
			}
		})...)
	}
	if s.left.failover > 0 {
		for _, o := range []*operation{nil, s.leader.changes, s.leader.answers} {
			to := *s
			to.left.failover--
			to.leader = leader{}
			if to.late = o; o != nil && w.transactions {
				continue // the term has ended
			}
			list = append(list, move{"leader: is replaced", to})
		}
	}
	if s.late != nil {
		list = append(list, w.step(s, "old leader: ", *s.late, func(to *state, next *operation, _ bool) { to.late = next })...)
	}
	return list
}

// step makes the next call of an operation, with and without a fault. record records the operation in the new state.
func (w *walk) step(s *state, who string, o operation, record func(to *state, next *operation, got bool)) (list []move) {
	for _, loses := range []bool{false, true} {
		if loses && s.left.losses == 0 {
			continue
		}
		to := *s
		next, got := w.advance(&to.world, o, loses)
		what := who + o.does
		if loses {
			if to.writes == s.writes {
				continue // no write
			}
			to.left.losses--
			what += ", the answer is lost"
		}
		record(&to, next, got)
		list = append(list, move{what, to})
	}
	return list
}

// secondMoves returns the steps of the second server.
func (w *walk) secondMoves(s *state) (list []move) {
	record := func(to *state, next *operation, got bool) {
		to.second = next
		to.x = to.x || got
	}
	if s.second != nil {
		if s.left.crashes > 0 {
			to := *s
			to.left.crashes--
			to.second = nil
			list = append(list, move{"second server: is killed", to})
		}
		return append(list, w.step(s, "second server: ", *s.second, record)...)
	}
	begin := func(does string, change func(*state)) {
		from := *s
		change(&from)
		list = append(list, w.step(&from, "second server: ", operation{does: does}, record)...)
	}
	if s.x {
		begin(toGiveBack, func(s *state) { s.x = false })
	} else if s.left.asks > 0 {
		begin(toRequest, func(s *state) { s.left.asks-- })
	}
	if s.left.releases > 0 {
		begin(toRelease, func(s *state) { s.left.releases-- })
	}
	return list
}

// chance returns what else happens: the Node is deleted and registered.
func (w *walk) chance(s *state) (list []move) {
	to := *s
	switch {
	case s.objects[aNode] == nil:
		to.register()
		list = append(list, move{"the Node is registered", to})
	case s.left.replaced > 0:
		to.left.replaced--
		to.objects[aNode] = nil
		list = append(list, move{"the Node is deleted", to})
	}
	return list
}
