//go:build integration && soak

package e2e_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/slots"
)

const (
	// soakPrefix begins the keys of the fleet.
	soakPrefix = "/hostler/"
	// soakSlack is how old the facts of a server may be when it writes.
	soakSlack = 15 * time.Second
	// soakUnavailable is how many of the 50 hosts may be not ready when a slot is given: 4 %. Often as many are away.
	soakUnavailable = 2
)

// soakZone is the zone of a host: of each odd one a, of the others b.
func soakZone(name string) string { return string("ba"[name[len(name)-1]&1]) }

// soakStored is what etcd has, and the rules that each write of a server must keep. The mutex of soakTruth guards it.
type soakStored struct {
	t        testing.TB
	objects  map[string]*metav1.PartialObjectMetadata // by path
	ready    map[string]time.Time                     // since when Nodes are Ready, and not tainted as unreachable
	notReady map[string]time.Time                     // since when Nodes are not Ready
	steps    map[string]controlplane.RebootStep       // of the reboots, by host
	holders  map[string]slots.Holder
	adopted  map[string]bool // holders that a restored store did not have
	restored bool            // the store went back to an earlier state at least once
	counts   map[string]int  // what was checked
}

func newSoakStored(t testing.TB) soakStored {
	s := soakStored{t: t, counts: map[string]int{}}
	s.restart()
	return s
}

// restart forgets what is stored, before a list.
func (s *soakStored) restart() {
	s.objects, s.ready, s.notReady = map[string]*metav1.PartialObjectMetadata{}, map[string]time.Time{}, map[string]time.Time{}
	s.steps, s.holders, s.adopted = map[string]controlplane.RebootStep{}, map[string]slots.Holder{}, map[string]bool{}
}

// take records what is stored at a path; nothing if there is no value.
func (s *soakStored) take(path string, value []byte) {
	delete(s.objects, path)
	if o := (&metav1.PartialObjectMetadata{}); json.Unmarshal(value, o) == nil && o.Name != "" {
		s.objects[path] = o
	}
	name, is := strings.CutPrefix(path, "nodes/")
	if path == "slots/default" {
		s.holders = holdersOf(value)
	}
	if !is {
		return
	}
	node := &corev1.Node{}
	_ = json.Unmarshal(value, node) // without one, it is not Ready
	ready := condition(api.Status{Node: node}, corev1.NodeReady).Status == corev1.ConditionTrue
	since(s.notReady, name, !ready && value != nil)
	since(s.ready, name, ready && !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }))
	delete(s.steps, name)
	if r, err := controlplane.RebootOf(node.Annotations); err == nil && r != nil {
		s.steps[name] = r.Step
	}
}

// since records since when something is so.
func since(times map[string]time.Time, name string, is bool) {
	if _, was := times[name]; !is {
		delete(times, name)
	} else if !was {
		times[name] = time.Now()
	}
}

// long reports whether something was so for so long before a write that each server must have known it. A watch may be
// late, so the write has its own time.
func long(times map[string]time.Time, name string, written time.Time) bool {
	since, is := times[name]
	return is && written.Sub(since) > soakSlack
}

func holdersOf(value []byte) map[string]slots.Holder {
	record, holders := slots.Record{}, map[string]slots.Holder{}
	_ = json.Unmarshal(value, &record) // without one, nobody holds a slot
	for _, h := range record.Holders {
		holders[h.ID] = h
	}
	return holders
}

// check checks a write, before take.
func (s *soakStored) check(path string, value []byte) {
	before, after := s.objects[path], &metav1.PartialObjectMetadata{}
	switch {
	case path == "slots/default":
		s.given(holdersOf(value))
	case before == nil || before.DeletionTimestamp != nil || !strings.HasPrefix(path, "objects/"):
	case value == nil:
		s.deleted(path, before)
	case json.Unmarshal(value, after) == nil && after.DeletionTimestamp != nil:
		s.evicted(path, after.DeletionTimestamp.Time)
	}
}

// evicted checks the eviction of a pod: its host must not live.
func (s *soakStored) evicted(path string, at time.Time) {
	host := strings.Split(path, "/")[2]
	if s.counts["pods were evicted"]++; long(s.ready, host, at) {
		s.t.Errorf("%s was evicted, and Node %s is Ready and not tainted since %v", path, host, s.ready[host])
	}
}

