package slots_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/slots"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// fleet returns Nodes of group default, such as "a1" in zone a and "b2" in zone b. A Node with "!" is not
// ready.
func fleet(names ...string) slots.Nodes {
	nodes := slots.Nodes{}
	for _, text := range names {
		name, notReady := strings.CutSuffix(text, "!")
		nodes[name] = slots.Node{Name: name, UID: "uid-1", Zone: name[:1], BootID: "boot-1", Group: controlplane.DefaultRebootGroup, Ready: !notReady}
	}
	return nodes
}

func part(t testing.TB, text string) slots.Part {
	t.Helper()
	p, err := slots.ParsePart(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func client(id string) slots.Client { return slots.Client{ID: id, Type: slots.FleetLock} }

// TestWhoGetsASlot makes clients ask one after the other, a minute apart. "-id" gives the slot back.
func TestWhoGetsASlot(t *testing.T) {
	const yes = slots.WaitReason("")
	for name, c := range map[string]struct {
		slots   int
		zones   bool
		part    string
		nodes   []string
		ask     []string
		want    []slots.WaitReason // answers to the clients, in order
		message string             // part of the message of the last answer
	}{
		"one slot":                                 {slots: 1, ask: []string{"x", "y"}, want: []slots.WaitReason{yes, slots.Full}, message: "all slots of the group are held: x since 2026-11-27T12:00:00Z"},
		"a holder asks again":                      {slots: 1, ask: []string{"x", "x"}, want: []slots.WaitReason{yes, yes}},
		"two slots":                                {slots: 2, ask: []string{"x", "y", "z"}, want: []slots.WaitReason{yes, yes, slots.Full}},
		"no slots":                                 {slots: 0, ask: []string{"x"}, want: []slots.WaitReason{slots.Full}, message: "`slots` is 0"},
		"a slot that is given back":                {slots: 1, ask: []string{"x", "-x", "y"}, want: []slots.WaitReason{yes, yes}},
		"the older request gets it":                {slots: 1, ask: []string{"x", "y", "z", "-x", "z", "y"}, want: []slots.WaitReason{yes, slots.Full, slots.Full, slots.Queued, yes}},
		"a request that is withdrawn":              {slots: 1, ask: []string{"x", "y", "z", "-x", "-y", "z"}, want: []slots.WaitReason{yes, slots.Full, slots.Full, yes}},
		"another zone":                             {slots: 2, zones: true, nodes: []string{"a1", "a2", "b1"}, ask: []string{"a1", "b1"}, want: []slots.WaitReason{yes, slots.OtherZone}, message: `hosts of zone "a" reboot, such as a1; this one is in zone "b"`},
		"another zone, if that does not matter":    {slots: 2, nodes: []string{"a1", "a2", "b1"}, ask: []string{"a1", "b1"}, want: []slots.WaitReason{yes, yes}},
		"the same zone":                            {slots: 2, zones: true, nodes: []string{"a1", "a2", "b1"}, ask: []string{"a1", "a2"}, want: []slots.WaitReason{yes, yes}},
		"a client that is no Node":                 {slots: 2, zones: true, nodes: []string{"a1"}, ask: []string{"a1", "x"}, want: []slots.WaitReason{yes, yes}},
		"a newer one passes no older of a zone":    {slots: 2, zones: true, nodes: []string{"a1", "a2", "b1"}, ask: []string{"a1", "b1", "a2"}, want: []slots.WaitReason{yes, slots.OtherZone, slots.Queued}, message: "waits for another zone: b1"},
		"nor does one that is no Node":             {slots: 2, zones: true, nodes: []string{"a1", "a2", "b1"}, ask: []string{"a1", "b1", "x"}, want: []slots.WaitReason{yes, slots.OtherZone, slots.Queued}},
		"one that waited before passes it":         {slots: 2, zones: true, nodes: []string{"a1", "a2", "a3", "b1"}, ask: []string{"x", "y", "b1", "a1", "a2", "-b1", "-x", "-y", "b1", "a1", "a2"}, want: []slots.WaitReason{yes, yes, slots.Full, slots.Full, slots.Full, slots.Queued, yes, yes}},
		"one that comes later does not":            {slots: 3, zones: true, nodes: []string{"a1", "a2", "a3", "b1"}, ask: []string{"x", "y", "z", "b1", "a1", "a2", "-b1", "-x", "-y", "-z", "b1", "a1", "a3", "a2", "a3"}, want: []slots.WaitReason{yes, yes, yes, slots.Full, slots.Full, slots.Full, slots.OtherZone, yes, slots.Queued, yes, slots.Queued}},
		"a Node is not ready":                      {slots: 1, part: "0", nodes: []string{"a1", "a2!"}, ask: []string{"a1"}, want: []slots.WaitReason{slots.Unavailable}, message: "1 of 2, `maxUnavailable` is 0: a2"},
		"one may be not ready":                     {slots: 1, part: "1", nodes: []string{"a1", "a2!"}, ask: []string{"a1"}, want: []slots.WaitReason{yes}},
		"a percentage is rounded down":             {slots: 1, part: "30%", nodes: []string{"a1", "a2!", "a3"}, ask: []string{"a1"}, want: []slots.WaitReason{slots.Unavailable}},
		"the one that is not ready asks":           {slots: 1, part: "0", nodes: []string{"a1", "a2!"}, ask: []string{"a1", "a2"}, want: []slots.WaitReason{slots.Unavailable, yes}},
		"the holder is not ready":                  {slots: 2, part: "0", nodes: []string{"a1!", "a2"}, ask: []string{"a1", "a2"}, want: []slots.WaitReason{yes, yes}},
		"what is no Node waits for them, too":      {slots: 1, part: "0", nodes: []string{"a2!"}, ask: []string{"x"}, want: []slots.WaitReason{slots.Unavailable}},
		"a group without Nodes has none not ready": {slots: 1, part: "0", ask: []string{"x"}, want: []slots.WaitReason{yes}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.part == "" {
				c.part = "100%"
			}
			p := slots.Policy{Group: controlplane.DefaultRebootGroup, Slots: c.slots, OneZoneAtATime: c.zones, MaxUnavailable: part(t, c.part)}
			var s slots.State
			var got []slots.WaitReason
			var message string
			for i, id := range c.ask {
				now := noon.Add(time.Duration(i) * time.Minute)
				if back, gives := strings.CutPrefix(id, "-"); gives {
					s.GiveBack(back, now)
					continue
				}
				wait := s.Ask(client(id), p, fleet(c.nodes...), now)
				if wait == nil {
					wait = &slots.Wait{}
				}
				got, message = append(got, wait.Reason), wait.Message
			}
			if !slices.Equal(got, c.want) || !strings.Contains(message, c.message) {
				t.Errorf("answers = %q, the last %q, want %q, %q", got, message, c.want, c.message)
			}
		})
	}
}

func TestNodesOfOtherGroupsAndExcludedOnesDoNotCount(t *testing.T) {
	nodes := fleet("a1", "a2!", "a3!")
	other, excluded := nodes["a2"], nodes["a3"]
	other.Group, excluded.Excluded = "other", true
	nodes["a2"], nodes["a3"] = other, excluded
	p := slots.Policy{Group: controlplane.DefaultRebootGroup, Slots: 1, MaxUnavailable: part(t, "0")}
	var s slots.State
	if wait := s.Ask(client("a1"), p, nodes, noon); wait != nil {
		t.Errorf("Ask() = %+v, want a slot", wait)
	}
	if all, notReady := s.Members(controlplane.DefaultRebootGroup, nodes); all != 1 || len(notReady) != 0 {
		t.Errorf("Members() = %d, %v, want 1 and none", all, notReady)
	}
}

// TestARequestThatIsNotRepeatedHoldsNobodyUp has clients that ask once, every hour and often.
func TestARequestThatIsNotRepeatedHoldsNobodyUp(t *testing.T) {
	p := slots.Policy{Slots: 1}
	var s slots.State
	at := func(after time.Duration, id string) *slots.Wait { return s.Ask(client(id), p, nil, noon.Add(after)) }
	at(0, "x")
	at(time.Minute, "once")
	at(2*time.Minute, "hourly")
	at(3*time.Minute, "often")
	at(62*time.Minute, "hourly")
	s.GiveBack("x", noon.Add(63*time.Minute))
	if wait := at(64*time.Minute, "often"); wait == nil || wait.Reason != slots.Queued || !strings.Contains(wait.Message, "hourly") {
		t.Errorf("Ask() = %+v, want that a slot is kept free for the client that asks every hour", wait)
	}
	if wait := at(122*time.Minute, "hourly"); wait != nil {
		t.Errorf("Ask() = %+v, want a slot for the client that asks every hour", wait)
	}
	s.GiveBack("hourly", noon.Add(123*time.Minute))
	if wait := at(124*time.Minute, "often"); wait != nil {
		t.Errorf("Ask() = %+v, want a slot", wait)
	}
	if s.Request("once") == nil {
		t.Error("the request that was not repeated has lost its place within a day")
	}
	at(26*time.Hour, "new")
	if s.Request("once") != nil {
		t.Error("the request that was not repeated for a day is still there")
	}
}

// TestHowLongARequestKeepsASlotFree has another client that asks for the slot some time after the last repetition.
func TestHowLongARequestKeepsASlotFree(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		by      slots.ClientType
		every   time.Duration // time between the last two repetitions
		keeps   time.Duration // longest age of a request that keeps the slot free
		forever bool          // it keeps its place after a day
	}{
		"it was made once":                               {by: slots.FleetLock, keeps: 15 * time.Minute},
		"it is repeated every minute":                    {by: slots.FleetLock, every: time.Minute, keeps: 15 * time.Minute},
		"it is repeated every hour":                      {by: slots.FleetLock, every: time.Hour, keeps: 2 * time.Hour},
		"it was repeated once, a day later":              {by: slots.FleetLock, every: 23 * time.Hour, keeps: 2 * time.Hour},
		"it has an interval that no duration can double": {by: slots.FleetLock, every: math.MaxInt64, keeps: 2 * time.Hour},
		"an agent does not repeat hers":                  {by: slots.Agent, keeps: 2 * day, forever: true},
	} {
		t.Run(name, func(t *testing.T) {
			asks := func(age time.Duration) (wait *slots.Wait, waits bool) {
				old := slots.Request{Client: slots.Client{ID: "x", Type: c.by}, Number: 1, Asked: metav1.NewTime(noon), EverySeconds: int64(c.every / time.Second)}
				s := slots.State{Waiting: []slots.Request{old}, Requests: 1}
				wait = s.Ask(client("y"), slots.Policy{Slots: 1}, nil, noon.Add(age))
				return wait, s.Request("x") != nil
			}
			if wait, _ := asks(c.keeps); wait == nil || wait.Reason != slots.Queued {
				t.Errorf("Ask() after %v = %+v, want that the slot is kept free", c.keeps, wait)
			}
			if wait, _ := asks(c.keeps + time.Second); (wait == nil) == c.forever {
				t.Errorf("Ask() a second later = %+v, want that the slot is kept free: %t", wait, c.forever)
			}
			if _, waits := asks(day); !waits {
				t.Error("the request has lost its place after a day")
			}
			if _, waits := asks(day + time.Second); waits != c.forever {
				t.Errorf("the request waits a second later: %t, want %t", waits, c.forever)
			}
		})
	}
}

