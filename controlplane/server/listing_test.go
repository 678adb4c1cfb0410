package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/clones"
	"hostler.io/hostler/controlplane/controllers/eviction"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/controllers/heartbeats"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/controlplane/server/config"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// longList is a store that reports all objects of a kind, but not the end of their list, until that is released.
type longList struct {
	*memory.Store
	kind string

	mu       sync.Mutex // guards the fields below
	released chan struct{}
	relist   context.CancelFunc // ends the Follow of the kind
}

// hold holds the next list, and ends the Follow in progress, as an outage does.
func (l *longList) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.released = make(chan struct{})
	if l.relist != nil {
		l.relist()
	}
}

func (l *longList) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.released)
}

func (l *longList) Follow(ctx context.Context, kind store.Kind, scope store.Scope, to store.Follower) error {
	if kind.Name != l.kind {
		return l.Store.Follow(ctx, kind, scope, to)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.mu.Lock()
	l.relist = cancel
	held := heldFollower{to, ctx, l.released}
	l.mu.Unlock()
	return l.Store.Follow(ctx, kind, scope, held)
}

// heldFollower receives the end of its list when it is released.
type heldFollower struct {
	store.Follower
	ctx      context.Context
	released chan struct{}
}

func (h heldFollower) Synced() {
	select {
	case <-h.released:
		h.Follower.Synced()
	case <-h.ctx.Done():
	}
}

// Reached and Confirmed are not forwarded after the end of the Follow: a list that is held then has not ended.
func (h heldFollower) Reached(version string) {
	if h.ctx.Err() == nil {
		store.Reached(h.Follower, version)
	}
}

func (h heldFollower) Confirmed(at time.Time) {
	if h.ctx.Err() == nil {
		store.Confirmed(h.Follower, at)
	}
}

// kindsAtRunTime is a longList whose kinds are known only at run time.
type kindsAtRunTime struct{ *longList }

func (kindsAtRunTime) Kinds(ctx context.Context) ([]store.Kind, func(store.Kind) bool, error) {
	return discovering{}.Kinds(ctx)
}

// dueEverywhere returns a store in which each controller has something to do, and cannot write it.
func dueEverywhere(t *testing.T, o memory.Options) *memory.Store {
	t.Helper()
	s := memory.New(o)
	request, err := json.Marshal(controlplane.RebootRequest{ID: "r", Step: controlplane.RebootWaiting})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"n1", "n2"} {
		ready(s, name, "a", corev1.ConditionFalse)
		s.Edit(store.Nodes, name, func(o store.Object) {
			node := o.(*corev1.Node)
			node.Annotations = map[string]string{controlplane.AnnotationReboot: string(request), controlplane.AnnotationSameMachine: "gone"}
			node.Spec.Taints = []corev1.Taint{{Key: "example.com/leave", Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{}}}
		})
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	s.Put(store.Pods(o.EndsLeases), pod)
	ticket(s, "t", ownedBy("Ticket", "none", "u"))
	s.PutRaw(store.Below("tickets"), "t2", fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Ticket","metadata":{"name":"t2","uid":"t2"%s}}`, ownedBy("Ticket", "none", "u")))
	s.PutRaw(store.Events, "n1/e", []byte(`{"apiVersion":"v1","kind":"Event","metadata":{"namespace":"default","name":"e"}}`))
	for _, call := range []memory.Call{memory.Create, memory.Update, memory.Delete, memory.Set} {
		s.Inject(call, memory.Fault{Err: fmt.Errorf("disk full")})
	}
	return s
}

// TestAControllerSaysThatItListsItsObjects holds the list of each kind that each controller reads: at the start, and again
// after a decision. Then nothing says that nothing is due.
func TestAControllerSaysThatItListsItsObjects(t *testing.T) {
	for _, c := range []struct {
		controller string
		kind       string
		objects    int  // in the list
		later      bool // kinds are known at run time only
	}{
		{lifecycle.Name, "nodes", 2, false},
		{lifecycle.Name, "leases", 2, false},
		{lifecycle.Name, "pods", 1, false},
		{eviction.Name, "nodes", 2, false},
		{eviction.Name, "pods", 1, false},
		{garbagecollector.Name, "nodes", 2, false},
		{garbagecollector.Name, "leases", 2, false},
		{garbagecollector.Name, "events", 1, false},
		{garbagecollector.Name, "objects", 3, false},
		{garbagecollector.Name, "tickets", 2, true},
		{clones.Name, "nodes", 2, false},
		{heartbeats.Name, "nodes", 2, false},
		{reboots.Name, "nodes", 2, false},
	} {
		t.Run(c.controller+" lists "+c.kind, func(t *testing.T) {
			t.Parallel()
			s := dueEverywhere(t, memory.Options{EndsLeases: !c.later})
			list := &longList{Store: s, kind: c.kind}
			list.hold()
			front := store.Store(list)
			if c.later {
				front = kindsAtRunTime{list}
			}
			r := startOn(t, front, s, func(o *config.Config) { o.Controllers, o.Heartbeats.MaxPerSecond = []string{c.controller}, 0.001 })
			waits := fmt.Sprintf("listing %s: %d so far", c.kind, c.objects)
			// said returns what status and plans say that the controller waits for, if they say the same.
			said := func(s answer.Status) (string, answer.ControllerPlan) {
				state := controller(s, c.controller)
				for _, plan := range decoded[answer.Plan](r, "/v1/fleet/plan").Controllers {
					if plan.Name != c.controller || plan.Waits != state.Waits {
						continue
					}
					if c.controller == garbagecollector.Name && decoded[answer.GarbagePlan](r, "/v1/fleet/gc/plan").Waits != state.Waits {
						break
					}
					return state.Waits, plan
				}
				return "they say different things", answer.ControllerPlan{}
			}
			lists := func(s answer.Status) bool {
				text, _ := said(s)
				return text == waits
			}
			knows := func(s answer.Status) bool {
				text, plan := said(s)
				return text == "" && controller(s, c.controller).Due > 0 && len(plan.Actions) > 0
			}
			r.eventually("it says "+waits, lists)
			for range 5 { // also after a few decisions
				if status := r.status(); !lists(status) {
					t.Fatalf("status = %+v, want %q while the list is held", controller(status, c.controller), waits)
				}
			}
			list.release()
			r.eventually("it says what is due", knows)
			list.hold()
			if c.later { // such a kind is named as one that cannot be listed
				r.eventually("it names the kind", func(s answer.Status) bool {
					return strings.Contains(fmt.Sprint(decoded[answer.GarbagePlan](r, "/v1/fleet/gc/plan").Kinds), "tickets")
				})
			} else {
				r.eventually("it says again "+waits, lists)
			}
			list.release()
			r.eventually("it says again what is due", knows)
		})
	}
}
