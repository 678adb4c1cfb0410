package garbagecollector_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane/store"
)

// record is a stored object as the model has it.
type record struct {
	path       string // FOLDER/NAME, such as objects/things/n/a
	revision   int64  // of its last write
	kind       schema.GroupKind
	meta       metav1.ObjectMeta
	orphan     bool     // the finalizers of deletions
	foreground bool     //
	held       []string // finalizers of other programs
	// since has the revision of the write with which the object got a reference that it has had ever since.
	since map[string]int64
}

func newRecord(path string, revision int64, o store.Object) *record {
	r := &record{path: path, revision: revision, kind: o.GetObjectKind().GroupVersionKind().GroupKind()}
	r.meta = metav1.ObjectMeta{
		Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(), Annotations: o.GetAnnotations(), Labels: o.GetLabels(),
		OwnerReferences: o.GetOwnerReferences(), Finalizers: o.GetFinalizers(), DeletionTimestamp: o.GetDeletionTimestamp(),
	}
	r.meta.OwnerReferences = slices.DeleteFunc(slices.Clone(r.meta.OwnerReferences), func(ref metav1.OwnerReference) bool {
		host := r.host()
		return host != "" && (ref.Kind != "Node" || ref.Name != host) || strings.HasPrefix(path, "nodes/")
	})
	for _, f := range r.meta.Finalizers {
		switch f {
		case "orphan":
			r.orphan = true
		case "foregroundDeletion":
			r.foreground = true
		default:
			r.held = append(r.held, f)
		}
	}
	return r
}

// ages notes since when the object has had its references. before is its last state, nil for a new object.
func (r *record) ages(before *record) {
	r.since = map[string]int64{}
	for _, ref := range r.meta.OwnerReferences {
		r.since[text(ref)] = r.revision
		if before == nil || before.meta.UID != r.meta.UID {
			continue
		}
		if at, had := before.since[text(ref)]; had {
			r.since[text(ref)] = at
		}
	}
}

func (r *record) deleting() bool { return r.meta.DeletionTimestamp != nil }
func (r *record) waiting() bool  { return r.deleting() && r.foreground && !r.orphan }

// host is the name of the Node whose pod the record is; empty for other objects.
func (r *record) host() string {
	name, found := strings.CutPrefix(r.path, "objects/pods/")
	if !found {
		return ""
	}
	host, _, _ := strings.Cut(name, "/")
	return host
}

func (r *record) String() string {
	var owners []string
	for _, ref := range r.meta.OwnerReferences {
		text := fmt.Sprintf("%s/%s@%s", ref.Kind, ref.Name, ref.UID)
		if ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion {
			text += "!"
		}
		owners = append(owners, text)
	}
	deleting := ""
	if r.deleting() {
		deleting = " deleting"
	}
	return fmt.Sprintf("%s@%s%s finalizers %v owners %v (revision %d)", r.path, r.meta.UID, deleting, r.meta.Finalizers, owners, r.revision)
}

// change is one write to a store. after is nil if the object was removed.
type change struct {
	revision int64
	path     string
	after    *record
}

// role is what an owner is for a dependent.
type role string

// The roles, by Kubernetes' documentation of owners and dependents.
const (
	solid        role = "exists"
	inForeground role = "is being deleted after its dependents"
	orphaning    role = "is being deleted without its dependents"
	absent       role = "is absent"
	unresolvable role = "is in a namespace, and its dependent is not"
)

// model replays all writes to a store in their order, and judges those that a garbage collector has made.
// It knows Kubernetes' rules and nothing of the collector.
type model struct {
	objects map[string]*record
	// removed are the last objects that were removed while they waited for dependents: several of a circle
	// can be removed at a time.
	removed []*record
	// together are the objects that stopped waiting for dependents at the last revision. One transaction on etcd
	// may release several of a circle: each is right by the state that it compares, which is before the
	// transaction, and no order of them is right one after the other.
	together []types.UID
	claims   *claims
	rules    rules
	orphaned map[types.UID]*record // owners that were deleted without their dependents
	past     []past                // of the last moments, for an API server
	revision int64                 // of the last change
	faults   []string
	counts   map[string]int // of writes, by who made them and what they did
	last     []string       // the last changes, for a person
}

