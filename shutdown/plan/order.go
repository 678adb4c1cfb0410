package plan

import (
	"slices"
	"time"

	"hostler.io/hostler/runtime"
)

// longestShare is longer than any real phase.
const longestShare = 30 * 24 * time.Hour

// order sets, for the running containers of a pod, which containers stop before which. It also sets
// how much of the phase each must leave for those that stop after it. If a container needs one that
// does not run, it counts as needing what that one needs. Containers in a cycle stop at the same
// time, because none can wait for another.
func order(pod runtime.Pod, planned []PlannedContainer, atMost time.Duration) {
	ids := make([]string, len(planned))
	for i, c := range planned {
		ids[i] = c.ID
	}
	needs := Needs(pod, ids)
	if len(needs) == 0 {
		return
	}
	left := reserves(planned, needs, fairShare(planned, needs, atMost))
	for i := range planned {
		c := &planned[i]
		c.Reserve = left[i]
		c.Grace.Duration = max(0, min(c.Grace.Duration, atMost-c.Reserve))
		for _, needed := range needs[i] {
			n := &planned[needed]
			n.Waits = append(n.Waits, c.ID)
			n.After = append(n.After, c.Name)
		}
	}
}

// Within returns the pods of a phase with grace periods that fit into the remaining time, if some
// of their containers stop after others.
func Within(pods []PlannedPod, left time.Duration) []PlannedPod {
	waits := func(c PlannedContainer) bool { return len(c.Waits) > 0 }
	if !slices.ContainsFunc(pods, func(p PlannedPod) bool { return slices.ContainsFunc(p.Containers, waits) }) {
		return pods
	}
	pods = slices.Clone(pods)
	for i := range pods {
		p := &pods[i]
		p.Containers = slices.Clone(p.Containers)
		for i := range p.Containers {
			c := &p.Containers[i]
			c.Grace.Duration, c.After, c.Waits, c.Reserve = min(c.Given(), left), nil, nil, 0
		}
	}
	orderPods(pods, left)
	return pods
}

// orderPods is order for the pods of a phase. Pods whose containers need each other are ordered
// together.
func orderPods(pods []PlannedPod, atMost time.Duration) {
	all := make([]runtime.Pod, len(pods))
	for i, p := range pods {
		all[i] = p.Pod
	}
	groups := map[PodKey][]int{}
	for i, first := range Groups(all) {
		groups[first] = append(groups[first], i)
	}
	for _, group := range groups {
		var together runtime.Pod
		var planned []PlannedContainer
		for _, i := range group {
			together.Containers = append(together.Containers, pods[i].Pod.Containers...)
			planned = append(planned, pods[i].Containers...)
		}
		addUnitOrder(together.Containers)
		order(together, planned, atMost)
		for _, i := range group {
			n := copy(pods[i].Containers, planned)
			planned = planned[n:]
		}
	}
}

// addUnitOrder adds dependencies between containers from the stop order of their units.
func addUnitOrder(containers []runtime.Container) {
	for _, c := range containers {
		for i := range containers {
			if other := &containers[i]; slices.Contains(c.StopsAfter, other.Unit) && !slices.Contains(other.StopsBefore, c.ID) {
				other.StopsBefore = append(slices.Clone(other.StopsBefore), c.ID)
			}
		}
	}
}

// PodKey identifies a pod on a host.
type PodKey struct{ Runtime, ID string }

// Groups returns, for each pod, the first pod of its group. Pods whose containers need each other
// are in the same group.
func Groups(pods []runtime.Pod) []PodKey {
	needs := podNeeds(pods)
	first := make([]int, len(pods)) // for each pod, an earlier one of its group, or itself
	for i := range first {
		first[i] = i
	}
	find := func(i int) int {
		for first[i] != i {
			first[i] = first[first[i]]
			i = first[i]
		}
		return i
	}
	for _, n := range needs {
		a, b := find(n.needing), find(n.needed)
		first[max(a, b)] = min(a, b)
	}
	keys := make([]PodKey, len(pods))
	for i := range pods {
		p := pods[find(i)]
		keys[i] = PodKey{p.Runtime, p.ID}
	}
	return keys
}

// podNeed says that a container of pod needing needs one of pod needed, or that its unit is ordered
// after that one's. Pods are indexes in a list.
type podNeed struct {
	needing, needed int
	alive           bool // the container that needs the other one is running
}

func podNeeds(pods []runtime.Pod) (needs []podNeed) {
	type id struct{ runtime, container string }
	of := map[id]int{}
	type ofUnit struct {
		pod   int
		alive bool
	}
	units := map[string][]ofUnit{}
	for i, p := range pods {
		for _, c := range p.Containers {
			of[id{p.Runtime, c.ID}] = i
			if c.Unit != "" {
				units[c.Unit] = append(units[c.Unit], ofUnit{i, Alive(c)})
			}
		}
	}
	for i, p := range pods {
		for _, c := range p.Containers {
			for _, needed := range c.StopsBefore {
				if n, there := of[id{p.Runtime, needed}]; there && n != i {
					needs = append(needs, podNeed{i, n, Alive(c)})
				}
			}
			for _, unit := range c.StopsAfter {
				for _, other := range units[unit] {
					if other.pod != i {
						needs = append(needs, podNeed{other.pod, i, other.alive})
					}
				}
			}
		}
	}
	return needs
}