// TestWhoWaitsUntilNodesAreConfirmed has Nodes that are known up to noon.
func TestWhoWaitsUntilNodesAreConfirmed(t *testing.T) {
	due := func(at time.Duration) map[string]time.Time { return map[string]time.Time{"a1": noon.Add(at)} }
	for name, c := range map[string]struct {
		by     slots.ClientType
		due    map[string]time.Time
		asking string
		waits  bool
	}{
		"an agent that is due earlier":        {slots.Agent, due(-time.Second), "", false},
		"one that is due at that moment":      {slots.Agent, due(0), "", false},
		"one that is due later":               {slots.Agent, due(time.Second), "", true},
		"one that is not due":                 {slots.Agent, map[string]time.Time{}, "", true},
		"Nodes that need no confirmation":     {slots.Agent, nil, "", false},
		"a client that asks":                  {slots.FleetLock, due(time.Second), "a1", true},
		"a client that asks, and waits long":  {slots.FleetLock, due(-time.Second), "a1", false},
		"a client for which a slot is kept":   {slots.FleetLock, due(time.Second), "", false},
		"a client while another client asks":  {slots.FleetLock, due(time.Second), "x", false},
		"an agent while another client asks":  {slots.Agent, due(time.Second), "x", true},
		"an agent that is due, while another": {slots.Agent, due(-time.Second), "x", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := slots.State{Waiting: []slots.Request{{Client: slots.Client{ID: "a1", Type: c.by}, Asked: metav1.NewTime(noon)}}}
			s.Confirm(noon, c.due)
			v := s.Plan(slots.Policy{Slots: 1}, fleet("a1"), noon, c.asking)[0]
			if waits := v.Wait != nil && v.Wait.Reason == slots.Unconfirmed; waits != c.waits || !waits && v.Wait != nil {
				t.Errorf("wait = %+v, want that it waits for Nodes: %t", v.Wait, c.waits)
			}
		})
	}
}

