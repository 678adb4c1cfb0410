package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/few"
	"hostler.io/hostler/internal/listen"
)

const (
	// readTime limits how long the groups are read for an answer.
	readTime = 2 * time.Second
	// mostNotReady is the maximum number of Nodes that are named.
	mostNotReady = 10
)

// controlReboots builds the controller of reboot slots. It reads pods if it evicts them.
func (s *Controllers) controlReboots(readsPods follow) *controlled {
	c := &controlled{
		name: reboots.Name, lead: s.reboots.Lead, report: func() report { return reportOfReboots(s.reboots.Report()) },
		follows: []follow{{store.Nodes, store.AllChanges, s.reboots.Nodes()}},
		loops:   []timed{{reboots.Name, time.Minute, s.reboots.Run}, {"groups of reboot slots", time.Minute, s.reboots.RunReads}},
	}
	if _, able := s.o.Store.(store.Evicter); able {
		c.follows = append(c.follows, readsPods)
	}
	if runs, _ := s.o.Config.Runs(lifecycle.Name); !runs { // it judges the hosts nevertheless, and writes nothing
		c.follows = append(c.follows, follow{store.Nodes, store.AllChanges, s.nodes.Nodes()}, follow{store.Leases, store.AllChanges, s.nodes.Leases()})
		c.loops = append(c.loops, timed{"signs of life", time.Minute + 3*time.Duration(s.o.Config.NodeLifecycle.MonitorPeriod), s.nodes.Run})
	}
	return c
}

// serveFleetLock serves the FleetLock protocol at the configured address.
func (s *Server) serveFleetLock(ctx context.Context, heartbeat func(error)) error {
	c := s.o.Config.Reboots
	log := s.o.Log.With("component", "fleetlock")
	network := listen.Network{Key: "reboots.listen", Address: c.Listen, Beyond: c.Insecure, Log: log, Heartbeat: heartbeat}
	if c.TLS.Set() {
		network.Files = listen.NewFiles(listen.Paths{Certificate: c.TLS.Certificate, Key: c.TLS.Key, ClientCA: c.TLS.ClientCA, Section: "reboots.tls"}, log)
	}
	return network.Serve(ctx, s.fleetlock.HTTP())
}

// reportOfReboots returns the report of the controller reboots.
func reportOfReboots(r reboots.Report) report {
	out := reportOf(r.Report)
	var names []string
	for _, g := range r.Groups {
		names = append(names, g.Group)
		out.pending += len(g.Waiting) + g.Unrecorded
	}
	out.due = len(r.Changes) + len(r.Answers) + len(r.Evictions)
	for _, e := range r.Emptying {
		out.pending += len(e.Blocked)
	}
	out.watches = "Nodes, their Leases, and the slots of " + strings.Join(names, ", ")
	for _, node := range slices.Sorted(maps.Keys(r.Broken)) {
		out.problems = append(out.problems, answer.Problem{
			Object: clean(store.Nodes.Key(node)), Message: clean(r.Broken[node].Error()),
			Hint: "the host gets no slot meanwhile; check `reboots.groups`, and that the server is not older than the host",
		})
	}
	out.actions = func() []answer.Action {
		actions, at := []answer.Action{}, r.At.UTC()
		due := func(object string, steps ...reboots.Step) {
			for _, s := range steps {
				actions = append(actions, answer.Action{Object: clean(object), Action: clean(s.Action), Reason: clean(s.Reason), Due: &at})
			}
		}
		for _, c := range r.Changes {
			due(c.Object(), c.Steps...)
		}
		for _, a := range r.Answers {
			due(a.Object(), a.Steps...)
		}
		for _, e := range r.Evictions {
			due(e.Object(), reboots.Step{Action: "evict the pod", Reason: "Node " + e.Pod.Node + " reboots"})
		}
		for _, g := range r.Groups {
			for _, v := range g.Verdicts {
				if v.Wait != nil || v.Type == slots.FleetLock {
					actions = append(actions, answer.Action{Object: clean(g.Object), Action: clean("give a slot to " + v.ID), Reason: clean(g.Why(v))})
				}
			}
		}
		for _, e := range r.Emptying {
			for _, b := range e.Blocked {
				until := b.Until.UTC()
				actions = append(actions, answer.Action{Object: clean(podcache.Object(b.Pod)), Action: "evict the pod", Reason: clean(b.Message), Due: &until})
			}
		}
		return actions
	}
	return out
}

