//go:build integration

package machine_test

import (
	"cmp"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"hostler.io/hostler/test/machine"
)

// forcedBed is the bed that the environment has every scenario run in, on both
// releases: `make test-machine` names the VM. Empty for the usual ones.
func forcedBed() machine.Bed { return machine.Bed(os.Getenv("HOSTLER_TEST_BED")) }

// queue has so many places for machines, and gives them to those that need one longest first.
type queue struct {
	mu      sync.Mutex
	free    int
	waiting []waiting // whose turn is first, first
}

type waiting struct {
	rank int
	turn chan struct{} // closed when it has a place
}

// queues are those of the beds. A VM keeps a processor at work: more of them than there are
// would only be in each other's way. A container hardly needs one: it waits for graces to end.
var queues = map[machine.Bed]*queue{
	machine.VM:        {free: runtime.NumCPU()},
	machine.Container: {free: runtime.NumCPU()},
}

// longest are the stories that take longest, the longest first: what comes last keeps one
// processor at work.
var longest = []string{"TestAnnouncedShutdowns", "TestShutdownsThatBypassLogind", "TestACrowd", "TestCancellations", "TestInterruptions", "TestTheTruthAboutProtection", "TestAPackageComesAndGoes", "TestLogindsMaximum", "TestAnAgentThatEndsTouchesNoContainer"}

// besideOthers goes on, in parallel to other stories, when there is a place for a machine.
func besideOthers(t *testing.T, bed machine.Bed) {
	t.Helper()
	t.Parallel()
	story, _, _ := strings.Cut(t.Name(), "/")
	rank := slices.Index(longest, story)
	if rank < 0 {
		rank = len(longest)
	}
	q := queues[bed]
	<-q.enter(rank)
	t.Cleanup(q.leave) // when the machine is gone
}

func (q *queue) enter(rank int) (turn <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := waiting{rank, make(chan struct{})}
	if q.free > 0 {
		q.free--
		close(w.turn)
		return w.turn
	}
	q.waiting = append(q.waiting, w)
	slices.SortStableFunc(q.waiting, func(a, b waiting) int { return cmp.Compare(a.rank, b.rank) })
	return w.turn
}

func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.free++
		return
	}
	close(q.waiting[0].turn)
	q.waiting = q.waiting[1:]
}

// onBothDebians runs a scenario on both releases, in the bed that it usually
// runs in, unless the environment forces another one.
func onBothDebians(t *testing.T, usual machine.Bed, scenario func(t *testing.T, o machine.Options)) {
	t.Helper()
	onDebians(t, machine.Releases(), usual, scenario)
}

// onDebians is onBothDebians on some of them.
func onDebians(t *testing.T, releases []machine.Release, usual machine.Bed, scenario func(t *testing.T, o machine.Options)) {
	t.Helper()
	t.Parallel()
	bed := cmp.Or(forcedBed(), usual)
	for _, release := range releases {
		t.Run("debian"+string(release)+"-"+string(bed), func(t *testing.T) {
			besideOthers(t, bed)
			scenario(t, machine.Options{Release: release, Bed: bed})
		})
	}
}

// eachMachine tells a story in a container of each release, and in a VM of one.
func eachMachine(t *testing.T, inVM machine.Release, story func(t *testing.T, o machine.Options)) {
	t.Helper()
	t.Parallel()
	var machines []machine.Options
	for _, release := range machine.Releases() {
		for _, bed := range []machine.Bed{machine.Container, machine.VM} {
			usual := bed == machine.Container || release == inVM
			if forced := forcedBed(); forced == bed || forced == "" && usual {
				machines = append(machines, machine.Options{Release: release, Bed: bed})
			}
		}
	}
	for _, o := range machines {
		t.Run("debian"+string(o.Release)+"-"+string(o.Bed), func(t *testing.T) {
			besideOthers(t, o.Bed)
			story(t, o)
		})
	}
}

// inVM tells a story that a container cannot, for it shares with its host what
// the story changes: in a VM of one release, or of each where the environment
// names that bed.
func inVM(t *testing.T, usual machine.Release, story func(t *testing.T, o machine.Options)) {
	t.Helper()
	t.Parallel()
	for _, release := range machine.Releases() {
		if release == usual || forcedBed() == machine.VM {
			t.Run("debian"+string(release)+"-vm", func(t *testing.T) {
				besideOthers(t, machine.VM)
				story(t, machine.Options{Release: release, Bed: machine.VM})
			})
		}
	}
}

// inBrief tells whether a story is to be shorter than it could be: in a VM, where
// all takes many times as long, as long as nobody asks for it.
func inBrief(o machine.Options) bool { return o.Bed == machine.VM && forcedBed() == "" }
