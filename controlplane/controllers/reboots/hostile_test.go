package reboots_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
)

// groupsOfSlots are the groups of the tests below, with one slot each.
var groupsOfSlots = []string{"a", "b", "c"}

// slotGroups starts a server with these groups, and returns how many slots a client holds.
func (r rig) slotGroups() (holds func(id string) []string) {
	r.Helper()
	part, err := slots.ParsePart("100%")
	if err != nil {
		r.Fatal(err)
	}
	policies := reboots.Policies{}
	for _, name := range groupsOfSlots {
		policies[name] = slots.Policy{Group: name, Slots: 1, MaxUnavailable: part}
	}
	r.serveGroups("server-1", r.store, policies)
	return func(id string) (groups []string) {
		r.Helper()
		for _, name := range groupsOfSlots {
			s, err := slots.NewGroups(r.store, "").Get(r.Context(), name)
			if err != nil {
				r.Fatal(err)
			}
			if s.Holder(id) != nil {
				groups = append(groups, name)
			}
		}
		return groups
	}
}

// TestAHostThatChangesItsGroupHasOneSlot has a host that requests slots of all groups in turn, and writes the answers
// itself: that it has the slot, or that it has ended.
func TestAHostThatChangesItsGroupHasOneSlot(t *testing.T) {
	for name, says := range map[string]func(controlplane.RebootSlot) *controlplane.RebootSlot{
		"and says that it has each": func(s controlplane.RebootSlot) *controlplane.RebootSlot {
			s.Granted = &metav1.Time{Time: noon}
			return &s
		},
		"and removes what servers write": func(controlplane.RebootSlot) *controlplane.RebootSlot { return nil },
		"and says that each has ended":   func(s controlplane.RebootSlot) *controlplane.RebootSlot { s.Slot, s.Why = "a/1", "over"; return &s },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r rig) {
				holds := r.slotGroups()
				r.node("evil", "z", corev1.ConditionTrue)
				for i := range 30 {
					id := fmt.Sprint("r", i)
					edit(r.store, "evil", func(n *corev1.Node) {
						n.Labels = map[string]string{controlplane.LabelRebootGroup: groupsOfSlots[i%len(groupsOfSlots)]}
						setRequest(n, controlplane.RebootRequest{ID: id, Step: controlplane.RebootWaiting, Reason: "kernel"})
						delete(n.Annotations, controlplane.AnnotationRebootSlot)
						if s := says(controlplane.RebootSlot{ID: id}); s != nil {
							setSlotText(n, s)
						}
					})
					time.Sleep(time.Duration(i%7) * time.Second / 4)
					if got := holds("evil"); len(got) > 1 {
						r.Fatalf("the host holds slots of %q, want at most one", got)
					}
				}
				for _, group := range groupsOfSlots {
					r.node("good-"+group, "z", corev1.ConditionTrue, func(n *corev1.Node) {
						n.Labels[controlplane.LabelRebootGroup] = group
						setRequest(n, controlplane.RebootRequest{ID: "r", Step: controlplane.RebootWaiting, Reason: "kernel"})
					})
				}
				time.Sleep(soon)
				served := 0
				for _, group := range groupsOfSlots {
					served += len(holds("good-" + group))
				}
				if want := len(groupsOfSlots) - 1; served < want {
					r.Errorf("%d of the other hosts have a slot, want at least %d", served, want)
				}
			})
		})
	}
}

func setSlotText(n *corev1.Node, s *controlplane.RebootSlot) {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, controlplane.AnnotationRebootSlot, string(text))
}

// TestAHostThatMovesKeepsItsSlot has an honest host whose group is changed while it reboots. It gives its slot back, and
// gets the next one in its new group.
func TestAHostThatMovesKeepsItsSlot(t *testing.T) {
	inBubble(t, func(r rig) {
		holds := r.slotGroups()
		r.node("n1", "z", corev1.ConditionTrue, func(n *corev1.Node) { n.Labels[controlplane.LabelRebootGroup] = "a" }, at("r1", controlplane.RebootWaiting))
		edit(r.store, "n1", at("r1", controlplane.RebootRebooting))
		edit(r.store, "n1", func(n *corev1.Node) { n.Labels[controlplane.LabelRebootGroup] = "b" })
		time.Sleep(soon)
		_, slot := read(t, r.store, "n1")
		if got := holds("n1"); fmt.Sprint(got) != "[a]" || slot == nil || slot.Granted == nil {
			r.Errorf("n1 holds slots of %q, its Node says %s, want that it keeps its slot", got, describe(slot))
		}
		edit(r.store, "n1", at("r1", controlplane.RebootDone))
		time.Sleep(soon)
		edit(r.store, "n1", at("r2", controlplane.RebootWaiting))
		time.Sleep(soon)
		if got := holds("n1"); fmt.Sprint(got) != "[b]" {
			r.Errorf("n1 holds slots of %q, want one of its new group", got)
		}
	})
}