// slotGroups returns the groups as last read; none if the controller does not run.
func (s *Server) slotGroups(now time.Time) []answer.SlotGroup {
	list := []answer.SlotGroup{}
	if runs, _ := s.o.Config.Runs(reboots.Name); !runs {
		return list
	}
	for _, g := range s.reboots.Report().Groups {
		a := answer.SlotGroup{
			Name: g.Group, Slots: g.Slots, OneZoneAtATime: g.OneZoneAtATime, MaxUnavailable: g.MaxUnavailable.String(), Nodes: g.Members,
			NotReady: len(g.NotReady), Unrecorded: g.Unrecorded, Awaited: clean(few.Names(g.Awaited, mostNotReady)), NotReadyNodes: []string{}, Holders: []answer.SlotHolder{}, WithoutSlot: []answer.SlotHolder{}, Waiting: []answer.SlotRequest{}, Releases: []answer.SlotRelease{},
		}
		if g.Err != nil {
			a.Error = clean(g.Err.Error())
		}
		for _, name := range g.NotReady[:min(len(g.NotReady), mostNotReady)] {
			a.NotReadyNodes = append(a.NotReadyNodes, clean(name))
		}
		for _, h := range g.Holders {
			a.Holders = append(a.Holders, answer.SlotHolder{
				ID: clean(h.ID), Since: h.Since.UTC(), By: clean(string(h.Type)), Node: clean(h.Node), Zone: clean(h.Zone), Reason: clean(h.Reason),
				Note: g.Note(h), Step: g.Step(h), Waits: clean(g.WaitsFor(h)), Late: reboots.Late(h, now),
			})
		}
		for _, h := range g.WithoutSlot {
			a.WithoutSlot = append(a.WithoutSlot, answer.SlotHolder{
				ID: clean(h.Name), Since: h.StepSince.UTC(), By: string(slots.Agent), Node: clean(h.Name), Zone: clean(h.Zone), Reason: clean(h.Request.Reason),
				Note: h.WhyWithout(), Step: string(h.Request.Step), Waits: clean(h.Request.Message),
			})
		}
		for _, v := range g.Verdicts {
			a.Waiting = append(a.Waiting, answer.SlotRequest{
				ID: clean(v.ID), Since: v.Since.UTC(), By: clean(string(v.Type)), Reason: clean(v.Reason), Wait: clean(g.Why(v)), Kept: v.Wait == nil, Paused: v.Paused,
			})
		}
		for _, r := range g.Releases {
			a.Releases = append(a.Releases, answer.SlotRelease{ID: clean(r.ID), Held: utc(r.Held), At: r.At.UTC(), How: clean(string(r.Cause)), By: clean(r.By), Reason: clean(r.Reason)})
		}
		list = append(list, a)
	}
	return list
}

// slotsOf warns that a Node holds reboot slots, which become free with its deletion. It computes that in the caller's
// turn.
func (s *Server) slotsOf(ctx context.Context, o *reader, node string) (warnings []string, err error) {
	release, err := o.turns.Take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	for _, g := range s.freshGroups(ctx) {
		if slices.ContainsFunc(g.Holders, func(h answer.SlotHolder) bool { return h.Node == node }) {
			warnings = append(warnings, "the host holds a reboot slot of group "+g.Name+": with the deletion, the slot becomes free, and another host may reboot")
		}
	}
	return warnings, nil
}

// freshGroups reads the groups, because other servers also change them.
func (s *Server) freshGroups(ctx context.Context) []answer.SlotGroup {
	ctx, cancel := context.WithTimeoutCause(ctx, readTime, controlplane.ErrNoAnswer)
	defer cancel()
	_ = s.reboots.Refresh(ctx) // the groups contain the error
	return s.slotGroups(time.Now())
}

func utc(at *metav1.Time) *time.Time {
	if at == nil {
		return nil
	}
	t := controlplane.JSONTime(at.Time)
	return &t
}

