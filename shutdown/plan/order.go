package plan

import (
	"slices"
	"time"

	"hostler.io/hostler/runtime"
)

// longestShare is longer than any phase that a host would have.
const longestShare = 30 * 24 * time.Hour

// order says of the containers of a pod that run which of them end before which, and how
// much of the phase each has to leave to those that end after it. Where one needs another
// that does not run, it counts as needing what that one needs. Those that need each
// other in a circle end together: nobody waits for a container that waits for it.
func order(pod runtime.Pod, planned []PlannedContainer, atMost time.Duration) {
	needs := needsOf(pod, planned)
	if len(needs) == 0 {
		return
	}
	share := fairShare(planned, needs, atMost)
	for i := range planned {
		c := &planned[i]
		c.Rest = rest(i, planned, needs, share)
		c.Grace.Duration = max(0, min(c.Grace.Duration, atMost-c.Rest))
		for _, needed := range needs[i] {
			n := &planned[needed]
			n.Waits = append(n.Waits, c.ID)
			n.After = append(n.After, c.Name)
		}
	}
}

// Within is the pod as it has to stop in the time that is really left, where some of its
// containers end after others.
func (p PlannedPod) Within(left time.Duration) PlannedPod {
	if !slices.ContainsFunc(p.Containers, func(c PlannedContainer) bool { return len(c.Waits) > 0 }) {
		return p
	}
	p.Containers = slices.Clone(p.Containers)
	for i := range p.Containers {
		c := &p.Containers[i]
		c.Grace.Duration, c.After, c.Waits, c.Rest = min(c.Own, left), nil, nil, 0
	}
	order(p.Pod, p.Containers, left)
	return p
}

// needsOf tells, by index, which of the planned containers each one needs, circles left
// out; empty where nobody needs any.
func needsOf(pod runtime.Pod, planned []PlannedContainer) map[int][]int {
	index := make(map[string]int, len(planned))
	for i, c := range planned {
		index[c.ID] = i
	}
	stopsBefore := make(map[string][]string)
	for _, c := range pod.Containers {
		if len(c.StopsBefore) > 0 {
			stopsBefore[c.ID] = c.StopsBefore
		}
	}
	if len(stopsBefore) == 0 {
		return nil
	}
	direct := make(map[int][]int)
	for i, c := range planned {
		seen := map[string]bool{c.ID: true}
		for ask := slices.Clone(stopsBefore[c.ID]); len(ask) > 0; ask = ask[1:] {
			id := ask[0]
			if seen[id] {
				continue
			}
			seen[id] = true
			if n, runs := index[id]; runs {
				direct[i] = append(direct[i], n)
			} else {
				ask = append(ask, stopsBefore[id]...)
			}
		}
	}
	needs := make(map[int][]int, len(direct))
	for i := range planned {
		for j := range planned {
			if i != j && !(reaches(direct, i, j) && reaches(direct, j, i)) {
				continue
			}
			for _, n := range direct[j] { // j is i, or in a circle with it
				if !reaches(direct, n, i) && !slices.Contains(needs[i], n) {
					needs[i] = append(needs[i], n)
				}
			}
		}
	}
	return needs
}

// reaches tells whether one container needs another, by whatever ways.
func reaches(needs map[int][]int, from, to int) bool {
	seen := map[int]bool{}
	for ask := []int{from}; len(ask) > 0; ask = ask[1:] {
		if ask[0] == to {
			return true
		}
		if !seen[ask[0]] {
			seen[ask[0]] = true
			ask = append(ask, needs[ask[0]]...)
		}
	}
	return false
}

// rest is what a container has to leave of its phase: the longest time that those may
// take which it needs, one after another, each its own grace and no more than a share.
func rest(i int, planned []PlannedContainer, needs map[int][]int, share time.Duration) time.Duration {
	known := make(map[int]time.Duration)
	var of func(int) time.Duration
	of = func(i int) time.Duration {
		if d, done := known[i]; done {
			return d
		}
		var longest time.Duration
		for _, n := range needs[i] {
			longest = max(longest, min(planned[n].Own, share)+of(n))
		}
		known[i] = longest
		return longest
	}
	return of(i)
}

// fairShare is the longest that each container may take, in whole seconds where that
// can be, so that those which end one after another fit into the phase: whoever needs
// less leaves it to the others.
func fairShare(planned []PlannedContainer, needs map[int][]int, atMost time.Duration) time.Duration {
	atMost = min(atMost, longestShare) // sums of what is longer could not be counted
	fits := func(share time.Duration) bool {
		for i := range planned {
			if min(planned[i].Own, share)+rest(i, planned, needs, share) > atMost {
				return false
			}
		}
		return true
	}
	if fits(atMost) {
		return atMost
	}
	// fits holds for less where it holds for more.
	unit := time.Second
	if !fits(unit) {
		unit = time.Millisecond
	}
	low, high := time.Duration(0), atMost/unit+1
	for low+1 < high {
		if middle := (low + high) / 2; fits(middle * unit) {
			low = middle
		} else {
			high = middle
		}
	}
	return low * unit
}
