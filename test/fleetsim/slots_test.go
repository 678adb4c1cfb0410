package fleetsim

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/slots"
)

// slotTruth is what is true about the slots of the only group. The driver's goroutine owns it.
type slotTruth struct {
	holders  map[string]slots.Holder // as stored
	lost     map[string]time.Time    // when a host last lost its slot
	released map[string]time.Time    // when a person released the slot of a host
	amid     map[string]time.Time    // since when hosts are amid a reboot
	adopted  map[string]bool         // holders whose zone does not count: a restored record did not have them, or they are hostile
	outage   time.Time               // when the store last answered again, or was restored
	restored time.Time               // when the store was last restored
	given    map[string]given        // the last slot of each client
	changed  time.Time               // when a client last got or lost a slot
	members  time.Time               // when a Node was last created or deleted
	granted  map[string]string       // slots that Nodes say are granted
}

// given is when a client got a slot, and how many the policies permitted that the server could have then. A host that got its slot
// back amid its reboot has the time of before.
type given struct {
	at   time.Time
	most int
}

func newSlotTruth() slotTruth {
	return slotTruth{holders: map[string]slots.Holder{}, lost: map[string]time.Time{}, released: map[string]time.Time{}, amid: map[string]time.Time{}, adopted: map[string]bool{}, given: map[string]given{}, granted: map[string]string{}}
}

// notice is how long a host may take to notice that it has lost its slot.
const notice = 15 * time.Second

// group returns the path of the group's record.
func (p plan) group() string {
	if p.Engine == etcd {
		return "slots/" + controlplane.DefaultRebootGroup
	}
	return "leases/hostler-slots-" + controlplane.DefaultRebootGroup
}

// stateOf reads the record of a group.
func stateOf(path string, value []byte) (s slots.State) {
	if value == nil {
		return s
	}
	if strings.HasPrefix(path, "slots/") {
		var r slots.Record
		_ = json.Unmarshal(value, &r)
		return r.State
	}
	var l coordinationv1.Lease
	if json.Unmarshal(value, &l) == nil && l.Annotations[slots.Annotation] != "" {
		_ = json.Unmarshal([]byte(l.Annotations[slots.Annotation]), &s)
	}
	return s
}

// group records the holders of slots, and checks those that are new.
func (t *truth) group(q *request, path string, after []byte) {
	next := map[string]slots.Holder{}
	for _, h := range stateOf(path, after).Holders {
		next[h.ID] = h
	}
	before := t.slots.holders
	for name, h := range before {
		if now, holds := next[name]; !holds || !h.Is(&now) {
			t.slots.lost[name], t.slots.changed = time.Now(), time.Now()
			delete(t.slots.adopted, name)
		}
	}
	t.slots.holders = next
	for _, name := range slices.Sorted(maps.Keys(next)) {
		if had, held := before[name]; q != nil && (!held || !had.Is(new(next[name]))) {
			t.slots.changed = time.Now()
			t.granted(q, name)
			t.w.meets(whenGiven, name, false)
		}
	}
}

// granted checks that a slot may be given to a client now. A host that is amid a reboot, or says so, gets back the
// slot that a restored record does not have.
func (t *truth) granted(q *request, name string) {
	hostile, says := t.of(name).hostile, t.of(name).reboots || time.Since(t.of(name).ended) < slack
	s := t.w.server(q.of.name)
	_, amid := t.slots.amid[name]
	if most, _, _ := s.permits(q.asked, 0); !amid {
		t.slots.given[name] = given{time.Now(), most}
	}
	if (amid || says || hostile) && t.wasRestored {
		t.slots.adopted[name] = true
		return
	}
	members, dead, unseen := 0, []string(nil), []string(nil)
	t.excuse(s)
	for _, h := range t.w.hosts {
		if t.nodes[h.name] == "" {
			continue
		}
		members++
		f := t.of(h.name)
		if _, holds := t.slots.holders[h.name]; holds || f.alive || f.hostile || f.taken || h.copied {
			continue
		}
		if time.Since(f.since) > leaseDuration+t.w.storage.longestAway+30*time.Second {
			dead = append(dead, h.name)
		}
		if f.sign.Before(t.slots.outage) && s.since.Before(t.slots.outage) {
			unseen = append(unseen, h.name)
		}
	}
	if time.Since(t.slots.members) < decideTime { // the server may have counted before
		members = len(t.w.hosts)
	}
	most, unavailable, oneZone := s.permits(q.asked, members)
	if len(t.slots.holders) > most {
		t.w.fail("no more slots than there are", "%s gave %s a slot, and %v hold slots, of which there are %d", q.of.name, name, slices.Sorted(maps.Keys(t.slots.holders)), most)
	}
	if len(dead) > unavailable {
		t.w.fail("no slot while too many are unavailable", "%s gave %s a slot, and of %d hosts %v are dead for long; %d may be", q.of.name, name, members, dead, unavailable)
	}
	if len(unseen) > unavailable {
		t.w.fail("no slot before all were seen alive since the outage", "%s gave %s a slot, %v after the store was back, and of %d hosts %v, which are dead, have given no sign of life since",
			q.of.name, name, time.Since(t.slots.outage).Round(time.Millisecond), members, unseen)
	}
	if t.slots.adopted[name] = hostile; oneZone && !hostile { // its zone is what it says
		t.zones(q, name)
	}
}