// rules are what differs from one store to another.
type rules struct {
	// namespaced are the types whose objects always have a namespace.
	namespaced []schema.GroupKind
	// server says that an API server stores the objects. It gives UIDs, removes objects whose last finalizer
	// has gone, and compares the object that is written, but no other one. See model.excuses and until.
	server bool
	// exact says that it compares other objects nevertheless: a store in memory.
	exact bool
	// unlisted is a type that cannot be listed at times. A deletion in the foreground need not wait for objects
	// that were created meanwhile.
	unlisted schema.GroupKind
}

// onEtcd are the rules of etcd, and of a store in memory.
var onEtcd = rules{namespaced: []schema.GroupKind{{Kind: "Pod"}}}

// past is what an object was before a change.
type past struct {
	at       time.Time
	revision int64 // of the change
	path     string
	before   *record // nil if there was none
}

func newModel(c *claims, r rules) *model {
	return &model{objects: map[string]*record{}, claims: c, rules: r, orphaned: map[types.UID]*record{}, counts: map[string]int{}}
}

// replay takes in all changes that it has not yet, by their revisions.
func (m *model) replay(all map[int64]change) {
	for _, revision := range slices.Sorted(maps.Keys(all)) {
		if revision > m.revision {
			m.apply(all[revision])
		}
	}
}

// apply takes in the next change.
func (m *model) apply(c change) {
	before := m.objects[c.path]
	if c.revision != m.revision {
		m.together = nil
	}
	m.revision = c.revision
	what := describe(before, c.after)
	who := "people"
	if before != nil && (c.after == nil || c.after.meta.UID == before.meta.UID) {
		by := m.claims.take(c.path, before.revision, c)
		if by != stored {
			why := m.judge(before, c.after)
			switch {
			case why == "" && by == unknown:
				who = "people or the collector"
			case why == "":
				who = "collector"
			case by == nobody && m.excuses(c, before):
				who = "collector, as an owner was a moment ago"
			case by == unknown:
				who = "people, or a wrong collector"
			default:
				m.faults = append(m.faults, fmt.Sprintf("revision %d: %s of %s is wrong: %s\n\tafter: %v\n\tlast: %s", c.revision, what, before, why, c.after, strings.Join(m.last, "\n\t\t")))
			}
		}
	}
	if c.after != nil {
		c.after.ages(before)
	}
	if before != nil && before.deleting() && before.orphan && (c.after == nil || !c.after.orphan) {
		m.orphaned[before.meta.UID] = before
	}
	if m.rules.server {
		m.past = append(m.past, past{time.Now(), c.revision, c.path, before})
		m.past = m.past[max(0, len(m.past)-10_000):]
	}
	m.counts[who+": "+what]++
	m.last = append(m.last, fmt.Sprintf("%d %s: %s: %v", c.revision, who, what, cmpOr(c.after, before)))
	m.last = m.last[max(0, len(m.last)-12):]
	if before != nil && before.waiting() && (c.after == nil || !c.after.waiting()) {
		m.removed = append(m.removed, before)
		m.removed = m.removed[max(0, len(m.removed)-100):]
		m.together = append(m.together, before.meta.UID)
	}
	if c.after == nil {
		delete(m.objects, c.path)
	} else {
		m.objects[c.path] = c.after
	}
}

// moment is how long an API server may take from a read of an owner to the write of its dependent, with the
// time that the read counts for: see store.Preconditions.
const moment = 2 * time.Second

// excuses reports whether a write to an object was right by a state that its owners had a moment ago. An API
// server compares no owner in the write. So if a person changes how the deletion of an owner is carried out
// between the read of the owner and the write of its dependent, the write is right by the state that was
// read. The absence of an owner needs no excuse: no object gets its UID again. And when a write has removed the
// last finalizer of an object, the API server removes the object without a comparison with what was written
// meanwhile.
func (m *model) excuses(c change, before *record) bool {
	if !m.rules.server || m.rules.exact {
		return false
	}
	now := m.objects
	defer func() { m.objects = now }()
	m.objects = maps.Clone(now)
	for _, p := range slices.Backward(m.past) {
		if time.Since(p.at) > moment {
			return false
		}
		if p.path == c.path && c.after == nil && p.before != nil && p.before.meta.UID == before.meta.UID && m.judge(p.before, nil) == "" {
			return true
		}
		owner := p.before != nil && p.path != c.path && slices.ContainsFunc(before.meta.OwnerReferences, func(ref metav1.OwnerReference) bool { return names(ref, p.before) })
		if !owner {
			continue
		}
		m.objects[p.path] = p.before
		if m.judge(before, c.after) == "" {
			return true
		}
	}
	return false
}

