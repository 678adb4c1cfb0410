package reboots_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/slots"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// scene is one host n1 of a group with one slot.
type scene struct {
	step          controlplane.RebootStep
	request       string // ID of the request; "" means r1
	noRequest     bool
	slot          *controlplane.RebootSlot
	holds         string // ID of the request that holds the slot; empty for none
	full          bool   // another client holds it
	unschedulable bool
	byHost        bool // the host stops its pods itself
	since         time.Duration
	said          time.Duration // since when the Node has its slot
	pods          []podcache.Pod
	podsErr       error
	noPods        bool                     // the store has no pods
	blocked       map[string]time.Duration // retry time of each blocked pod, counted from noon
	change        func(*reboots.Facts)     // may be nil
}

func pod(name string) podcache.Pod {
	return podcache.Pod{Name: "ns/" + name, UID: types.UID("uid-" + name), Node: "n1", Version: "1", Grace: 30 * time.Second}
}

func with(p podcache.Pod, change func(*podcache.Pod)) podcache.Pod { change(&p); return p }

func granted() *metav1.Time { return &metav1.Time{Time: noon.Add(-time.Hour)} }

// facts converts the scene.
func (s scene) facts() reboots.Facts {
	h := reboots.Host{Node: slots.Node{Name: "n1", UID: "uid-1", Group: "default", Ready: true}, Slot: s.slot, Unschedulable: s.unschedulable, StepSince: noon.Add(-s.since), SlotSince: noon.Add(-s.said)}
	if !s.noRequest {
		id := s.request
		if id == "" {
			id = "r1"
		}
		h.Request = &controlplane.RebootRequest{ID: id, Step: s.step, Reason: "kernel", EmptiedByServer: !s.byHost}
	}
	f := reboots.Facts{
		Hosts: map[string]reboots.Host{"n1": h}, Policies: reboots.Policies{"default": {Group: "default", Slots: 1}},
		Groups: map[string]slots.Known{}, Blocked: map[string]reboots.Blocked{}, Object: func(string) string { return "slots/default" },
	}
	f.Groups["default"] = slots.Known{Version: "3"}
	if s.full {
		f.Groups["default"] = slots.Known{Version: "3", State: slots.State{Holders: []slots.Holder{{Client: slots.Client{ID: "x", Type: slots.FleetLock}}}}}
	}
	if s.holds != "" {
		f.Groups["default"] = slots.Known{Version: "3", State: slots.State{Holders: []slots.Holder{{Client: slots.Client{ID: "n1", Type: slots.Agent, Request: s.holds}, Number: 7, Since: *granted(), Node: "n1", UID: "uid-1"}}}}
	}
	if !s.noPods {
		f.Pods = func(string) ([]podcache.Pod, error) { return s.pods, s.podsErr }
	}
	for name, until := range s.blocked {
		f.Blocked["ns/"+name] = reboots.Blocked{Pod: "ns/" + name, UID: types.UID("uid-" + name), Message: "The disruption budget web needs 2 healthy pods and has 2 currently", Until: noon.Add(until)}
	}
	if s.change != nil {
		s.change(&f)
	}
	return f
}

// outcome is a decision in one line: the slot, whether the Node is unschedulable, and which pods are evicted.
func outcome(d reboots.Decision) string {
	out := "-"
	for _, a := range d.Answers {
		out = "no slot"
		if s := a.Slot; s != nil {
			out = s.ID
			for name, is := range map[string]bool{" granted": s.Granted != nil, " cordoned": s.Cordoned, " emptied": s.Emptied, " failed": s.Failed} {
				if is {
					out += name
				}
			}
			parts := strings.Split(out, " ")
			slices.Sort(parts[1:])
			out = strings.Join(parts, " ") + " " + s.Message
		}
		out += fmt.Sprintf("; unschedulable %t", a.Unschedulable)
	}
	for _, c := range d.Changes {
		for _, o := range c.Done {
			out += "; free " + o.ID
		}
		for _, o := range c.Released {
			out += "; free released " + o.ID
		}
		for _, a := range c.Adopted {
			out += "; adopt " + a.ID
		}
		if len(c.Steps) == 0 {
			out += "; change nothing"
		}
	}
	for _, e := range d.Evictions {
		out += "; evict " + e.Pod.Name
	}
	return out
}