// excuse lets hosts not count as amid a reboot that went down for it before the store was restored, and have not
// returned: a server that has started since then cannot know that. They count as not ready.
func (t *truth) excuse(s *server) {
	for name, since := range t.slots.amid {
		if _, holds := t.slots.holders[name]; t.w.host(name) != nil && !holds && !t.of(name).alive && since.Before(t.slots.restored) && s.since.After(t.slots.restored) {
			t.forced(name)
		}
	}
}

// zones checks that a host gets a slot only while hosts of its zone have the other ones.
func (t *truth) zones(q *request, name string) {
	h := t.w.host(t.slots.holders[name].Node)
	for _, other := range slices.Sorted(maps.Keys(t.slots.holders)) {
		if o := t.w.host(t.slots.holders[other].Node); h != nil && o != nil && o.zone != h.zone && !t.slots.adopted[other] {
			t.w.fail("only hosts of one zone have slots", "%s gave %s of zone %s a slot, and %s of zone %s has one", q.of.name, name, h.zone, other, o.zone)
		}
	}
}

// drains records that a host begins to stop its pods for a reboot.
func (t *truth) drains(h *host, all bool) {
	if _, amid := t.slots.amid[h.name]; !amid {
		t.slots.amid[h.name] = time.Now()
	}
	r := h.agent.reboot.Report().Request
	if r != nil && r.Now {
		t.forced(h.name)
	}
	t.count()
	if t.stored(h, r); all {
		t.of(h.name).stops = time.Now()
		t.confirmed(h, r)
	}
}

// stored checks that the step of a reboot that begins is on the disk.
func (t *truth) stored(h *host, r *reboot.Request) {
	if on := h.disk.request(); r != nil && r.Step.Running() && (on == nil || on.ID != r.ID || on.Step != r.Step) {
		t.w.fail("no step begins that is not on the disk", "%s is at step %s of request %s, and its disk has %+v", h.name, r.Step, r.ID, on)
	}
}

// mirrored checks that no Node says that a slot is granted that the record does not have.
func (t *truth) mirrored() {
	for _, name := range slices.Sorted(maps.Keys(t.slots.granted)) {
		held, holds := t.slots.holders[name]
		if !t.of(name).hostile && !(holds && held.UID == t.nodes[name] && held.Name(controlplane.DefaultRebootGroup) == t.slots.granted[name]) {
			t.w.fail("no Node says granted without a slot in the record", "Node %s says that slot %s is granted, and the record has %+v", name, t.slots.granted[name], held)
		}
	}
}

// count checks how many hosts are amid a reboot: not more than there were slots when the last of them got its own, because those
// before had theirs then, too. A host whose slot a person has released does not count.
func (t *truth) count() {
	var amid []string
	var last given
	for _, name := range slices.Sorted(maps.Keys(t.slots.amid)) {
		host, _, _ := strings.Cut(name, " ")
		if at, released := t.slots.released[host]; !released || at.Before(t.slots.amid[name].Add(-notice)) {
			amid = append(amid, name)
			if g := t.slots.given[host]; g.at.After(last.at) {
				last = g
			}
		}
	}
	if len(amid) > last.most {
		t.w.fail("no more hosts reboot at a time than there are slots", "%v are amid a reboot, and there were %d slots %v ago, when the last of them got one", amid, last.most, time.Since(last.at).Round(time.Second))
	}
}

// commanded checks a host that runs its reboot command.
func (t *truth) commanded(h *host, r *reboot.Request) {
	t.stored(h, r)
	t.confirmed(h, r)
	if r != nil && h.wishes.cancels(r.ID, h.starts) {
		t.w.fail("no cancelled reboot goes on", "%s reboots, and a person has cancelled its request %s", h.name, r.ID)
	}
}

// confirmed checks that a host that reboots had a slot when it began to stop the critical pods: after that, it does not
// confirm its slot any more.
func (t *truth) confirmed(h *host, r *reboot.Request) {
	if r == nil || r.Now {
		return
	}
	if held, holds := t.slots.holders[h.name]; holds && held.Client.Request == r.ID {
		return
	}
	if at := t.slots.lost[h.name]; at.IsZero() || t.of(h.name).stops.Sub(at) > notice {
		t.w.fail("no reboot without a slot", "%s reboots, and its request %s has no slot since %v", h.name, r.ID, time.Since(at).Round(time.Second))
	}
}

// forced records that a person makes a host reboot at once, or frees its slot: it does not count any more.
func (t *truth) forced(name string) { t.slots.released[name] = time.Now() }

// progress records what a host writes about its reboot.
func (t *truth) progress(name string, node *corev1.Node) {
	r, err := controlplane.RebootOf(node.Annotations)
	if err != nil || r == nil {
		return
	}
	t.w.host(name).remembers()
	t.w.meets(whenAt(r.Step), name, false)
	f := t.of(name)
	was := f.reboots
	if f.reboots = r.Step.Running(); f.reboots {
		return
	}
	if was {
		f.ended = time.Now()
	}
	if since, amid := t.slots.amid[name]; amid && t.w.host(name).power.commanded != t.w.host(name).boot && r.Since.Time.After(since.Add(-time.Second)) {
		delete(t.slots.amid, name)
	}
}