// TestWhatAHostWritesIsBounded has Nodes that would not fit into the record of a group, or into the memory of servers.
func TestWhatAHostWritesIsBounded(t *testing.T) {
	huge := strings.Repeat("x", 400<<10)
	longest := controlplane.RebootRequest{ID: "r1", Step: controlplane.RebootWaiting, Message: "x"}
	text, err := json.Marshal(longest)
	if err != nil {
		t.Fatal(err)
	}
	longest.Message = huge[:16<<10-len(text)+1]
	for name, c := range map[string]struct {
		change func(*corev1.Node)
		broken string // part of the problem; empty if the host gets a slot
	}{
		"its zone":            {func(n *corev1.Node) { n.Labels["zone"] = huge }, ""},
		"its boot ID":         {func(n *corev1.Node) { n.Status.NodeInfo.BootID = huge }, ""},
		"the reason":          {request(controlplane.RebootRequest{ID: "r1", Step: controlplane.RebootWaiting, Reason: huge[:10<<10]}), ""},
		"the answer":          {func(n *corev1.Node) { n.Annotations[controlplane.AnnotationRebootSlot] = huge }, ""},
		"its group":           {func(n *corev1.Node) { n.Labels[controlplane.LabelRebootGroup] = huge }, "which is not in `reboots.groups`"},
		"the ID of a request": {request(controlplane.RebootRequest{ID: huge[:100], Step: controlplane.RebootWaiting}), "more than 64 bytes"},
		"the request":         {request(controlplane.RebootRequest{ID: "r1", Step: controlplane.RebootWaiting, Message: huge}), "more than 16384 bytes"},
		"the longest ID":      {request(controlplane.RebootRequest{ID: huge[:64], Step: controlplane.RebootWaiting}), ""},
		"the longest request": {request(longest), ""},
		"the longest UID":     {func(n *corev1.Node) { n.UID = types.UID(huge[:64]) }, ""},
		"a step that is none": {request(controlplane.RebootRequest{ID: "r1", Step: controlplane.RebootStep(huge[:100])}), "is no step of a reboot"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r rig) {
				server := r.serve("server-1", r.store)
				r.node("n1", "a", corev1.ConditionTrue, at("r1", controlplane.RebootWaiting), c.change)
				time.Sleep(soon)
				s, err := slots.NewGroups(r.store, "").Get(r.Context(), "default")
				if err != nil {
					r.Fatal(err)
				}
				text, _ := json.Marshal(s)
				if holds := s.Holder("n1") != nil; holds != (c.broken == "") || len(text) > 2<<10 {
					r.Errorf("the host holds a slot: %t, want %t; the record has %d bytes", holds, c.broken == "", len(text))
				}
				err = server.Report().Broken["n1"]
				if got := fmt.Sprint(err); c.broken != "" && (!strings.Contains(got, c.broken) || len(got) > 1<<10) {
					r.Errorf("problem = %.200s (%d bytes), want %q", got, len(got), c.broken)
				}
				if _, slot := read(t, r.store, "n1"); slot != nil && len(slot.Message) > 1<<10 {
					r.Errorf("the answer has a message of %d bytes", len(slot.Message))
				}
			})
		})
	}
}

func request(r controlplane.RebootRequest) func(*corev1.Node) {
	return func(n *corev1.Node) { setRequest(n, r) }
}

// TestAHostThatSaysThatItIsEmptyStopsNoServer has a host on a store without pods that servers could evict. It writes an
// answer that no server gives there.
func TestAHostThatSaysThatItIsEmptyStopsNoServer(t *testing.T) {
	inBubble(t, func(r rig) {
		holds := r.slotGroups()
		r.node("evil", "z", corev1.ConditionTrue, func(n *corev1.Node) { n.Labels[controlplane.LabelRebootGroup] = "a" }, at("r1", controlplane.RebootWaiting))
		edit(r.store, "evil", func(n *corev1.Node) {
			setSlotText(n, &controlplane.RebootSlot{ID: "r1", Why: "lost", Emptied: true})
		})
		time.Sleep(time.Second)
		if _, slot := read(t, r.store, "evil"); slot == nil || slot.Slot != "a/1" {
			t.Errorf("slot = %s, want the name of the slot", describe(slot))
		}
		time.Sleep(time.Minute)
		if got := holds("evil"); len(got) > 1 {
			t.Errorf("the host holds slots of %q", got)
		}
	})
}

