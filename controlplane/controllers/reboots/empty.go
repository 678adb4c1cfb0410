package reboots

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/internal/few"
	"hostler.io/hostler/internal/sanitize"
)

const (
	// emptyTime is how long a Node may take to become empty, plus the longest grace period of its pods.
	emptyTime = time.Hour
	// evictPause is the pause after a refused eviction of a pod.
	evictPause = 10 * time.Second
	// mostPods bounds the names of pods in a message.
	mostPods = 5
	// mostMessage bounds a message on a Node, in bytes.
	mostMessage = 2 << 10
)

// Emptying is the state of a Node that the server empties for its host.
type Emptying struct {
	Slot    controlplane.RebootSlot // answer on the Node
	Left    []podcache.Pod          // pods that must leave the Node
	Blocked []Blocked               // pods of Left whose eviction was refused
	Evict   []Eviction
	Next    time.Time // time of the next eviction; zero if none is planned
}

// Blocked is a pod that cannot be evicted now.
type Blocked struct {
	Pod     string
	UID     types.UID
	Node    string
	Message string // error message of the API server
	Since   time.Time
	Until   time.Time // time of the next attempt
	evented bool      // an Event about the pod was published
}

// Eviction evicts a pod from a Node. The annotation of the Node must be unchanged.
type Eviction struct {
	Pod     podcache.Pod
	NodeUID types.UID
	request string // request annotation of the Node
}

// Object implements executor.Action.
func (e Eviction) Object() string { return podcache.Object(e.Pod.Name) }

// Version implements executor.Action.
func (e Eviction) Version() string { return e.Pod.Version }

// empty decides about a Node whose host drains. slot is the answer without the state of the pods.
func (f Facts) empty(h Host, slot controlplane.RebootSlot, now time.Time) Emptying {
	e := Emptying{Slot: slot}
	if !h.Request.EmptiedByServer || slot.Emptied || slot.Failed {
		return e
	}
	if f.Pods == nil {
		e.fail("the store of the servers has no pods that they could evict")
		return e
	}
	pods, err := f.Pods(h.Name)
	if err != nil {
		e.say("pods", err.Error())
		return e
	}
	longest := time.Duration(0)
	for _, pod := range pods {
		if !pod.Stays && !pod.Ended {
			e.Left, longest = append(e.Left, pod), max(longest, pod.Grace)
		}
	}
	e.judge(f, h, now)
	switch taken := now.Sub(h.StepSince); {
	case slot.Cordoned && !h.Unschedulable:
		e.fail("the Node was uncordoned before it was empty")
	case taken > emptyTime+longest:
		e.fail(fmt.Sprintf("not empty after %s: %s", taken.Round(time.Minute), e.pods()))
	case !h.Unschedulable:
		e.Slot.Cordoned = true
		e.say("emptying", e.pods())
	case len(e.Left) == 0:
		e.say("", "")
		e.Slot.Emptied = true
	case len(e.Blocked) > 0:
		e.say("blocked", e.pods())
	default:
		e.say("emptying", e.pods())
	}
	if !h.Unschedulable || e.Slot.Failed {
		e.Evict = nil
	}
	return e
}

// judge finds the pods that must be evicted now, and those that cannot.
func (e *Emptying) judge(f Facts, h Host, now time.Time) {
	for _, pod := range e.Left {
		b, blocked := f.Blocked[pod.Name]
		switch blocked = blocked && b.UID == pod.UID; {
		case pod.Deleting:
			continue
		case blocked && now.Before(b.Until):
			if e.Next.IsZero() || b.Until.Before(e.Next) {
				e.Next = b.Until
			}
		default:
			e.Evict = append(e.Evict, Eviction{pod, h.UID, h.texts.request})
		}
		if blocked {
			e.Blocked = append(e.Blocked, b)
		}
	}
	slices.SortFunc(e.Blocked, func(a, b Blocked) int { return strings.Compare(a.Pod, b.Pod) })
}

// say sets reason and message of the answer.
func (e *Emptying) say(why, message string) {
	e.Slot.Why, e.Slot.Message = why, sanitize.Text(message, mostMessage)
}

func (e *Emptying) fail(message string) {
	e.Slot.Failed = true
	e.say("failed", message)
}

// pods lists the pods that are left: first the blocked ones, with the reason.
func (e *Emptying) pods() string {
	var names []string
	for _, b := range e.Blocked {
		names = append(names, b.Pod+" ("+b.Message+")")
	}
	for _, pod := range e.Left {
		if !slices.ContainsFunc(e.Blocked, func(b Blocked) bool { return b.Pod == pod.Name }) {
			names = append(names, pod.Name)
		}
	}
	blocked := ""
	if len(e.Blocked) > 0 {
		blocked = fmt.Sprintf(", of them cannot be evicted now: %d", len(e.Blocked))
	}
	return strings.TrimSuffix(fmt.Sprintf("pods left on the Node: %d%s: %s", len(e.Left), blocked, few.Names(names, mostPods)), ": ")
}
