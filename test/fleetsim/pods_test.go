package fleetsim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/bounded"
)

// pods keeps an object for each pod of a host.
type pods struct {
	store store.Store
	host  *host

	mu   sync.Mutex // guards node
	node types.UID  // empty while there is no Node
}

// podsOfHost is how many pods a host has.
const podsOfHost = 3

func (p *pods) named(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.node = uid
}

func (p *pods) owner() types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.node
}

// run keeps the objects up to date: it creates those that are missing, and deletes those whose deletion
// was requested, because the pod has stopped.
func (p *pods) run(ctx context.Context) error {
	for {
		if err := bounded.Sleep(ctx, 7*time.Second); err != nil {
			return err
		}
		var running []types.UID
		for i := range podsOfHost {
			if uid := p.owner(); uid != "" {
				running = append(running, p.keep(ctx, p.host.w.plan.pod(p.host.name, i, uid)))
			}
		}
		if ticket := p.ticket(running); ticket != nil {
			_, _ = p.store.Create(ctx, tickets, ticket) // mostly, there is one
		}
	}
}

// tickets are objects that belong to pods.
var tickets = store.Kind{
	Name: "tickets", GVK: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Ticket"},
	New:    func() store.Object { return &metav1.PartialObjectMetadata{} },
	NameOf: func(o store.Object) string { return o.GetNamespace() + "/" + o.GetName() },
}

// ticket returns an object that belongs to the first two pods of the host, which tolerate an outage for different times; nil
// if one of them does not run.
func (p *pods) ticket(running []types.UID) store.Object {
	if len(running) < podsOfHost || slices.Contains(running[:2], "") {
		return nil
	}
	ticket := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: p.host.name, Namespace: "default"}}
	for i, uid := range running[:2] {
		ticket.OwnerReferences = append(ticket.OwnerReferences, metav1.OwnerReference{
			APIVersion: "v1", Kind: "Pod", Name: p.host.w.plan.pod(p.host.name, i, "").Name, UID: uid, BlockOwnerDeletion: new(i == 0),
		})
	}
	return ticket
}

// keep keeps the object of one pod, and returns its UID; empty if it does not run. An error is left to the next round.
func (p *pods) keep(ctx context.Context, pod *corev1.Pod) types.UID {
	kind := p.host.w.plan.pods()
	stored, err := p.store.Get(ctx, kind, kind.StoredName(pod))
	switch {
	case errors.Is(err, controlplane.ErrNotFound) && p.host.cordoned(): // the scheduler would create it elsewhere
	case errors.Is(err, controlplane.ErrNotFound):
		if stored, err = p.store.Create(ctx, kind, pod); err == nil {
			return stored.GetUID()
		}
	case err != nil:
	case stored.GetDeletionTimestamp() != nil, stored.GetOwnerReferences()[0].UID != pod.OwnerReferences[0].UID:
		_ = p.store.Delete(ctx, kind, kind.StoredName(pod), store.Preconditions{UID: stored.GetUID()}, "")
	default:
		return stored.GetUID()
	}
	return ""
}

// cordoned reports whether a kubelet runs the pods, and its Node is unschedulable.
func (h *host) cordoned() bool {
	o, err := h.w.store.Peek(store.Nodes, h.name)
	return h.w.plan.Kubelets && err == nil && o.(*corev1.Node).Spec.Unschedulable
}

// forbids returns why a pod may not be evicted; empty if it may.
func (w *world) forbids(pod string) string {
	for host, forbidden := range w.storage.forbidden {
		if forbidden && strings.Contains(pod, host+"-") {
			return "the budget needs all pods of " + host
		}
	}
	return ""
}

// pod returns a pod of a host. It tolerates outages for a short time.
func (p plan) pod(host string, i int, node types.UID) *corev1.Pod {
	seconds := int64(30 + 70*i)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", host, i), Namespace: "default"}}
	pod.Spec.NodeName = host
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds})
	}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: host, UID: node}}
	return pod
}