// lag is how late a watch of an API server may be.
const lag = 10 * time.Second

// until is the revision up to which dependents count when a finalizer of an owner is removed. An API server
// cannot compare that none was created since the check of their kinds, which is up to the owner's version.
// Those that are older than a watch is late count in any case.
func (m *model) until(owner *record) int64 {
	if !m.rules.server {
		return math.MaxInt64
	}
	for _, p := range slices.Backward(m.past) {
		if time.Since(p.at) > lag {
			return max(owner.revision, p.revision)
		}
	}
	return owner.revision
}

func cmpOr(a, b *record) *record {
	if a != nil {
		return a
	}
	return b
}

// describe names a change.
func describe(before, after *record) string {
	switch {
	case before == nil:
		return "creation"
	case after == nil && before.deleting() && len(before.meta.Finalizers) > 0:
		return "removal after a finalizer"
	case after == nil:
		return "removal"
	case after.meta.UID != before.meta.UID:
		return "creation"
	case after.deleting() && !before.deleting():
		return "request of deletion"
	case len(after.meta.OwnerReferences) != len(before.meta.OwnerReferences):
		return "change of owners"
	case len(after.meta.Finalizers) != len(before.meta.Finalizers):
		return "change of finalizers"
	}
	return "change"
}

// judge returns why a collector may not have made a change; empty if it may.
func (m *model) judge(before, after *record) string {
	if after == nil {
		return m.judgeRemoval(before)
	}
	same, now := before.meta.DeepCopy(), after.meta.DeepCopy()
	for _, meta := range []*metav1.ObjectMeta{same, now} {
		meta.OwnerReferences, meta.Finalizers, meta.DeletionTimestamp = nil, nil, nil
	}
	if fmt.Sprint(text(same)) != fmt.Sprint(text(now)) || before.deleting() && !after.deleting() {
		return "it changes what is none of its business"
	}
	removed := without(before.meta.Finalizers, after.meta.Finalizers)
	added := without(after.meta.Finalizers, before.meta.Finalizers)
	owners := refs(before) != refs(after)
	switch {
	case after.deleting() && !before.deleting():
		return m.judgeRequest(before, removed, added, owners)
	case owners && len(removed)+len(added) == 0:
		return m.judgeOwners(before, after)
	case !owners && before.deleting() && len(added) == 0 && len(removed) == 1:
		return m.judgeFinalizer(before, removed[0], m.until(before))
	}
	return "it is no step of a collection"
}

// judgeRemoval judges that an object is removed.
func (m *model) judgeRemoval(o *record) string {
	switch {
	case len(o.held) > 0:
		return "it has finalizers of other programs"
	case !o.deleting() && len(o.meta.Finalizers) > 0:
		return "its deletion was not requested, and it has finalizers"
	case !o.deleting():
		return m.keeps(o)
	case len(o.meta.Finalizers) > 1:
		return "it has several finalizers"
	case len(o.meta.Finalizers) == 1:
		return m.judgeFinalizer(o, o.meta.Finalizers[0], m.until(o))
	case o.host() != "" && m.objects["nodes/"+o.host()] != nil:
		return "its host removes it"
	}
	return ""
}

// judgeRequest judges that the deletion of an object with finalizers is requested.
func (m *model) judgeRequest(o *record, removed, added []string, owners bool) string {
	foreground := slices.ContainsFunc(o.meta.OwnerReferences, func(ref metav1.OwnerReference) bool { return m.role(o, ref) == inForeground })
	switch {
	case owners:
		return "it removes owners and requests deletion"
	case len(removed) > 0:
		return fmt.Sprintf("it removes finalizers %v", removed)
	case len(added) > 1 || len(added) == 1 && (added[0] != "foregroundDeletion" || !foreground):
		return fmt.Sprintf("it adds finalizers %v", added)
	}
	return m.keeps(o)
}