func TestWhatANodeSays(t *testing.T) {
	slot := func(change ...func(*controlplane.RebootSlot)) *controlplane.RebootSlot {
		s := &controlplane.RebootSlot{ID: "r1", Granted: granted()}
		for _, c := range change {
			c(s)
		}
		return s
	}
	cordoned := func(s *controlplane.RebootSlot) { s.Cordoned, s.Why = true, "emptying" }
	emptied := func(s *controlplane.RebootSlot) { s.Emptied, s.Why = true, "" }
	failed := func(s *controlplane.RebootSlot) { s.Failed, s.Message = true, "not empty" }
	const draining, waiting = controlplane.RebootDraining, controlplane.RebootWaiting
	a, b := pod("a"), pod("b")
	daemon, leaves, over := with(pod("daemon"), func(p *podcache.Pod) { p.Stays = true }), with(pod("leaves"), func(p *podcache.Pod) { p.Deleting = true }), with(pod("over"), func(p *podcache.Pod) { p.Ended = true })
	ended := func(id string) *controlplane.RebootSlot {
		return &controlplane.RebootSlot{ID: id, Slot: "default/7", Why: "over"}
	}
	released := &controlplane.RebootSlot{ID: "r1", Slot: "default/7", Why: "lost"}
	const rebooting = controlplane.RebootRebooting
	named := func(s *controlplane.RebootSlot) { s.Slot = "default/7" }
	unread := func(f *reboots.Facts) {
		k := f.Groups["default"]
		k.Err = errors.New("away")
		f.Groups["default"] = k
	}
	restored := func(f *reboots.Facts) { f.Restored = true }
	slow := with(pod("slow"), func(p *podcache.Pod) { p.Grace = time.Hour })
	const says = "The disruption budget web needs 2 healthy pods and has 2 currently"
	for name, c := range map[string]struct {
		scene
		want string
	}{
		"a slot is reported":                          {scene{step: waiting, holds: "r1"}, "r1 granted ; unschedulable false"},
		"once":                                        {scene{step: waiting, holds: "r1", slot: slot()}, "-"},
		"one of an earlier request ends":              {scene{step: waiting, holds: "r0"}, "r0 the host did not need the slot any more; unschedulable false"},
		"what an earlier request got ends":            {scene{step: waiting, holds: "r0", slot: &controlplane.RebootSlot{ID: "r0", Granted: granted(), Cordoned: true}, unschedulable: true}, "r0 the host did not need the slot any more; unschedulable false"},
		"an ended slot is freed":                      {scene{step: waiting, holds: "r0", slot: ended("r0")}, "-; free n1"},
		"also one of the present request":             {scene{step: waiting, holds: "r1", slot: ended("r1")}, "-; free n1"},
		"and one of a host that does not wait":        {scene{step: controlplane.RebootWanted, holds: "r1", slot: ended("r1")}, "-; free n1"},
		"the server that releases a slot frees it":    {scene{step: draining, holds: "r1", slot: released, pods: []podcache.Pod{a}}, "-"},
		"or the leader does, if it has stopped":       {scene{step: draining, holds: "r1", slot: released, pods: []podcache.Pod{a}, said: 30 * time.Second}, "-; free released n1"},
		"the end of another slot says nothing of it":  {scene{step: waiting, holds: "r1", slot: &controlplane.RebootSlot{ID: "r1", Slot: "default/8", Why: "over"}}, "r1 granted ; unschedulable false"},
		"an end is forgotten once it is free":         {scene{step: controlplane.RebootWanted, slot: ended("r1")}, "no slot; unschedulable false"},
		"nothing is said to one that waits not":       {scene{step: controlplane.RebootWanted}, "-"},
		"a slot that was released is lost":            {scene{step: draining, slot: slot(cordoned), unschedulable: true, pods: []podcache.Pod{a}}, "r1 the slot was released; unschedulable false"},
		"but the cordon stays while the host is down": {scene{step: controlplane.RebootRebooting, slot: slot(cordoned), unschedulable: true}, "r1 cordoned the slot was released; unschedulable true"},
		"a Node is cordoned first":                    {scene{step: draining, holds: "r1", slot: slot(), pods: []podcache.Pod{a}}, "r1 cordoned granted pods left on the Node: 1: ns/a; unschedulable true"},
		"a person's cordon is not hostler's":          {scene{step: draining, holds: "r1", slot: slot(), unschedulable: true, pods: []podcache.Pod{a}}, "r1 granted pods left on the Node: 1: ns/a; unschedulable true; evict ns/a"},
		"then pods are evicted":                       {scene{step: draining, holds: "r1", slot: slot(cordoned), unschedulable: true, pods: []podcache.Pod{a, b, daemon, leaves, over}}, "-; evict ns/a; evict ns/b"},
		"a blocked one is named":                      {scene{step: draining, holds: "r1", slot: slot(cordoned), unschedulable: true, pods: []podcache.Pod{a, b}, blocked: map[string]time.Duration{"b": time.Second}}, "r1 cordoned granted pods left on the Node: 2, of them cannot be evicted now: 1: ns/b (" + says + "), ns/a; unschedulable true; evict ns/a"},
		"and tried again":                             {scene{step: draining, holds: "r1", slot: slot(cordoned, func(s *controlplane.RebootSlot) { s.Why = "blocked" }), unschedulable: true, pods: []podcache.Pod{b}, blocked: map[string]time.Duration{"b": 0}}, "-; evict ns/b"},
		"an empty Node is reported":                   {scene{step: draining, holds: "r1", slot: slot(cordoned), unschedulable: true, pods: []podcache.Pod{daemon, over}}, "r1 cordoned emptied granted ; unschedulable true"},
		"once it is cordoned":                         {scene{step: draining, holds: "r1", slot: slot(), pods: []podcache.Pod{daemon}}, "r1 cordoned granted pods left on the Node: 0; unschedulable true"},
		"it stays so":                                 {scene{step: draining, holds: "r1", slot: slot(cordoned, emptied), unschedulable: true, pods: []podcache.Pod{a}}, "-"},
		"also while the host is down":                 {scene{step: controlplane.RebootRebooting, holds: "r1", slot: slot(cordoned, emptied), unschedulable: true}, "-"},
		"pods that are not known are no pods gone":    {scene{step: draining, holds: "r1", slot: slot(cordoned), unschedulable: true, podsErr: errors.New("reading pods")}, "r1 cordoned granted reading pods; unschedulable true"},
		"a Node that a person uncordons":              {scene{step: draining, holds: "r1", slot: slot(cordoned), pods: []podcache.Pod{a}}, "r1 cordoned failed granted the Node was uncordoned before it was empty; unschedulable false"},
		"an hour is not too long with its grace":      {scene{step: draining, holds: "r1", slot: slot(cordoned), unschedulable: true, since: 110 * time.Minute, pods: []podcache.Pod{with(slow, func(p *podcache.Pod) { p.Deleting = true })}}, "-"},
		"but more is":                                 {scene{step: draining, holds: "r1", slot: slot(cordoned), unschedulable: true, since: 121 * time.Minute, pods: []podcache.Pod{slow}}, "r1 cordoned failed granted not empty after 2h1m0s: pods left on the Node: 1: ns/slow; unschedulable true"},
		"nothing is evicted after that":               {scene{step: draining, holds: "r1", slot: slot(cordoned, failed), unschedulable: true, since: 3 * time.Hour, pods: []podcache.Pod{a}}, "-"},
		"then the slot ends":                          {scene{step: controlplane.RebootWanted, holds: "r1"}, "r1 the host did not need the slot any more; unschedulable false"},
		"a host that is done needs it never again":    {scene{step: controlplane.RebootDone, holds: "r1"}, "-; free n1"},
		"a host that gives up is uncordoned":          {scene{step: controlplane.RebootWanted, holds: "r1", slot: slot(cordoned, failed), unschedulable: true}, "r1 the host did not need the slot any more; unschedulable false"},
		"one that waits again at once, too":           {scene{step: waiting, holds: "r1", slot: slot(cordoned, failed), unschedulable: true}, "r1 granted ; unschedulable false"},
		"and one that is back":                        {scene{step: controlplane.RebootDone, holds: "r1", slot: slot(cordoned, emptied), unschedulable: true}, "no slot; unschedulable false"},
		"and one without a request":                   {scene{noRequest: true, slot: slot(cordoned, emptied), unschedulable: true}, "no slot; unschedulable false"},
		"a person's cordon stays":                     {scene{step: controlplane.RebootDone, holds: "r1", slot: slot(emptied), unschedulable: true}, "no slot; unschedulable true"},
		"a host that drains itself":                   {scene{step: draining, holds: "r1", slot: slot(), byHost: true, pods: []podcache.Pod{a}}, "-"},
		"a store without pods":                        {scene{step: draining, holds: "r1", slot: slot(), noPods: true}, "r1 failed granted the store of the servers has no pods that they could evict; unschedulable false"},
		"a slot of a group that cannot be read":       {scene{step: rebooting, slot: slot(), byHost: true, change: unread}, "-"},
		"a slot of another Node of that name":         {scene{step: waiting, holds: "r1", change: func(f *reboots.Facts) { unread(f); f.Groups["default"].Holders[0].UID = "uid-0" }}, "r1 an earlier request of this host, or one by FleetLock, has not ended yet; unschedulable false"},
		"a host that gets a slot in a moment":         {scene{step: waiting, slot: &controlplane.RebootSlot{ID: "r1", Why: "turn"}}, "-"},
		"an answer to its earlier request":            {scene{step: waiting, slot: &controlplane.RebootSlot{ID: "r0", Why: "turn"}}, "r1 ; unschedulable false"},
		"an answer that the record does not have":     {scene{step: waiting, slot: slot()}, "r1 ; unschedulable false"},
		"a slot that an old server has released":      {scene{step: rebooting, holds: "r1", slot: &controlplane.RebootSlot{ID: "r1", Why: "lost"}}, "r1 ; unschedulable false"},
		"one of an earlier request":                   {scene{step: rebooting, holds: "r1", slot: &controlplane.RebootSlot{ID: "r0", Why: "lost"}}, "r1 granted ; unschedulable false"},
		"one that an old server has not ended":        {scene{step: rebooting, holds: "r1", slot: &controlplane.RebootSlot{ID: "r1", Why: "turn"}}, "r1 granted ; unschedulable false"},
		"a host that reboots, in a restored record":   {scene{step: rebooting, slot: slot(named), change: restored}, "r1 the slot was released; unschedulable false; adopt n1"},
		"one that drains":                             {scene{step: draining, slot: slot(named), byHost: true, change: restored}, "r1 the slot was released; unschedulable false; adopt n1"},
		"one that waits":                              {scene{step: waiting, full: true, change: restored}, "r1 all slots of the group are held: x since 0001-01-01T00:00:00Z; unschedulable false"},
		"one whose slot is in the record":             {scene{step: rebooting, holds: "r1", slot: slot(named), change: restored}, "-"},
		"one that gave no sign of life yet":           {scene{step: rebooting, byHost: true, change: func(f *reboots.Facts) { restored(f); h := f.Hosts["n1"]; h.Unseen = true; f.Hosts["n1"] = h }}, "-"},
		"one while the group cannot be read":          {scene{step: rebooting, slot: slot(named), byHost: true, change: func(f *reboots.Facts) { restored(f); unread(f) }}, "-"},
		"two hours are not too long with an hour":     {scene{step: draining, holds: "r1", slot: slot(cordoned), unschedulable: true, since: 2 * time.Hour, pods: []podcache.Pod{with(slow, func(p *podcache.Pod) { p.Deleting = true })}}, "-"},
		"a reboot without a slot":                     {scene{step: draining, pods: []podcache.Pod{a}}, "r1 cordoned pods left on the Node: 1: ns/a; unschedulable true"},
		"it is emptied as well":                       {scene{step: draining, slot: &controlplane.RebootSlot{ID: "r1", Cordoned: true, Why: "emptying"}, unschedulable: true}, "r1 cordoned emptied ; unschedulable true"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := outcome(reboots.Decide(c.facts(), noon)); got != c.want {
				t.Errorf("Decide() = %s\nwant       %s", got, c.want)
			}
		})
	}
}