// raise raises the priority of pods that others need to the highest priority of these others, so
// that the others stop first.
func raise(pods []runtime.Pod, priorities []int32) {
	needs := podNeeds(pods)
	for changed := true; changed; {
		changed = false
		for _, n := range needs {
			if n.alive && priorities[n.needed] < priorities[n.needing] {
				priorities[n.needed], changed = priorities[n.needing], true
			}
		}
	}
}

// Needs returns, by index, which of the containers with these IDs each one needs, without cycles;
// empty if there are no dependencies. If a container needs one that is not in the list, it counts
// as needing what that one needs.
func Needs(pod runtime.Pod, ids []string) map[int][]int {
	index := make(map[string]int, len(ids))
	for i, id := range ids {
		index[id] = i
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
	for i, id := range ids {
		seen := map[string]bool{id: true}
		for ask := slices.Clone(stopsBefore[id]); len(ask) > 0; ask = ask[1:] {
			id := ask[0]
			if seen[id] {
				continue
			}
			seen[id] = true
			if n, among := index[id]; among {
				direct[i] = append(direct[i], n)
			} else {
				ask = append(ask, stopsBefore[id]...)
			}
		}
	}
	return withoutCycles(direct, len(ids))
}

// withoutCycles replaces the dependencies of all containers of a cycle by what any of them needs
// outside the cycle.
func withoutCycles(direct map[int][]int, count int) map[int][]int {
	cycle := cycles(direct, count)
	outside, taken := make(map[int][]int), make(map[[2]int]bool) // by cycle
	for i := range count {
		for _, n := range direct[i] {
			if of := cycle[i]; of != cycle[n] && !taken[[2]int{of, n}] {
				taken[[2]int{of, n}] = true
				outside[of] = append(outside[of], n)
			}
		}
	}
	needs := make(map[int][]int, len(direct))
	for i := range count {
		if n := outside[cycle[i]]; len(n) > 0 {
			needs[i] = n
		}
	}
	return needs
}

// cycles returns the cycle of each container, named by one of its members (Tarjan's algorithm for
// strongly connected components).
func cycles(direct map[int][]int, count int) []int {
	cycle, place, lowest := make([]int, count), make([]int, count), make([]int, count)
	var stack []int // visited, and not yet in a cycle
	visited := 0
	var visit func(int)
	visit = func(i int) {
		visited++
		place[i], lowest[i], cycle[i] = visited, visited, -1
		stack = append(stack, i)
		for _, n := range direct[i] {
			switch {
			case place[n] == 0:
				visit(n)
				lowest[i] = min(lowest[i], lowest[n])
			case cycle[n] < 0:
				lowest[i] = min(lowest[i], place[n])
			}
		}
		for lowest[i] == place[i] && cycle[i] < 0 {
			last := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			cycle[last] = i
		}
	}
	for i := range count {
		if place[i] == 0 {
			visit(i)
		}
	}
	return cycle
}

// reserves returns how much of the phase each container must leave for the containers that it
// needs. Those stop one after another, each within its own grace period and at most share.
func reserves(planned []PlannedContainer, needs map[int][]int, share time.Duration) []time.Duration {
	return Heaviest(needs, len(planned), func(i int) time.Duration { return min(planned[i].Given(), share) })
}

// Heaviest returns, for each of count nodes, the heaviest path through the nodes that it needs.
// needs must have no cycles.
func Heaviest[W int | time.Duration](needs map[int][]int, count int, weight func(int) W) []W {
	known, done := make([]W, count), make([]bool, count)
	var of func(int) W
	of = func(i int) W {
		if done[i] {
			return known[i]
		}
		for _, n := range needs[i] {
			known[i] = max(known[i], weight(n)+of(n))
		}
		done[i] = true
		return known[i]
	}
	for i := range count {
		of(i)
	}
	return known
}

// fairShare returns the longest time that each container may take, so that containers that stop one
// after another fit into the phase. It is in whole seconds if possible. Containers that need less
// leave the rest to the others.
func fairShare(planned []PlannedContainer, needs map[int][]int, atMost time.Duration) time.Duration {
	atMost = min(atMost, longestShare) // avoids an overflow of sums
	fits := func(share time.Duration) bool {
		for i, left := range reserves(planned, needs, share) {
			if min(planned[i].Given(), share)+left > atMost {
				return false
			}
		}
		return true
	}
	if fits(atMost) {
		return atMost
	}
	// If fits is true for a value, it is true for all smaller ones.
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