// judgeOwners judges that references to owners are removed.
func (m *model) judgeOwners(before, after *record) string {
	left := slices.Clone(after.meta.OwnerReferences)
	for _, ref := range before.meta.OwnerReferences {
		if i := slices.IndexFunc(left, func(l metav1.OwnerReference) bool { return text(l) == text(ref) }); i >= 0 {
			left = slices.Delete(left, i, i+1)
			continue
		}
		switch r := m.role(before, ref); {
		case r == orphaning:
		case r == absent && m.rules.server && m.orphaned[ref.UID] != nil && owns(m.orphaned[ref.UID], before, false, math.MaxInt64):
		case (r == absent || r == inForeground) && len(after.meta.OwnerReferences) > 0:
		case r == absent || r == inForeground:
			return fmt.Sprintf("its last owner %s/%s %s", ref.Kind, ref.Name, r)
		default:
			return fmt.Sprintf("owner %s/%s@%s %s", ref.Kind, ref.Name, ref.UID, r)
		}
	}
	if len(left) > 0 {
		return "it adds owners"
	}
	return ""
}

// judgeFinalizer judges that a finalizer of an object is removed whose deletion was requested. Dependents
// count that have referred to it since a revision at the latest.
func (m *model) judgeFinalizer(o *record, finalizer string, since int64) string {
	switch finalizer {
	case "orphan":
		if len(o.held) > 0 && !m.rules.server {
			return "dependents that are created before it is gone are to stay"
		}
		if d := m.dependents(o, since); len(d) > 0 {
			return fmt.Sprintf("its dependent %s is to stay", d[0])
		}
	case "foregroundDeletion":
		blocking := m.blocking(o, since)
		circle := func(d *record) bool {
			return (d.waiting() || slices.Contains(m.together, d.meta.UID)) && m.waitsFor(d, o, map[*record]bool{})
		}
		if i := slices.IndexFunc(blocking, func(d *record) bool { return !circle(d) }); i >= 0 {
			return fmt.Sprintf("its dependent %s is to go first", blocking[i])
		}
	default:
		return "finalizer " + finalizer + " belongs to another program"
	}
	return ""
}

// keeps returns why an object is not to be deleted.
func (m *model) keeps(o *record) string {
	if len(o.meta.OwnerReferences) == 0 {
		return "it has no owners"
	}
	for _, ref := range o.meta.OwnerReferences {
		if r := m.role(o, ref); r != absent && r != inForeground {
			return fmt.Sprintf("owner %s/%s@%s %s", ref.Kind, ref.Name, ref.UID, r)
		}
	}
	return ""
}

// role finds an owner. It is in the namespace of its dependent, or in none.
func (m *model) role(o *record, ref metav1.OwnerReference) role {
	found := absent
	if version, err := schema.ParseGroupVersion(ref.APIVersion); err != nil || version.Version == "" || ref.Kind == "" || ref.Name == "" || ref.UID == "" || strings.Contains(ref.Name, "/") {
		return unresolvable // Kubernetes refuses such a reference
	}
	if o.meta.Namespace == "" && slices.Contains(m.rules.namespaced, schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()) {
		found = unresolvable
	}
	for _, owner := range m.objects {
		switch {
		case !names(ref, owner):
		case owner.meta.Namespace != "" && o.meta.Namespace == "":
			found = unresolvable
		case owner.meta.Namespace != "" && owner.meta.Namespace != o.meta.Namespace:
		case owner.deleting() && owner.orphan:
			return orphaning
		case owner.waiting():
			return inForeground
		default:
			return solid
		}
	}
	return found
}

// names reports whether a reference has type, name and UID of an object.
func names(ref metav1.OwnerReference, o *record) bool {
	return ref.UID == o.meta.UID && ref.Name == o.meta.Name && schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() == o.kind
}

// dependents are the objects that have an owner, since a revision at the latest.
func (m *model) dependents(owner *record, since int64) (list []*record) {
	for _, o := range m.objects {
		if owns(owner, o, false, since) {
			list = append(list, o)
		}
	}
	return list
}

// blocking are the dependents that a foreground deletion of the owner waits for.
func (m *model) blocking(owner *record, since int64) (list []*record) {
	for _, o := range m.objects {
		if owns(owner, o, true, since) && (o.kind != m.rules.unlisted || since == math.MaxInt64) {
			list = append(list, o)
		}
	}
	return list
}