// TestWhichAnswersDependOnTheRecord has answers that are written only if the record of the group is the one that the
// decision is based on.
func TestWhichAnswersDependOnTheRecord(t *testing.T) {
	ended := &controlplane.RebootSlot{ID: "r1", Slot: "default/7", Why: "over"}
	has := &controlplane.RebootSlot{ID: "r1", Slot: "default/7", Granted: granted()}
	for name, c := range map[string]struct {
		scene
		depends bool
	}{
		"a new grant":                 {scene{step: controlplane.RebootWaiting, holds: "r1"}, true},
		"a grant after another slot":  {scene{step: controlplane.RebootWaiting, holds: "r1", slot: &controlplane.RebootSlot{ID: "r1", Slot: "default/6", Why: "over"}}, true},
		"the removal of an end":       {scene{step: controlplane.RebootWanted, slot: ended}, true},
		"a wait in place of an end":   {scene{step: controlplane.RebootWaiting, slot: ended, full: true}, true},
		"a wait":                      {scene{step: controlplane.RebootWaiting, full: true}, false},
		"an end":                      {scene{step: controlplane.RebootWanted, holds: "r1", slot: has}, false},
		"an uncordon after an end":    {scene{step: controlplane.RebootWaiting, holds: "r1", slot: &controlplane.RebootSlot{ID: "r1", Slot: "default/7", Why: "over", Cordoned: true}, unschedulable: true}, false},
		"the state of an earlier one": {scene{step: controlplane.RebootDraining, holds: "r1", slot: has, pods: []podcache.Pod{pod("a")}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := reboots.Decide(c.facts(), noon)
			if len(d.Answers) != 1 || strings.HasSuffix(d.Answers[0].Version(), "[{default 3}]") != c.depends {
				t.Errorf("answers = %+v, want one that depends on the record: %t", d.Answers, c.depends)
			}
		})
	}
}

