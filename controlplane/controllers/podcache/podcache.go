// Package podcache caches, by Node, the facts of a fleet's pods that controllers need.
package podcache

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
)

// Pod has the facts of a pod. It is immutable.
type Pod struct {
	Name        string // as stored: see store.Pods
	UID         types.UID
	Version     string // resourceVersion
	Node        string
	Tolerations []corev1.Toleration
	Ready       bool
	Deleting    bool          // it has a deletionTimestamp
	Held        bool          // it has finalizers
	Ended       bool          // it has succeeded or failed
	Stays       bool          // see Stays
	Grace       time.Duration // the termination grace period
}

// Object returns KIND/NAME of a pod.
func Object(name string) string { return "pods/" + name }

// Cache has the pods of a fleet that are on a Node. It is safe for concurrent use.
type Cache struct {
	changed []loop.Signal
	source  *store.Source

	mu         sync.Mutex // guards the fields below
	pods       map[string]entry
	byNode     map[string]map[string]struct{}
	unreadable map[string]error // unreadable pods, by KIND/NAME
	lists      int
	// tolerations has each list once: most pods have equal tolerations.
	tolerations map[string]*shared
}

// entry is a pod, and the number of the last list that contained it.
type entry struct {
	Pod
	list int
	key  string // of its tolerations
}

// shared is a list of tolerations, and how many pods have it.
type shared struct {
	list []corev1.Toleration
	pods int
}

// New returns an empty cache. It sends the signals after each change that can lead to another
// decision.
func New(changed ...loop.Signal) *Cache {
	c := &Cache{
		changed: changed, pods: map[string]entry{}, byNode: map[string]map[string]struct{}{},
		unreadable: map[string]error{}, tolerations: map[string]*shared{},
	}
	c.source = store.NewSource(store.Pods(false), follower{c})
	return c
}

// Follower returns the follower for pods.
func (c *Cache) Follower() store.Follower { return c.source }

// Fresh returns how recent the pods are: see store.Contact.
func (c *Cache) Fresh(contact *store.Contact, now time.Time) (store.Fresh, error) {
	return contact.Fresh(now, c.source)
}

// On returns the pods of a Node, by name.
func (c *Cache) On(node string) []Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	pods := make([]Pod, 0, len(c.byNode[node]))
	for name := range c.byNode[node] {
		pods = append(pods, c.pods[name].Pod)
	}
	slices.SortFunc(pods, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods
}

// Nodes returns the names of all Nodes that pods are on, in no order. Some of these Nodes may not
// exist.
func (c *Cache) Nodes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.byNode))
}

// Unreadable returns why pods cannot be read, by KIND/NAME.
func (c *Cache) Unreadable() map[string]error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.unreadable)
}

// follower records pods.
type follower struct{ *Cache }

// Begin implements store.Follower.
func (f follower) Begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	clear(f.unreadable)
}

// Set implements store.Follower.
func (f follower) Set(name string, o store.Object) {
	pod := o.(*corev1.Pod)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.unreadable, Object(name))
	before := f.pods[name].Pod
	f.remove(name)
	now := podOf(name, pod)
	if now.Node != "" {
		f.add(now)
	}
	if !now.same(before) {
		f.send()
	}
}

// add records a pod on a Node. The caller has the lock.
func (f follower) add(pod Pod) {
	key := keyOf(pod.Tolerations)
	if f.tolerations[key] == nil {
		f.tolerations[key] = &shared{list: copies(pod.Tolerations)}
	}
	f.tolerations[key].pods++
	pod.Tolerations = f.tolerations[key].list
	if f.byNode[pod.Node] == nil {
		f.byNode[pod.Node] = map[string]struct{}{}
	}
	f.byNode[pod.Node][pod.Name] = struct{}{}
	f.pods[pod.Name] = entry{pod, f.lists, key}
}

// Unreadable implements store.Follower.
func (f follower) Unreadable(name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unreadable[Object(name)] = err
	f.remove(name)
}

// Delete implements store.Follower.
func (f follower) Delete(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.unreadable, Object(name))
	f.remove(name)
	f.send()
}

// Synced implements store.Follower.
func (f follower) Synced() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, e := range f.pods {
		if e.list != f.lists {
			f.remove(name)
		}
	}
	f.send()
}

func (c *Cache) send() {
	for _, s := range c.changed {
		s.Send()
	}
}

// remove forgets a pod. The caller has the lock.
func (c *Cache) remove(name string) {
	e, known := c.pods[name]
	if !known {
		return
	}
	node := e.Node
	delete(c.pods, name)
	if s := c.tolerations[e.key]; s.pods > 1 {
		s.pods--
	} else {
		delete(c.tolerations, e.key)
	}
	delete(c.byNode[node], name)
	if len(c.byNode[node]) == 0 {
		delete(c.byNode, node)
	}
}

// podOf returns the facts of a pod.
func podOf(name string, pod *corev1.Pod) Pod {
	p := Pod{
		Name: name, UID: pod.UID, Version: pod.ResourceVersion, Node: strings.Clone(pod.Spec.NodeName),
		Tolerations: pod.Spec.Tolerations, Deleting: pod.DeletionTimestamp != nil, Held: len(pod.Finalizers) > 0,
		Ended: pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
		Stays: Stays(pod), Grace: corev1.DefaultTerminationGracePeriodSeconds * time.Second,
	}
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		p.Grace = time.Duration(min(max(*s, 0), longestGrace)) * time.Second
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			p.Ready = condition.Status == corev1.ConditionTrue
			break // the first of a type counts, as in Kubernetes
		}
	}
	return p
}

// longestGrace limits a grace period, in seconds: a longer one could overflow a time.Duration.
const longestGrace = 100 * 365 * 24 * 3600

// Stays reports whether a pod stays on its Node in any case: a pod of a DaemonSet, or a mirror pod.
func Stays(pod metav1.Object) bool {
	if _, mirror := pod.GetAnnotations()[corev1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet" && strings.HasPrefix(owner.APIVersion, "apps/")
}

// keyOf returns a text that is the same for equal tolerations only.
func keyOf(tolerations []corev1.Toleration) string {
	var key strings.Builder
	for _, t := range tolerations {
		seconds := "-"
		if t.TolerationSeconds != nil {
			seconds = fmt.Sprint(*t.TolerationSeconds)
		}
		fmt.Fprintf(&key, "%q %q %q %q %s\n", t.Key, t.Operator, t.Value, t.Effect, seconds)
	}
	return key.String()
}

// copies returns a copy, which does not keep the whole pod in memory.
func copies(tolerations []corev1.Toleration) (list []corev1.Toleration) {
	for _, t := range tolerations {
		list = append(list, *t.DeepCopy())
	}
	return list
}

// same reports whether two states of a pod lead to the same decision.
func (p Pod) same(other Pod) bool {
	other.Version = p.Version
	return reflect.DeepEqual(p, other)
}