// owns reports whether an object refers to an owner that it can have, since a revision at the latest.
func owns(owner, o *record, block bool, since int64) bool {
	return (owner.meta.Namespace == "" || owner.meta.Namespace == o.meta.Namespace) &&
		slices.ContainsFunc(o.meta.OwnerReferences, func(ref metav1.OwnerReference) bool {
			return names(ref, owner) && (!block || ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion) && o.since[text(ref)] <= since
		})
}

// waitsFor reports whether an object waits for another one, over others that wait.
func (m *model) waitsFor(o, other *record, seen map[*record]bool) bool {
	seen[o] = true
	for _, d := range slices.Concat(slices.Collect(maps.Values(m.objects)), m.removed) {
		if owns(o, d, true, math.MaxInt64) && (d == other || d.waiting() && !seen[d] && m.waitsFor(d, other, seen)) {
			return true
		}
	}
	return false
}

// left returns what a collector has not done that nothing hinders.
func (m *model) left() (list []string) {
	for _, o := range m.objects {
		count := map[role]int{}
		for _, ref := range o.meta.OwnerReferences {
			count[m.role(o, ref)]++
		}
		why := ""
		switch {
		case count[orphaning] > 0:
			why = "its owner is being orphaned"
		case o.deleting() && o.orphan:
			if len(o.held) == 0 || m.rules.server {
				why = "nothing hinders its deletion without dependents"
			}
		case o.waiting():
			if m.judgeFinalizer(o, "foregroundDeletion", math.MaxInt64) == "" {
				why = "nothing hinders its deletion in the foreground"
			}
		case o.deleting():
			if m.judgeRemoval(o) == "" {
				why = "nothing hinders its removal"
			}
		case len(o.meta.OwnerReferences) > 0 && m.keeps(o) == "":
			why = "no owner keeps it"
		case count[solid] > 0 && count[solid]+count[unresolvable] < len(o.meta.OwnerReferences):
			why = "it has references to absent owners, and another owner"
		}
		if why != "" {
			list = append(list, fmt.Sprintf("%s is left: %s", o, why))
		}
	}
	slices.Sort(list)
	return list
}

// held are the objects that have finalizers of other programs.
func (m *model) held() (paths []string) {
	for path, o := range m.objects {
		if len(o.held) > 0 {
			paths = append(paths, path)
		}
	}
	return paths
}

func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}

func refs(o *record) string { return text(o.meta.OwnerReferences) }

func text(v any) string {
	t, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(t)
}

// outcome is what became of a write of a person.
type outcome int

// The outcomes.
const (
	nobody  outcome = iota // it was refused
	unknown                // its answer was lost
	stored
)

// claims are the writes that people have made or tried: of which object in which state. Each state of an
// object has one next, so that a claim tells who has made that.
type claims struct {
	mu    sync.Mutex // guards tried
	tried map[state][]claim
}

// claim is a write that was tried.
type claim struct {
	became chan outcome
	// late says that an API server may make it to a later state, too: it removes the last finalizer of an
	// object, see model.excuses.
	late bool
}

type state struct {
	path     string
	revision int64
}

func newClaims() *claims { return &claims{tried: map[state][]claim{}} }

// try notes a write before it is made. The caller sends its outcome.
func (c *claims) try(path string, revision int64, late bool) chan<- outcome {
	became := make(chan outcome, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tried[state{path, revision}] = append(c.tried[state{path, revision}], claim{became, late})
	return became
}

// take returns the outcome of the writes to an object in a state that can have made a change, as soon as it
// is known.
func (c *claims) take(path string, revision int64, made change) outcome {
	c.mu.Lock()
	tried := c.tried[state{path, revision}]
	delete(c.tried, state{path, revision})
	best := nobody
	var waiting []claim
	for _, one := range tried {
		if one.late && made.after != nil {
			next := state{path, made.revision}
			c.tried[next] = append(c.tried[next], one)
		} else {
			waiting = append(waiting, one)
		}
	}
	c.mu.Unlock()
	for _, one := range waiting {
		best = max(best, <-one.became)
	}
	return best
}

// revisionOf is the revision in a resourceVersion of a store in memory or of etcd.
func revisionOf(version string) int64 {
	if parts := strings.Split(version, "-"); len(parts) == 4 {
		version = parts[2]
	}
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		panic(err)
	}
	return revision
}