// deleted checks the deletion of an object: no owner of it may exist.
func (s *soakStored) deleted(path string, o *metav1.PartialObjectMetadata) {
	s.counts["objects were deleted whose owner was gone"]++
	for _, ref := range o.OwnerReferences {
		if s.exists(ref.UID) {
			s.t.Errorf("%s was deleted, and its owner %s %s exists", path, ref.Kind, ref.Name)
		}
	}
}

func (s *soakStored) exists(uid types.UID) bool {
	for _, o := range s.objects {
		if o.UID == uid {
			return true
		}
	}
	return false
}

// given checks who gets a slot.
func (s *soakStored) given(next map[string]slots.Holder) {
	for name, h := range next {
		if had, held := s.holders[name]; held && had.Is(&h) {
			continue
		}
		s.counts["slots were given"]++
		if s.adopted[name] = s.restored && s.steps[name] != controlplane.RebootWaiting && s.steps[name].NeedsSlot(); s.adopted[name] {
			continue
		}
		if len(next) > soakSlots {
			s.t.Errorf("%s got a slot, and %d hosts have one, of which there are %d", name, len(next), soakSlots)
		}
		for other := range next {
			if soakZone(other) != soakZone(name) && !s.adopted[other] {
				s.t.Errorf("%s of zone %s got a slot, and %s of zone %s has one", name, soakZone(name), other, soakZone(other))
			}
		}
		var missing []string
		for other := range s.notReady {
			if _, holds := next[other]; !holds && long(s.notReady, other, h.Since.Time) {
				missing = append(missing, other)
			}
		}
		if len(missing) > soakUnavailable {
			s.t.Errorf("%s got a slot, and %v are not ready: more than %d", name, missing, soakUnavailable)
		}
	}
}

// left returns what should have been deleted; empty if all is.
func (s *soakStored) left() string {
	for path, o := range s.objects {
		for _, ref := range o.OwnerReferences {
			if strings.HasPrefix(path, "objects/") && !s.exists(ref.UID) {
				return fmt.Sprintf("%s exists, and its owner %s %s does not", path, ref.Kind, ref.Name)
			}
		}
	}
	return ""
}

// tend writes what other parts of a host do, until ctx ends: each host that lives has a pod, and two objects, of which
// one owns the other. It deletes a pod that was evicted.
func (o *soakTruth) tend(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(2 * time.Second)
		for _, op := range o.due() {
			calling, cancel := context.WithTimeout(ctx, 2*time.Second)
			_, _ = o.client.Do(calling, op) // the next round repeats it
			cancel()
		}
	}
}

// due returns the writes that hosts have to do.
func (o *soakTruth) due() (ops []clientv3.Op) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for path, node := range o.stored.objects {
		name, is := strings.CutPrefix(path, "nodes/")
		if _, down := o.isDown[name]; !is || down {
			continue
		}
		create := func(path string, object metav1.Object, ref metav1.OwnerReference) {
			object.SetUID(types.UID(rand.Text()))
			object.SetOwnerReferences([]metav1.OwnerReference{ref})
			value, err := json.Marshal(object)
			if err != nil {
				panic(err)
			}
			none := clientv3.Compare(clientv3.CreateRevision(soakPrefix+path), "=", 0)
			ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{none}, []clientv3.Op{clientv3.OpPut(soakPrefix+path, string(value))}, nil))
		}
		byNode := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}
		podPath, ticketPath := "objects/pods/"+name+"/default/"+name, "objects/tickets/default/"+name
		switch pod := o.stored.objects[podPath]; {
		case pod == nil:
			create(podPath, newPod(name, name, 10), byNode)
		case pod.DeletionTimestamp != nil:
			ops = append(ops, clientv3.OpDelete(soakPrefix+podPath))
		}
		if owner := o.stored.objects[ticketPath]; owner == nil {
			create(ticketPath, ticket(name), byNode)
		} else if path := ticketPath + "-part"; o.stored.objects[path] == nil {
			create(path, ticket(name+"-part"), metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID})
		}
	}
	return ops
}

// ticket returns an object of a kind that people may have.
func ticket(name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Ticket"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
	}
}