// slotProblems returns groups that cannot be read, and holders that keep their slots too long.
func slotProblems(groups []answer.SlotGroup) []answer.Problem {
	var list []answer.Problem
	for _, g := range groups {
		object := slotObject + g.Name
		if g.Error != "" {
			list = append(list, answer.Problem{Object: object, Message: "cannot be read: " + g.Error, Hint: "hosts of the group get no slots meanwhile"})
		}
		if g.Awaited != "" {
			list = append(list, answer.Problem{
				Object: object, Message: "the store was restored, and hosts may reboot without a slot in the record: " + g.Awaited,
				Hint: "wait two minutes, or longer if Leases are longer: hosts that are alive are then not named any more. Start the others, or delete the Nodes of those that are gone",
			})
		}
		for _, h := range g.Holders {
			if h.Late {
				list = append(list, answer.Problem{
					Object: object, Message: strings.TrimSuffix(fmt.Sprintf("%s holds a slot since %s: %s", h.ID, h.Since.Format(time.RFC3339), strings.Join(slices.DeleteFunc([]string{h.Step, h.Note, h.Waits}, func(s string) bool { return s == "" }), ", ")), ": "),
					Hint: fmt.Sprintf("check that host; if it does not give the slot back, run `hostler fleet slots release %s --group %s --reason TEXT`", h.ID, g.Name),
				})
			}
		}
	}
	return list
}

// slotObject begins the name of a group in problems, whatever the store is.
const slotObject = "slots/"

// slots answers who holds slots, and who waits for one.
func (s *Server) slots(r *http.Request) (any, error) {
	a := answer.Slots{State: s.stateOf(reboots.Name), FleetLock: s.o.Config.Reboots.Listen, Groups: []answer.SlotGroup{}}
	if a.State != answer.Disabled {
		a.Groups = s.freshGroups(r.Context())
		if err := s.reboots.Report().Unread; err != nil {
			a.Unread = clean(err.Error())
		}
	}
	return a, nil
}

// releaseSlot frees a slot on the request of a person.
func (s *Server) releaseSlot(r *http.Request) (any, error) {
	var req answer.ReleaseRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	runs, _ := s.o.Config.Runs(reboots.Name)
	switch {
	case !runs:
		return nil, refusal(http.StatusBadRequest, "the controller "+reboots.Name+" does not run on this server", "run this on a server that has it in `controllers`")
	case req.ID == "" || req.Group == "":
		return nil, refusal(http.StatusBadRequest, "id or group is missing", "name both")
	case strings.TrimSpace(req.Reason) == "":
		return nil, refusal(http.StatusBadRequest, "the reason is missing", "say why with --reason: it is recorded")
	}
	err := s.reboots.Release(r.Context(), req.Group, req.ID, listen.UserOf(r.Context()), req.Reason)
	switch {
	case errors.Is(err, reboots.ErrNoGroup):
		return nil, refusal(http.StatusNotFound, err.Error(), "name the group with --group")
	case errors.Is(err, reboots.ErrAsks):
		return nil, refusal(http.StatusConflict, err.Error(), "on the host, run `sudo hostler reboot --cancel`")
	case errors.Is(err, controlplane.ErrNotFound):
		return nil, refusal(http.StatusNotFound, err.Error(), "`hostler fleet slots` lists holders and requests")
	case errors.Is(err, reboots.ErrKept) && errors.Is(err, controlplane.ErrConflict):
		remove := "sudo hostler fleet delete " + store.Nodes.Key(req.ID)
		if !s.o.Store.EndsLeases() {
			remove = "kubectl delete node " + req.ID
		}
		return nil, refusal(http.StatusConflict, err.Error(), "try again; if that fails, too, delete the Node to free the slot: `"+remove+"`")
	case errors.Is(err, controlplane.ErrUnavailable), errors.Is(err, controlplane.ErrConflict):
		return nil, refusal(http.StatusServiceUnavailable, err.Error(), "try again; `hostler fleet status` shows whether the store answers")
	}
	if err != nil {
		return nil, err
	}
	return answer.Release{ReleaseRequest: req, Message: s.stillCounted(req)}, nil
}

// stillCounted says that the Node of a released slot keeps the group from its slots; empty if it does not.
func (s *Server) stillCounted(req answer.ReleaseRequest) string {
	for _, g := range s.reboots.Report().Groups {
		if g.Group == req.Group && slices.Contains(g.NotReady, req.ID) && len(g.NotReady) > g.MaxUnavailable.Of(g.Members) {
			return fmt.Sprintf("no host of the group gets a slot. Nodes that are not Ready: %d of %d; `maxUnavailable` is %s. Delete Node %s if its host is gone for good, or raise `maxUnavailable`",
				len(g.NotReady), g.Members, g.MaxUnavailable, req.ID)
		}
	}
	return ""
}