// TestAMessageIsWrittenNowAndThen changes only the message of an answer, not its reason.
func TestAMessageIsWrittenNowAndThen(t *testing.T) {
	f := scene{step: controlplane.RebootWaiting}.facts()
	f.Groups["default"] = slots.Known{State: slots.State{Holders: []slots.Holder{{Client: slots.Client{ID: "x", Type: slots.FleetLock}}}, Waiting: []slots.Request{{Client: slots.Client{ID: "n1", Type: slots.Agent, Request: "r1", Reason: "kernel"}}}}}
	for age, want := range map[time.Duration]int{9 * time.Second: 0, 10 * time.Second: 1} {
		h := f.Hosts["n1"]
		h.SlotSince, h.Slot = noon.Add(-age), &controlplane.RebootSlot{ID: "r1", Why: "turn", Message: "all slots are held: somebody else"}
		f.Hosts["n1"] = h
		d := reboots.Decide(f, noon)
		if len(d.Answers) != want || want == 0 && !d.Next.Equal(noon.Add(time.Second)) {
			t.Errorf("after %v: %d answers, next at %v, want %d", age, len(d.Answers), d.Next, want)
		}
	}
	h := f.Hosts["n1"]
	h.SlotSince, h.Slot = noon, &controlplane.RebootSlot{ID: "r1", Why: "notReady", Message: "Nodes are not ready"}
	f.Hosts["n1"] = h
	if d := reboots.Decide(f, noon); len(d.Answers) != 1 {
		t.Errorf("%d answers for another reason, want 1", len(d.Answers))
	}
}