// TestATimeInTheFutureIsReplaced makes a server whose clock is a year ahead record a request.
func TestATimeInTheFutureIsReplaced(t *testing.T) {
	p := slots.Policy{Slots: 1}
	var s slots.State
	s.Ask(client("x"), p, nil, noon)
	s.Ask(client("y"), p, nil, noon.AddDate(1, 0, 0))
	s.Ask(client("y"), p, nil, noon.Add(time.Minute))
	if got := s.Request("y").Asked; !got.Time.Equal(noon.Add(time.Minute)) {
		t.Errorf("asked = %v, want the time of the server that is right", got)
	}
}

func TestHowASlotBecomesFree(t *testing.T) {
	nodes := fleet("a1")
	p := slots.Policy{Slots: 1, MaxUnavailable: part(t, "100%")}
	for name, c := range map[string]struct {
		free  func(*slots.State, time.Time) bool
		want  slots.Release
		holds bool
	}{
		"given back": {
			free: func(s *slots.State, now time.Time) bool { return s.GiveBack("a1", now) },
			want: slots.Release{Cause: slots.GivenBack, By: "fleetlock"},
		},
		"released": {
			free: func(s *slots.State, now time.Time) bool { return s.Release("a1", "anna", "disk\nbroken", now) },
			want: slots.Release{Cause: slots.Released, By: "anna", Reason: "disk broken"},
		},
		"Node deleted": {
			free: func(s *slots.State, now time.Time) bool {
				return s.Free(s.Holders[0], slots.NodeDeleted, "server-1", now)
			},
			want: slots.Release{Cause: slots.NodeDeleted, By: "server-1"},
		},
		"another Node deleted": {
			free: func(s *slots.State, now time.Time) bool {
				h := s.Holders[0]
				h.UID = "another"
				return s.Free(h, slots.NodeDeleted, "server-1", now)
			},
			holds: true,
		},
		"another one given back": {free: func(s *slots.State, now time.Time) bool { return s.GiveBack("a2", now) }, holds: true},
		"another one released":   {free: func(s *slots.State, now time.Time) bool { return s.Release("a2", "anna", "", now) }, holds: true},
		"time":                   {free: func(s *slots.State, now time.Time) bool { s.Ask(client("a2"), p, nodes, now); return false }, holds: true},
	} {
		t.Run(name, func(t *testing.T) {
			var s slots.State
			s.Ask(client("a1"), p, nodes, noon)
			s.Ask(client("x"), p, nodes, noon) // it waits
			if h := s.Holder("a1"); h == nil || h.Node != "a1" || h.UID != "uid-1" || h.Zone != "a" || h.BootID != "boot-1" || !h.Since.Time.Equal(noon) {
				t.Fatalf("holder = %+v, want a1 with its Node", h)
			}
			freed := c.free(&s, noon.AddDate(1, 0, 0))
			if holds := s.Holder("a1") != nil; holds != c.holds || freed == c.holds {
				t.Fatalf("holds = %t, freed = %t, want %t", holds, freed, c.holds)
			}
			if c.holds {
				return
			}
			since := metav1.NewTime(noon)
			c.want.ID, c.want.Node, c.want.Held, c.want.At = "a1", "a1", &since, metav1.NewTime(noon.AddDate(1, 0, 0))
			if got := s.Releases[0]; fmt.Sprint(got.Held, got) != fmt.Sprint(c.want.Held, got) || got.Cause != c.want.Cause || got.By != c.want.By || got.Reason != c.want.Reason || got.Node != "a1" {
				t.Errorf("release = %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestTheLastReleasesAreKept(t *testing.T) {
	var s slots.State
	for i := range 25 {
		id := fmt.Sprint("x", i)
		s.Ask(client(id), slots.Policy{Slots: 1}, nil, noon)
		s.GiveBack(id, noon)
	}
	if len(s.Releases) != 10 || s.Releases[0].ID != "x24" || s.Releases[9].ID != "x15" {
		t.Errorf("releases = %+v, want the last ten, newest first", s.Releases)
	}
}

// TestReleasesByPersonsOutliveOthers has a person who releases slots, and then many clients that give theirs back.
func TestReleasesByPersonsOutliveOthers(t *testing.T) {
	var s slots.State
	for i := range 60 {
		id := fmt.Sprint("x", i)
		s.Ask(client(id), slots.Policy{Slots: 1}, nil, noon)
		if i < 15 {
			s.Release(id, "anna", "broken", noon)
		} else {
			s.GiveBack(id, noon)
		}
	}
	if len(s.Releases) != 20 || s.Releases[0].ID != "x59" || s.Releases[9].ID != "x50" || s.Releases[10].ID != "x14" || s.Releases[19].ID != "x5" {
		t.Errorf("releases = %+v, want the last ten of each kind, newest first", s.Releases)
	}
}

// agents returns requests, such as "a1=r1" for request r1 of Node a1. With a "-" in front, it is paused.
func agents(texts ...string) []slots.AgentRequest {
	var requests []slots.AgentRequest
	for _, text := range texts {
		text, paused := strings.CutPrefix(text, "-")
		id, request, _ := strings.Cut(text, "=")
		requests = append(requests, slots.AgentRequest{Client: slots.Client{ID: id, Type: slots.Agent, Reason: "kernel", Request: request}, Paused: paused})
	}
	return requests
}

// ids returns the IDs of clients and requests, such as "a1=r1".
func ids[T any](list []T, client func(T) slots.Client) (ids []string) {
	for _, c := range list {
		ids = append(ids, client(c).ID+"="+client(c).Request)
	}
	return ids
}

func self(c slots.Client) slots.Client { return c }

func ofRequest(r slots.Request) slots.Client { return r.Client }

// TestAgentsGetSlotsInOrder checks that agents keep their order without repeating their requests.
func TestAgentsGetSlotsInOrder(t *testing.T) {
	nodes := fleet("a1", "a2", "a3", "b1")
	open := slots.Policy{Slots: 2, OneZoneAtATime: true, MaxUnavailable: part(t, "100%")}
	var s slots.State
	s.UpdateQueue(agents("a1=1", "b1=1"), slots.Policy{}, nil, noon)
	s.UpdateQueue(agents("a2=1", "b1=1", "a1=1", "a3=1"), slots.Policy{}, nil, noon)
	later := noon.AddDate(0, 1, 0)
	next := func(what string, want ...string) {
		t.Helper()
		if got := ids(s.Grant(open, nodes, later), self); !slices.Equal(got, want) {
			t.Errorf("Grant() = %v, want %s: %v", got, what, want)
		}
	}
	free := func(id string) {
		t.Helper()
		if !s.Free(*s.Holder(id), slots.GivenBack, "agent", later) {
			t.Errorf("Free(%s) = false", id)
		}
	}
	next("those of the zone of the oldest request, as they waited before", "a1=1", "a2=1")
	if s.GiveBack("a1", later) || s.GiveBack("b1", later) {
		t.Error("a FleetLock client gives back what an agent has")
	}
	if wait := s.Ask(client("a1"), open, nodes, later); wait == nil || wait.Reason != slots.OtherClient {
		t.Errorf("Ask() by FleetLock = %+v, want that the agent of that host holds the slot", wait)
	}
	free("a1")
	next("the last of the zone", "a3=1")
	free("a2")
	free("a3")
	next("the other zone", "b1=1")
	if s.Holder("b1").Reason != "kernel" {
		t.Errorf("holder = %+v, want its reason", s.Holder("b1"))
	}
}

func TestWhichAgentsWait(t *testing.T) {
	nodes := fleet("a1", "a2", "a3", "b1")
	one := slots.Policy{Slots: 1, OneZoneAtATime: true, MaxUnavailable: part(t, "100%")}
	for name, c := range map[string]struct {
		requests [][]slots.AgentRequest // arguments of successive calls of UpdateQueue
		waiting  []string
		granted  []string
	}{
		"a paused one keeps its place, and bars nobody": {[][]slots.AgentRequest{agents("-b1=1", "a1=1"), agents("a2=1", "a1=1", "-b1=1")}, []string{"b1=1", "a1=1", "a2=1"}, []string{"a1=1"}},
		"it is first when it is paused no longer":       {[][]slots.AgentRequest{agents("-b1=1", "a1=1"), agents("a1=1", "b1=1")}, []string{"b1=1", "a1=1"}, []string{"b1=1"}},
		"it is last if it pauses when a slot is kept":   {[][]slots.AgentRequest{agents("b1=1", "a1=1"), agents("-b1=1", "a1=1"), agents("b1=1", "a1=1")}, []string{"a1=1", "b1=1"}, []string{"a1=1"}},
		"it keeps its place if none is kept for it":     {[][]slots.AgentRequest{agents("a2=1", "b1=1", "a1=1"), agents("a2=1", "-b1=1", "a1=1"), agents("b1=1", "a1=1")}, []string{"b1=1", "a1=1"}, []string{"b1=1"}},
		"it loses its place when it is withdrawn":       {[][]slots.AgentRequest{agents("b1=1", "a1=1"), agents("a1=1"), agents("b1=1", "a1=1")}, []string{"a1=1", "b1=1"}, []string{"a1=1"}},
		"a new request of a host is a new one":          {[][]slots.AgentRequest{agents("b1=1", "a1=1"), agents("b1=2", "a1=1")}, []string{"a1=1", "b1=2"}, []string{"a1=1"}},
		"one without a Node gets none":                  {[][]slots.AgentRequest{agents("x=1", "a1=1")}, []string{"x=1", "a1=1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var s slots.State
			for i, requests := range c.requests {
				s.UpdateQueue(requests, one, nodes, noon.Add(time.Duration(i)*time.Minute))
			}
			if got := ids(s.Waiting, ofRequest); !slices.Equal(got, c.waiting) {
				t.Errorf("waiting = %v, want %v", got, c.waiting)
			}
			if got := ids(s.Grant(one, nodes, noon), self); !slices.Equal(got, c.granted) {
				t.Errorf("Grant() = %v, want %v", got, c.granted)
			}
		})
	}
}

// TestAHostHasOneSlotOfAllGroups has an agent and a FleetLock client that hold slots of another group.
func TestAHostHasOneSlotOfAllGroups(t *testing.T) {
	nodes := fleet("a1", "a2", "a3")
	p := slots.Policy{Group: controlplane.DefaultRebootGroup, Slots: 4, MaxUnavailable: part(t, "100%")}
	var other slots.State
	other.UpdateQueue(agents("a1=1"), slots.Policy{}, nil, noon)
	other.Grant(p, nodes, noon)
	other.Ask(client("a2"), p, nodes, noon)
	others := map[string]slots.State{"other": other}
	s := slots.State{}.Beside(others)
	if wait := s.Ask(client("a1"), p, nodes, noon); wait == nil || wait.Reason != slots.OtherClient || !strings.Contains(wait.Message, "holds a slot of group other") {
		t.Errorf("Ask() for a host whose agent holds another slot = %+v, want none", wait)
	}
	if wait := s.Ask(client("a2"), p, nodes, noon); wait != nil {
		t.Errorf("Ask() by a FleetLock client for another group = %+v, want a slot", wait)
	}
	s = slots.State{}.Beside(others)
	s.UpdateQueue(agents("a1=2", "a2=1", "a3=1"), slots.Policy{}, nil, noon)
	if got := ids(s.Grant(p, nodes, noon), self); !slices.Equal(got, []string{"a3=1"}) {
		t.Errorf("Grant() = %v, want a slot only for the host that has none", got)
	}
	s = s.Beside(nil)
	if got := ids(s.Grant(p, nodes, noon), self); !slices.Equal(got, []string{"a1=2", "a2=1"}) {
		t.Errorf("Grant() = %v, want the older requests once the other slots are free", got)
	}
}

// TestASlotOfAnAgentIsNamedFirst has clients that hold slots of several groups: the slot of an agent is named, else
// that of the first group.
func TestASlotOfAnAgentIsNamedFirst(t *testing.T) {
	p := slots.Policy{Group: controlplane.DefaultRebootGroup, Slots: 4, MaxUnavailable: part(t, "100%")}
	for name, c := range map[string]struct {
		others map[string]slots.ClientType
		want   string // the group that is named
	}{
		"the agent's group is the first": {map[string]slots.ClientType{"a": slots.Agent, "b": slots.FleetLock}, "a"},
		"the agent's group is the last":  {map[string]slots.ClientType{"a": slots.FleetLock, "b": slots.Agent}, "b"},
		"no agent has a slot":            {map[string]slots.ClientType{"a": slots.FleetLock, "b": slots.FleetLock, "c": slots.FleetLock}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			others := map[string]slots.State{}
			for group, by := range c.others {
				others[group] = slots.State{Holders: []slots.Holder{{Client: slots.Client{ID: "a1", Type: by}}}}
			}
			for range 20 { // the order of a map is random
				s := slots.State{}.Beside(others)
				s.UpdateQueue(agents("a1=1"), slots.Policy{}, nil, noon)
				v := s.Plan(p, fleet("a1"), noon, "")
				if v[0].Wait == nil || v[0].Wait.Reason != slots.OtherClient || !strings.Contains(v[0].Wait.Message, "a slot of group "+c.want+",") {
					t.Fatalf("wait = %+v, want that the host holds a slot of group %s", v[0].Wait, c.want)
				}
			}
		})
	}
}

func TestWhichSlotsAreTheSame(t *testing.T) {
	slot := slots.Holder{Client: slots.Client{ID: "a1", Type: slots.Agent, Request: "1"}, Number: 1, Since: metav1.NewTime(noon), Node: "a1", UID: "uid-1"}
	if same := slot; !slot.Is(&same) {
		t.Error("a slot is not the same as its copy")
	}
	if slot.Is(nil) {
		t.Error("a slot is the same as none")
	}
	for name, change := range map[string]func(*slots.Holder){
		"another request": func(h *slots.Holder) { h.Request = "2" },
		"another number":  func(h *slots.Holder) { h.Number = 2 },
		"no Node":         func(h *slots.Holder) { h.Node = "" },
		"another UID":     func(h *slots.Holder) { h.UID = "uid-2" },
		"another time":    func(h *slots.Holder) { h.Since = metav1.NewTime(noon.Add(time.Second)) },
	} {
		other := slot
		if change(&other); slot.Is(&other) {
			t.Errorf("a slot is the same as one with %s", name)
		}
	}
}

// TestWhatARepetitionStores repeats a request a while after the first one.
func TestWhatARepetitionStores(t *testing.T) {
	for after, c := range map[time.Duration]struct {
		stored bool
		every  int64
	}{
		5*time.Minute - time.Second: {},
		5 * time.Minute:             {stored: true, every: 300},
		time.Hour:                   {stored: true, every: 3600},
		-time.Minute:                {},
		-time.Minute - time.Second:  {stored: true},
	} {
		var s slots.State
		s.Ask(client("x"), slots.Policy{}, nil, noon)
		s.Ask(client("x"), slots.Policy{}, nil, noon.Add(after))
		want := noon
		if c.stored {
			want = noon.Add(after)
		}
		if r := s.Request("x"); !r.Asked.Time.Equal(want) || r.EverySeconds != c.every {
			t.Errorf("after %v: asked = %v, every %d s, want %v, %d", after, r.Asked, r.EverySeconds, want, c.every)
		}
	}
}

func TestAnAgentThatRebootsAlreadyGetsASlot(t *testing.T) {
	nodes := fleet("a1")
	var s slots.State
	for range 2 {
		s.Adopt(agents("a1=1")[0].Client, nodes, noon)
		s.Adopt(agents("x=1")[0].Client, nodes, noon)
	}
	if len(s.Holders) != 1 || s.Holders[0].ID != "a1" || s.Holders[0].Number != 1 || s.Requests != 1 {
		t.Errorf("State = %+v, want one slot, number 1, for the agent with a Node", s)
	}
}

func TestWhyARequestIsNotInTheQueue(t *testing.T) {
	holder, waiting := slots.State{Holders: []slots.Holder{{Client: client("a1")}}}, slots.State{Waiting: []slots.Request{{Client: client("a1")}}}
	for name, c := range map[string]struct {
		state slots.State
		want  slots.WaitReason
	}{
		"its host holds a slot":  {holder, slots.OtherClient},
		"its host waits already": {waiting, slots.OtherClient},
		"the queue is full":      {slots.State{}, slots.QueueFull},
	} {
		if got := c.state.WaitOf("a1").Reason; got != c.want {
			t.Errorf("%s: reason = %s, want %s", name, got, c.want)
		}
	}
}

// TestManyAgentsLeavePlacesForOthers has requests of 1,000 hosts, most of them paused.
func TestManyAgentsLeavePlacesForOthers(t *testing.T) {
	var s slots.State
	var requests []slots.AgentRequest
	for i := range 1000 {
		requests = append(requests, slots.AgentRequest{Client: slots.Client{ID: fmt.Sprint("n", i), Type: slots.Agent, Request: "r"}, Paused: i < 900})
	}
	s.UpdateQueue(requests, slots.Policy{}, nil, noon)
	paused := len(slices.DeleteFunc(slices.Clone(s.Waiting), func(r slots.Request) bool { return !r.Paused }))
	if len(s.Waiting) != 150 || paused != 50 || s.Request("n49") == nil || s.Request("n999") == nil {
		t.Errorf("%d wait, %d of them paused, want 150 with all 100 that are not paused, and the oldest of the others", len(s.Waiting), paused)
	}
	for i := range 50 {
		s.Ask(client(fmt.Sprint("x", i)), slots.Policy{}, nil, noon)
	}
	if len(s.Waiting) != 200 {
		t.Errorf("%d wait, want the FleetLock clients too", len(s.Waiting))
	}
	if wait := s.WaitOf("n800"); wait.Reason != slots.QueueFull {
		t.Errorf("WaitOf() = %+v, want that too many wait", wait)
	}
}

// TestFleetLockClientsLeavePlacesForAgents has many clients, and then a day without them.
func TestFleetLockClientsLeavePlacesForAgents(t *testing.T) {
	var s slots.State
	for i := range 200 {
		s.Ask(client(fmt.Sprint("x", i)), slots.Policy{}, nil, noon)
	}
	if s.UpdateQueue(agents("a1=1"), slots.Policy{}, nil, noon); len(s.Waiting) != 51 || s.Request("a1") == nil {
		t.Errorf("%d wait, want 50 clients and the agent", len(s.Waiting))
	}
	if s.UpdateQueue(agents("a1=1"), slots.Policy{}, nil, noon.Add(25*time.Hour)); len(s.Waiting) != 1 {
		t.Errorf("%d wait a day later, want the agent", len(s.Waiting))
	}
}

// TestTheLargestGroupFitsIntoAnAnnotation fills all lists with the longest IDs and reasons.
func TestTheLargestGroupFitsIntoAnAnnotation(t *testing.T) {
	nodes := slots.Nodes{}
	id := func(i int) string { return fmt.Sprintf("%04d", i) + strings.Repeat("n", 249) }
	for i := range 400 {
		nodes[id(i)] = slots.Node{Name: id(i), UID: "00000000-0000-4000-8000-000000000000", BootID: "00000000-0000-4000-8000-000000000000", Zone: strings.Repeat("z", 127), Ready: true}
	}
	p := slots.Policy{Slots: slots.MostSlots, MaxUnavailable: part(t, "0")}
	reason := strings.Repeat(`"`, 1000)
	var s slots.State
	last := (*slots.Wait)(nil)
	for i := range 400 {
		last = s.Ask(slots.Client{ID: id(i), Type: slots.FleetLock, Reason: reason}, p, nodes, noon)
	}
	if last == nil || last.Reason != slots.QueueFull {
		t.Errorf("Ask() = %+v, want that no more requests are recorded", last)
	}
	for i := range 20 {
		s.Release(id(i), strings.Repeat("w", 32), reason, noon)
		s.Ask(slots.Client{ID: id(100 + i), Type: slots.FleetLock, Reason: reason}, p, nodes, noon)
		s.Ask(slots.Client{ID: id(300 + i), Type: slots.FleetLock, Reason: reason}, p, nodes, noon.Add(6*time.Minute))
	}
	var requests []slots.AgentRequest
	for i := range 400 {
		requests = append(requests, slots.AgentRequest{Client: slots.Client{ID: id(i), Type: slots.Agent, Reason: reason, Request: strings.Repeat("r", slots.LongestRequest)}, Paused: i >= 100})
	}
	s = slots.State{Releases: s.Releases}
	s.UpdateQueue(requests, slots.Policy{}, nil, noon)
	s.Grant(p, nodes, noon)
	s.UpdateQueue(requests, slots.Policy{}, nil, noon)
	for i := range 400 {
		s.Ask(slots.Client{ID: "x" + id(i)[1:], Type: slots.FleetLock, Reason: reason}, p, nodes, noon)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if most := 250 << 10; len(text) > most || len(s.Holders) != slots.MostSlots || len(s.Waiting) != 200 {
		t.Errorf("%d holders and %d requests take %d bytes, want at most %d: annotations have 256 KiB", len(s.Holders), len(s.Waiting), len(text), most)
	}
}

func TestPartsAndIDs(t *testing.T) {
	for text, of10 := range map[string]int{"0": 0, "3": 3, "10%": 1, "19%": 1, "100%": 10, "0%": 0} {
		if p := part(t, text); p.Of(10) != of10 || p.String() != text {
			t.Errorf("%s of 10 = %d, want %d; as text %s", text, p.Of(10), of10, p)
		}
	}
	for _, text := range []string{"", "-1", "101%", "1.5", "half", "%", "10 %"} {
		if p, err := slots.ParsePart(text); err == nil {
			t.Errorf("ParsePart(%q) = %v, want an error", text, p)
		}
	}
	for id, good := range map[string]bool{
		"c988d2509fdf5cdcbed39037c56406fb": true, "n1.example.com": true, "A:b@c_d-e": true, strings.Repeat("x", 253): true,
		"": false, "a b": false, "a/b": false, "a\n": false, "ä": false, strings.Repeat("x", 254): false,
	} {
		if err := slots.CheckID(id); (err == nil) != good {
			t.Errorf("CheckID(%q) = %v, want it valid: %t", id, err, good)
		}
	}
}

// TestHostsOfSeveralZonesHoldSlotsWhenTheRuleIsNew has a group whose hosts reboot in any zone, until its configuration
// changes.
func TestHostsOfSeveralZonesHoldSlotsWhenTheRuleIsNew(t *testing.T) {
	p, nodes := slots.Policy{Group: controlplane.DefaultRebootGroup, Slots: 4, MaxUnavailable: part(t, "100%")}, fleet("a1", "a2", "b1", "b2", "c1")
	var s slots.State
	for _, id := range []string{"a1", "b1"} {
		if wait := s.Ask(client(id), p, nodes, noon); wait != nil {
			t.Fatalf("Ask(%s) = %+v, want a slot", id, wait)
		}
	}
	p.OneZoneAtATime = true
	for _, id := range []string{"a2", "b2", "c1"} {
		if wait := s.Ask(client(id), p, nodes, noon); wait == nil || wait.Reason != slots.OtherZone {
			t.Errorf("Ask(%s) = %+v, want that it waits for another zone", id, wait)
		}
		s.GiveBack(id, noon)
	}
}