// TestAHolderWhoseNodeCannotBeReadDelaysNobody has a host that holds a slot and makes its own Node unreadable.
func TestAHolderWhoseNodeCannotBeReadDelaysNobody(t *testing.T) {
	inBubble(t, func(r rig) {
		part, err := slots.ParsePart("100%")
		if err != nil {
			t.Fatal(err)
		}
		s := r.serveGroups("server-1", r.store, reboots.Policies{"default": {Group: "default", Slots: 2, MaxUnavailable: part}})
		r.node("mallory", "a", corev1.ConditionTrue, at("r1", controlplane.RebootWaiting))
		time.Sleep(10 * time.Second)
		edit(r.store, "mallory", at("r1", controlplane.RebootRebooting))
		time.Sleep(10 * time.Second)
		r.want("with a Node that can be read", "mallory")
		r.store.PutRaw(store.Nodes, "mallory", []byte("{"))
		r.node("n1", "a", corev1.ConditionTrue, at("r1", controlplane.RebootWaiting))
		time.Sleep(5 * time.Minute)
		r.want("with a Node that cannot be read", "mallory", "n1")
		if report := s.Report(); !report.OldestDue.IsZero() {
			r.Errorf("a change is due since %v, which cannot be made", report.OldestDue)
		}
	})
}

// TestAHostWhoseNodeCannotBeReadCountsAsNotReady has a group in which no host may be down, and a Node that was ready.
func TestAHostWhoseNodeCannotBeReadCountsAsNotReady(t *testing.T) {
	inBubble(t, func(r rig) {
		part, err := slots.ParsePart("0")
		if err != nil {
			t.Fatal(err)
		}
		r.serveGroups("server-1", r.store, reboots.Policies{"default": {Group: "default", Slots: 2, MaxUnavailable: part}})
		r.node("mallory", "a", corev1.ConditionTrue)
		value, err := store.Nodes.Encode(func() store.Object { n, _ := read(t, r.store, "mallory"); return n }())
		if err != nil {
			t.Fatal(err)
		}
		r.store.PutRaw(store.Nodes, "mallory", []byte("{"))
		r.node("n1", "a", corev1.ConditionTrue, at("r1", controlplane.RebootWaiting))
		time.Sleep(time.Minute)
		r.want("while a Node cannot be read")
		r.store.PutRaw(store.Nodes, "mallory", value)
		time.Sleep(time.Minute)
		r.want("when it can be read again", "n1")
	})
}

// TestAHostThatPausesKeepsNoSlotFromOthers has hosts that asked first, and pause their requests again and again, so that
// none of them gets the slot that is kept free for it.
func TestAHostThatPausesKeepsNoSlotFromOthers(t *testing.T) {
	for name, c := range map[string]struct {
		policy slots.Policy
		evil   []string // they take turns
	}{
		"one slot":      {slots.Policy{Slots: 1}, []string{"evil1"}},
		"another zone":  {slots.Policy{Slots: 5, OneZoneAtATime: true}, []string{"evil1"}},
		"several hosts": {slots.Policy{Slots: 1}, []string{"evil1", "evil2", "evil3"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r rig) {
				part, err := slots.ParsePart("100%")
				if err != nil {
					t.Fatal(err)
				}
				c.policy.Group, c.policy.MaxUnavailable = "default", part
				r.serveGroups("server-1", r.store, reboots.Policies{"default": c.policy})
				for _, evil := range c.evil {
					r.node(evil, "x", corev1.ConditionTrue, at("e", controlplane.RebootWanted))
				}
				r.node("good", "z", corev1.ConditionTrue)
				for i := range 1000 {
					for n, evil := range c.evil {
						step := controlplane.RebootWanted
						if len(c.evil) == 1 && i%2 == 0 || len(c.evil) > 1 && i%len(c.evil) == n {
							step = controlplane.RebootWaiting
						}
						edit(r.store, evil, at("e", step))
					}
					if i == 1 {
						edit(r.store, "good", at("g", controlplane.RebootWaiting))
					}
					time.Sleep(150 * time.Millisecond)
				}
				s, err := slots.NewGroups(r.store, "").Get(r.Context(), "default")
				if err != nil {
					t.Fatal(err)
				}
				if s.Holder("good") == nil {
					r.Errorf("holders = %+v, waiting = %+v, want that good holds a slot", s.Holders, s.Waiting)
				}
			})
		})
	}
}
