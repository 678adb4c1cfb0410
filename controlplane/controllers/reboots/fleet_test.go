package reboots_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// pods is the kind of Kubernetes pods.
var pods = store.Pods(false)

// kubelets simulates the Nodes of a cluster and their pods. An evicted pod ends after its grace period. Pods
// whose names begin with "blocked" cannot be evicted while blocked is true.
type kubelets struct {
	*memory.Store

	mu      sync.Mutex // guards the fields below
	blocked bool
	asked   int           // number of requests to evict a pod
	hidden  metav1.Object // a pod that no watch has reported yet
	noTerm  []string      // keys of objects that were written without a term
}

// process is the store of one server.
type process struct {
	*memory.Process
	kubelets *kubelets
}

func (k *kubelets) process() *process { return &process{k.Process(), k} }

func (k *kubelets) block(is bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.blocked = is
}

// evictions returns how often a server has requested to evict a pod.
func (k *kubelets) evictions() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked
}

// Update implements store.Store.
func (p *process) Update(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, edit func(store.Object) error) (store.Object, error) {
	if pre.Term == (store.Term{}) {
		p.kubelets.mu.Lock()
		p.kubelets.noTerm = append(p.kubelets.noTerm, kind.Key(name))
		p.kubelets.mu.Unlock()
	}
	return p.Process.Update(ctx, kind, name, pre, edit)
}

// Evict implements store.Evicter.
func (p *process) Evict(ctx context.Context, name string, uid types.UID, term store.Term) error {
	p.kubelets.mu.Lock()
	p.kubelets.asked++
	blocked := p.kubelets.blocked && strings.HasPrefix(name, "ns/blocked")
	p.kubelets.mu.Unlock()
	if blocked {
		return &store.BlockedError{Message: "The disruption budget web needs 2 healthy pods and has 2 currently"}
	}
	_, err := p.Update(ctx, pods, name, store.Preconditions{UID: uid, Term: term}, func(o store.Object) error {
		if o.GetDeletionTimestamp() == nil {
			at := metav1.Now()
			o.SetDeletionTimestamp(&at)
			grace := time.Duration(*o.(*corev1.Pod).Spec.TerminationGracePeriodSeconds) * time.Second
			time.AfterFunc(grace, func() { p.ends(name) })
		}
		return nil
	})
	return err
}

// ends removes a pod whose deletion was requested.
func (p *process) ends(name string) {
	if o, err := p.Peek(pods, name); err == nil && o.GetDeletionTimestamp() != nil {
		p.Remove(pods, name)
	}
}

// PodsOn implements store.Evicter.
func (p *process) PodsOn(_ context.Context, node string) ([]metav1.Object, error) {
	p.kubelets.mu.Lock()
	defer p.kubelets.mu.Unlock()
	list := p.kubelets.on(node)
	if p.kubelets.hidden != nil {
		list = append(list, p.kubelets.hidden)
	}
	return list, nil
}

// on returns the pods of a Node.
func (k *kubelets) on(node string) (list []metav1.Object) {
	for _, name := range k.Names(pods) {
		o, err := k.Peek(pods, name)
		if err != nil {
			continue
		}
		if pod := o.(*corev1.Pod); pod.Spec.NodeName == node && pod.Status.Phase != corev1.PodSucceeded {
			list = append(list, pod)
		}
	}
	return list
}

// pod stores a pod with a grace period of 20 seconds.
func (k *kubelets) pod(node, name string, change ...func(*corev1.Pod)) {
	grace := int64(20)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: &grace}}
	for _, c := range change {
		c(pod)
	}
	k.Put(pods, pod)
}

func daemon(p *corev1.Pod) {
	controller := true
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "d", Controller: &controller}}
}

func mirror(p *corev1.Pod) {
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
}

// edit changes a Node, as another client does. It reports whether the Node exists.
func edit(s *memory.Store, name string, change func(*corev1.Node)) bool {
	return s.Edit(store.Nodes, name, func(o store.Object) { change(o.(*corev1.Node)) })
}

// read returns a Node and its reboot slot.
func read(t testing.TB, s *memory.Store, name string) (*corev1.Node, *controlplane.RebootSlot) {
	t.Helper()
	o, err := s.Peek(store.Nodes, name)
	if err != nil {
		return nil, nil
	}
	node := o.(*corev1.Node)
	slot, err := controlplane.RebootSlotOf(node.Annotations)
	if err != nil {
		t.Fatal(err)
	}
	return node, slot
}

// at sets the request and the step of a host.
func at(id string, step controlplane.RebootStep) func(*corev1.Node) {
	return func(n *corev1.Node) {
		now := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
		setRequest(n, controlplane.RebootRequest{ID: id, Step: step, Since: now, Wanted: now, Reason: "kernel", EmptiedByServer: true})
	}
}

func setRequest(n *corev1.Node, r controlplane.RebootRequest) {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, controlplane.AnnotationReboot, string(text))
}

func setReady(status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	}
}

func namesOf(list []metav1.Object) (names []string) {
	for _, o := range list {
		names = append(names, o.GetName())
	}
	slices.Sort(names)
	return names
}

// describe formats a slot for failure messages.
func describe(s *controlplane.RebootSlot) string {
	if s == nil {
		return "none"
	}
	return fmt.Sprintf("%+v", *s)
}
