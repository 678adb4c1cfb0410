package reboots_test

import (
	"testing"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/slots"
)

// TestASlotWaitsForNodesOfTheMomentItIsDue ends the wait of n1 in each way. Nodes that are known up to a moment before
// that give no slot: another host may have failed since.
func TestASlotWaitsForNodesOfTheMomentItIsDue(t *testing.T) {
	const age = 5 * time.Second // of the Nodes
	group := func(slot ...slots.Holder) slots.Known {
		return slots.Known{State: slots.State{Holders: slot, Waiting: []slots.Request{{Client: slots.Client{ID: "n1", Type: slots.Agent, Request: "r1"}, Number: 2}}, Requests: 2}}
	}
	holder := func(id string) slots.Holder {
		return slots.Holder{Client: slots.Client{ID: id, Type: slots.FleetLock}, Number: 1}
	}
	host := func(name string, change ...func(*reboots.Host)) reboots.Host {
		h := reboots.Host{Node: slots.Node{Name: name, UID: "u", Group: "default", Ready: true}}
		for _, c := range change {
			c(&h)
		}
		return h
	}
	wants := func(step controlplane.RebootStep) func(*reboots.Host) {
		return func(h *reboots.Host) { h.Request = &controlplane.RebootRequest{ID: "r1", Step: step} }
	}
	set := func(f *reboots.Facts, h reboots.Host) { f.Hosts[h.Name] = h }
	part, err := slots.ParsePart("0")
	if err != nil {
		t.Fatal(err)
	}
	policy := func(change func(*slots.Policy)) slots.Policy {
		p := slots.Policy{Group: "default", Slots: 1, MaxUnavailable: part}
		change(&p)
		return p
	}
	for name, c := range map[string]struct {
		before func(*reboots.Facts)
		passes time.Duration // until the second decision
	}{
		"it asks": {before: func(f *reboots.Facts) { set(f, host("n1")); f.Groups["default"] = slots.Known{} }},
		"it pauses": {before: func(f *reboots.Facts) {
			set(f, host("n1", wants(controlplane.RebootWanted)))
			k := group()
			k.Waiting[0].Paused = true
			f.Groups["default"] = k
		}},
		"another has the slot": {before: func(f *reboots.Facts) { f.Groups["default"] = group(holder("x")) }},
		"it has a slot elsewhere": {before: func(f *reboots.Facts) {
			f.Groups["other"] = slots.Known{State: slots.State{Holders: []slots.Holder{{Client: slots.Client{ID: "n1", Type: slots.Agent, Request: "r0"}}}}}
		}},
		"there are no slots":  {before: func(f *reboots.Facts) { f.Policies["default"] = policy(func(p *slots.Policy) { p.Slots = 0 }) }},
		"a host is not ready": {before: func(f *reboots.Facts) { set(f, host("n2", func(h *reboots.Host) { h.Ready = false })) }},
		"a host was not seen": {before: func(f *reboots.Facts) { set(f, host("n2", func(h *reboots.Host) { h.Unseen = true })) }},
		"an older client is late": {passes: 15 * time.Minute, before: func(f *reboots.Facts) {
			k := group()
			k.Waiting = append([]slots.Request{{Client: slots.Client{ID: "x", Type: slots.FleetLock}, Number: 1}}, k.Waiting...)
			k.Waiting[0].Asked.Time = noon
			f.Groups["default"] = k
		}},
		"another zone reboots": {before: func(f *reboots.Facts) {
			f.Policies["default"] = policy(func(p *slots.Policy) { p.OneZoneAtATime, p.Slots = true, 2 })
			h := holder("n2")
			h.Type, h.Node, h.UID, h.Zone = slots.Agent, "n2", "u", "b"
			f.Groups["default"] = group(h)
			set(f, host("n2", wants(controlplane.RebootRebooting)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			facts := func() reboots.Facts {
				return reboots.Facts{
					Policies: reboots.Policies{"default": policy(func(*slots.Policy) {}), "other": {Group: "other", Slots: 1, MaxUnavailable: part}},
					Groups:   map[string]slots.Known{"default": group(), "other": {}},
					Hosts:    map[string]reboots.Host{"n1": host("n1", wants(controlplane.RebootWaiting)), "n2": host("n2")},
					Object:   func(group string) string { return "slots/" + group },
				}
			}
			after := func() reboots.Facts {
				f := facts()
				if c.passes > 0 { // only time ends the wait
					c.before(&f)
				}
				return f
			}
			at, due := noon, map[string]reboots.Due{}
			decide := func(f reboots.Facts, confirmed time.Time) (gives bool) {
				f.Confirmed, f.Due = confirmed, due
				d := reboots.Decide(f, at)
				due = d.Due
				for _, c := range d.Changes {
					for _, s := range c.Steps {
						gives = gives || c.Group == "default" && s.Action == "give a slot to n1, request r1"
					}
				}
				return gives
			}
			for range 3 {
				f := facts()
				c.before(&f)
				if at = at.Add(time.Second); decide(f, at.Add(-age)) {
					t.Fatal("n1 gets a slot at once, want that it waits")
				}
			}
			at = at.Add(c.passes + time.Second)
			ended := at
			for ; at.Before(ended.Add(age)); at = at.Add(time.Second) {
				if decide(after(), at.Add(-age)) {
					t.Fatalf("n1 gets a slot %v after the wait ended, from Nodes of %v before that", at.Sub(ended), age-at.Sub(ended))
				}
			}
			if !decide(after(), at.Add(-age)) {
				t.Error("n1 gets no slot from Nodes of the moment when its wait ended")
			}
		})
	}
}