// TestHowAnAnswerIsDescribed checks what people read about the writes that are due.
func TestHowAnAnswerIsDescribed(t *testing.T) {
	slot := func(change func(*controlplane.RebootSlot)) *controlplane.RebootSlot {
		s := &controlplane.RebootSlot{ID: "r1", Slot: "default/7", Granted: granted()}
		change(s)
		return s
	}
	none := func(*controlplane.RebootSlot) {}
	cordoned := func(s *controlplane.RebootSlot) { s.Cordoned = true }
	for name, c := range map[string]struct {
		scene
		want string
	}{
		"a slot":                   {scene{step: controlplane.RebootWaiting, holds: "r1"}, "report the slot to the host: kernel"},
		"a wait":                   {scene{step: controlplane.RebootWaiting, full: true}, "report to the host why it waits: all slots of the group are held: x since 0001-01-01T00:00:00Z"},
		"the end of a slot":        {scene{step: controlplane.RebootWanted, holds: "r1", slot: slot(none)}, "report that the slot has ended: the host did not need the slot any more"},
		"a cordon":                 {scene{step: controlplane.RebootDraining, holds: "r1", slot: slot(none)}, "cordon the Node: its host reboots: kernel"},
		"an empty Node":            {scene{step: controlplane.RebootDraining, holds: "r1", slot: slot(cordoned), unschedulable: true}, "report that the Node is empty: no pod has to leave it any more"},
		"a Node that is not empty": {scene{step: controlplane.RebootDraining, holds: "r1", slot: slot(cordoned)}, "report that the Node cannot be emptied: the Node was uncordoned before it was empty"},
		"no cordon any more":       {scene{step: controlplane.RebootWanted, holds: "r1", slot: slot(cordoned), unschedulable: true}, "uncordon the Node: it is not being emptied any more"},
		"a reboot that is done":    {scene{step: controlplane.RebootDone, holds: "r1", slot: slot(cordoned), unschedulable: true}, "uncordon the Node, and remove the answer to its host: the reboot is done, or was given up"},
		"one without a cordon":     {scene{step: controlplane.RebootDone, holds: "r1", slot: slot(none)}, "remove the answer to the host: it needs no slot any more"},
	} {
		t.Run(name, func(t *testing.T) {
			d := reboots.Decide(c.facts(), noon)
			if len(d.Answers) != 1 || len(d.Answers[0].Steps) != 1 {
				t.Fatalf("answers = %+v, want one with one step", d.Answers)
			}
			if s := d.Answers[0].Steps[0]; s.Action+": "+s.Reason != c.want {
				t.Errorf("step = %q, want %q", s.Action+": "+s.Reason, c.want)
			}
		})
	}
}
