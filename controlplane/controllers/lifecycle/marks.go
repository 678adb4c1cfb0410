package lifecycle

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane/controllers/executor"
	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
)

// Mark is a pod to be marked as not ready, because its Node is not ready. The pod must still have
// this UID and ResourceVersion.
type Mark struct {
	Pod             string // name of the stored object
	UID             types.UID
	ResourceVersion string
	Node            string
	Since           time.Time // the last transition of the Node's Ready
	Reason          string
}

// Object implements executor.Action.
func (m Mark) Object() string { return podcache.Object(m.Pod) }

// Version implements executor.Action.
func (m Mark) Version() string { return m.ResourceVersion }

// Unready is a Node that is not ready, with its pods.
type Unready struct {
	Host Host
	Pods []podcache.Pod
}

// DecideMarks returns the pods to be marked as not ready. marked has the pods that were marked
// before, with the time when their Node had become not ready. Such a pod is marked again only while
// its Node is Unknown: a live host may report that the pod is ready, although the Node is not.
func DecideMarks(nodes []Unready, marked map[string]time.Time) []Mark {
	var marks []Mark
	for _, n := range nodes {
		unknown := n.Host.Conditions.Ready == corev1.ConditionUnknown
		reason := "its Node reports that it is not ready"
		if unknown {
			reason = "its Node gives no sign of life"
		}
		for _, pod := range n.Pods {
			at, before := marked[pod.Name]
			if !pod.Ready || pod.Ended || !unknown && before && at.Equal(n.Host.ReadySince) {
				continue
			}
			marks = append(marks, Mark{
				Pod: pod.Name, UID: pod.UID, ResourceVersion: pod.Version, Node: n.Host.Name,
				Since: n.Host.ReadySince, Reason: reason,
			})
		}
	}
	return marks
}

// marker marks the pods of Nodes that are not ready, so that they get no traffic.
type marker struct {
	*executor.Executor[Mark]
	store   store.Store
	kind    store.Kind
	contact *store.Contact
	cache   *Cache
	pods    *podcache.Cache
	log     *slog.Logger
	marked  map[string]time.Time // owned by the goroutine of Run

	mu    sync.Mutex // guards marks
	marks []Mark     // of the last decision
}

func newMarker(s store.Store, contact *store.Contact, cache *Cache, pods *podcache.Cache, changed loop.Signal, log *slog.Logger) *marker {
	m := &marker{
		store: s, kind: store.Pods(s.EndsLeases()), contact: contact, cache: cache, pods: pods, log: log,
		marked: map[string]time.Time{},
	}
	m.Executor = executor.New(executor.Job[Mark]{Facts: m.facts, Decide: m.decide, Write: m.write, Done: m.done}, changed, log)
	return m
}

// due returns the marks of the last decision.
func (m *marker) due() []Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.marks
}

// facts returns an error unless Nodes, Leases and pods are known, and recent.
func (m *marker) facts(now time.Time) error {
	if _, err := m.cache.Fresh(m.contact, now); err != nil {
		return err
	}
	_, err := m.pods.Fresh(m.contact, now)
	return err
}

func (m *marker) decide(now time.Time) ([]Mark, time.Time, error) {
	if err := m.facts(now); err != nil {
		return nil, time.Time{}, err
	}
	var nodes []Unready
	unready := map[string]bool{}
	for _, h := range m.cache.unready() {
		n := Unready{h, m.pods.On(h.Name)}
		nodes = append(nodes, n)
		for _, pod := range n.Pods {
			unready[pod.Name] = true
		}
	}
	for name := range m.marked {
		if !unready[name] {
			delete(m.marked, name)
		}
	}
	marks := DecideMarks(nodes, m.marked)
	m.mu.Lock()
	m.marks = marks
	m.mu.Unlock()
	return marks, now.Add(longestMarkWait), nil
}

// longestMarkWait is the longest time between decisions.
const longestMarkWait = 10 * time.Second

// write marks a pod as not ready.
func (m *marker) write(ctx context.Context, term store.Term, mark Mark) error {
	pre := store.Preconditions{UID: mark.UID, Version: mark.ResourceVersion, Term: term}
	_, err := m.store.Update(ctx, m.kind, mark.Pod, pre, store.Editing(func(pod *corev1.Pod) error {
		for i := range pod.Status.Conditions {
			if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				c.Status, c.LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(time.Now()).Rfc3339Copy()
				c.Reason, c.Message = "NodeNotReady", mark.Reason
			}
		}
		return nil
	}))
	return err
}

// done records a stored mark.
func (m *marker) done(mark Mark, log *slog.Logger) {
	m.marked[mark.Pod] = mark.Since
	log.Info("pod marked as not ready", "pod", mark.Pod, "node", mark.Node, "reason", mark.Reason)
}
