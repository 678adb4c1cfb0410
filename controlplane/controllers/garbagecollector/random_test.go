package garbagecollector_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/controllertest"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/election"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// held is the finalizer of another program.
const held = "example.com/f"

// people change objects at random: few names, so that they meet each other and the collector.
type people struct {
	store store.Store
	// create stores an object, and gives it a UID if the store does.
	create func(ctx context.Context, kind store.Kind, name string, o *metav1.PartialObjectMetadata) error
	place  place
	claims *claims
	names  int          // times how many names there are
	made   atomic.Int64 // operations that were stored

	mu     sync.Mutex                     // guards recent
	recent []metav1.PartialObjectMetadata // last created
}

// person is one of them.
type person struct {
	*people
	*rand.Rand
}

// place is what objects there are in a store.
type place interface {
	// target is the random name of an object.
	target(p *person) (store.Kind, string)
	// object is a new object of that name.
	object(p *person, kind store.Kind, name string) *metav1.PartialObjectMetadata
	// at is the object that the model has at a path.
	at(path string) (store.Kind, string)
	rules() rules
}

// fleetPlace has Nodes, pods, and people's own kinds, some with namespaces.
type fleetPlace struct{}

func (fleetPlace) rules() rules { return onEtcd }

func (fleetPlace) at(path string) (store.Kind, string) {
	folder, name, _ := strings.Cut(path, "/")
	if folder == store.Nodes.Name {
		return store.Nodes, name
	}
	return store.Objects, name
}

func (fleetPlace) target(p *person) (store.Kind, string) {
	switch n := p.IntN(20); n {
	case 0, 1:
		return store.Nodes, "h" + fmt.Sprint(n)
	case 2:
		return store.Objects, fmt.Sprintf("pods/h%d/n/%c", p.IntN(2), 'a'+p.IntN(p.names))
	case 3, 4, 5, 6:
		return store.Objects, fmt.Sprintf("parts/n/%c", 'a'+p.IntN(4*p.names))
	case 7, 8, 9, 10:
		return store.Objects, fmt.Sprintf("things/m/%c", 'a'+p.IntN(3*p.names))
	}
	return store.Objects, fmt.Sprintf("things/%c", 'a'+p.IntN(6*p.names))
}

func (fleetPlace) object(p *person, kind store.Kind, name string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Thing"}}
	parts := strings.Split(name, "/")
	o.Name, o.UID = parts[len(parts)-1], types.UID(fmt.Sprintf("u%x", p.Uint64()))
	switch {
	case kind.Name == store.Nodes.Name:
		o.APIVersion, o.Kind = "v1", "Node"
	case parts[0] == "pods":
		o.APIVersion, o.Kind, o.Namespace = "v1", "Pod", parts[2]
	case len(parts) == 3:
		o.Namespace = parts[1]
	}
	if parts[0] == "parts" {
		o.Kind = "Part"
	}
	return o
}

// owners are random references: to objects that were created lately, and a few that never existed.
func (p *person) owners(o store.Object) (refs []metav1.OwnerReference) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range []int{0, 1, 1, 1, 1, 2, 2, 3}[p.IntN(8)] {
		owner := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Part"}, ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "never"}}
		switch n := p.IntN(20); {
		case n == 0:
		case n == 1:
			if o.GetUID() == "" { // the store gives it one
				continue
			}
			owner.APIVersion, owner.Kind = o.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
			owner.Name, owner.UID = o.GetName(), o.GetUID()
		case len(p.recent) > 0:
			owner = p.recent[len(p.recent)-1-min(p.IntN(len(p.recent)), p.IntN(len(p.recent)))]
		}
		refs = append(refs, p.reference(&owner))
	}
	return refs
}

// reference is a random reference to an owner.
func (p *person) reference(owner store.Object) metav1.OwnerReference {
	version, kind := owner.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	ref := metav1.OwnerReference{APIVersion: version, Kind: kind, Name: owner.GetName(), UID: owner.GetUID()}
	if p.IntN(3) > 0 {
		block := p.IntN(4) > 0
		ref.BlockOwnerDeletion = &block
	}
	return ref
}

// adds creates a dependent of another type for an object: a watch may show it before a new owner, or
// after the deletion of the owner.
func (p *person) adds(ctx context.Context, owner store.Object) {
	for range 20 {
		kind, name := p.place.target(p)
		o := p.place.object(p, kind, name)
		if o.Kind == owner.GetObjectKind().GroupVersionKind().Kind || owner.GetNamespace() != "" && owner.GetNamespace() != o.Namespace {
			continue
		}
		if _, err := p.store.Get(ctx, kind.Metadata(), name); errors.Is(err, controlplane.ErrNotFound) {
			p.creates(ctx, kind, name, p.reference(owner))
			return
		}
	}
}

// act does something at random.
func (p *person) act(ctx context.Context) {
	kind, name := p.place.target(p)
	o, err := p.store.Get(ctx, kind.Metadata(), name)
	if errors.Is(err, controlplane.ErrNotFound) {
		p.creates(ctx, kind, name)
		return
	}
	if err != nil {
		return
	}
	switch n := p.IntN(100); {
	case n < 40:
		p.ends(ctx, kind, name, o)
	case n < 60:
		p.edits(ctx, kind, name, o, func(o store.Object) { o.SetOwnerReferences(p.owners(o)) })
	case n < 80 && len(o.GetFinalizers()) > 0:
		p.edits(ctx, kind, name, o, release)
	case n < 85 && o.GetDeletionTimestamp() == nil && len(o.GetFinalizers()) == 0:
		p.edits(ctx, kind, name, o, func(o store.Object) { o.SetFinalizers([]string{held}) })
	case n < 90:
		p.removes(ctx, kind, name, o)
	default:
		p.edits(ctx, kind, name, o, func(store.Object) {})
	}
}

// ends requests the deletion of an object, mostly just after a dependent was created.
func (p *person) ends(ctx context.Context, kind store.Kind, name string, o store.Object) {
	if p.IntN(4) > 0 {
		p.adds(ctx, o)
	}
	policies := []metav1.DeletionPropagation{background, background, foreground, foreground, orphan, orphan, ""}
	p.requests(ctx, kind, name, o, policies[p.IntN(len(policies))])
}

// release removes the finalizer of another program.
func release(o store.Object) {
	o.SetFinalizers(slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == held }))
}

func (p *person) creates(ctx context.Context, kind store.Kind, name string, owners ...metav1.OwnerReference) {
	o := p.place.object(p, kind, name)
	if p.IntN(8) == 0 {
		o.Finalizers = append(o.Finalizers, held)
	}
	if p.IntN(30) == 0 {
		o.Finalizers = append(o.Finalizers, []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}[p.IntN(2)])
	}
	o.OwnerReferences = append(owners, p.owners(o)...)
	p.restores(o)
	if p.create(ctx, kind, name, o) != nil {
		return
	}
	p.made.Add(1)
	p.mu.Lock()
	most := 30 * p.names
	p.recent = append(p.recent, *o)
	p.recent = p.recent[max(0, len(p.recent)-most):]
	p.mu.Unlock()
	switch p.IntN(3) {
	case 0:
		p.adds(ctx, o)
	case 1:
		if o, err := p.store.Get(ctx, kind.Metadata(), name); err == nil {
			p.ends(ctx, kind, name, o)
		}
	}
}

// restores gives a new object now and then the UID of the last one of its name, as a person does who puts it
// back. An API server gives UIDs itself. None with a namespace is put back: for a dependent without one, the
// transaction does not compare where it is stored.
func (p *person) restores(o *metav1.PartialObjectMetadata) {
	if p.place.rules().server || p.IntN(3) > 0 || o.Namespace != "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, last := range slices.Backward(p.recent) {
		if last.Kind == o.Kind && last.Namespace == o.Namespace && last.Name == o.Name {
			o.UID = last.UID
			return
		}
	}
}

// writes makes a write to an object in a state, after which it is another one.
func (p *person) writes(kind store.Kind, name string, o, after store.Object, write func(pre store.Preconditions) error) {
	late := p.place.rules().server && store.Released(o, after)
	became := p.claims.try(kind.Folder()+name, revisionOf(o.GetResourceVersion()), late)
	err := write(store.Preconditions{UID: o.GetUID(), Version: o.GetResourceVersion()})
	switch {
	case err == nil:
		p.made.Add(1)
		became <- stored
	case errors.Is(err, controlplane.ErrConflict), errors.Is(err, controlplane.ErrNotFound), errors.Is(err, controlplane.ErrInvalid):
		became <- nobody
	default:
		became <- unknown
	}
}

func (p *person) edits(ctx context.Context, kind store.Kind, name string, o store.Object, edit func(store.Object)) {
	after := o.DeepCopyObject().(store.Object)
	edit(after)
	p.writes(kind, name, o, after, func(pre store.Preconditions) error {
		_, err := p.store.Update(ctx, kind.Metadata(), name, pre, func(o store.Object) error {
			edit(o)
			o.SetAnnotations(map[string]string{"edit": fmt.Sprint(p.Uint64())})
			return nil
		})
		return err
	})
}

func (p *person) requests(ctx context.Context, kind store.Kind, name string, o store.Object, policy metav1.DeletionPropagation) {
	after := o.DeepCopyObject().(store.Object)
	if removed := store.RequestDeletion(after, policy, metav1.Now()); !removed && o.GetDeletionTimestamp() != nil && slices.Equal(after.GetFinalizers(), o.GetFinalizers()) {
		return // it was requested before
	}
	p.writes(kind, name, o, o, func(pre store.Preconditions) error {
		return p.store.Delete(ctx, kind.Metadata(), name, pre, policy)
	})
}

// removes deletes an object whatever its finalizers are.
func (p *person) removes(ctx context.Context, kind store.Kind, name string, o store.Object) {
	server := p.place.rules().server // which alone sets the time of a deletion
	if len(o.GetFinalizers()) == 0 || server && o.GetDeletionTimestamp() == nil {
		p.requests(ctx, kind, name, o, background)
		return
	}
	p.edits(ctx, kind, name, o, func(o store.Object) {
		if now := metav1.Now(); !server {
			o.SetDeletionTimestamp(&now)
		}
		o.SetFinalizers(nil)
	})
}

// replica is a collector that can be killed.
type replica struct {
	*garbagecollector.Controller
	election *election.Election
	stop     func()
}

// slogDiscard is a log that nobody reads.
var slogDiscard = slog.New(slog.DiscardHandler)

// collect runs a collector on a store, as a server does.
func collect(t testing.TB, s store.Store, name string, with ...func(*garbagecollector.Controller)) *replica {
	contact, log := &store.Contact{}, slogDiscard
	c := garbagecollector.New(s, contact, log)
	for _, set := range with {
		set(c)
	}
	e := election.New(s, garbagecollector.Name, name, log)
	quiet := func(error) {}
	loops := []func(context.Context) error{
		func(ctx context.Context) error { return contact.Run(ctx, s.Ping, quiet) },
		func(ctx context.Context) error { return c.Run(ctx, quiet) },
		func(ctx context.Context) error { return e.Run(ctx, c.Lead, quiet) },
	}
	if d, able := s.(garbagecollector.Discoverer); able {
		loops = append(loops, func(ctx context.Context) error { return c.RunKinds(ctx, d, quiet) })
		return &replica{c, e, controllertest.Run(t, loops...)}
	}
	loops = append(loops, func(ctx context.Context) error { return c.RunLookups(ctx, quiet) })
	for _, f := range c.Follows() {
		loops = append(loops, func(ctx context.Context) error { return s.Follow(ctx, f.Kind, f.Scope, f.To) })
	}
	return &replica{c, e, controllertest.Run(t, loops...)}
}

// journal notes all changes of a kind in memory.
type journal struct {
	kind       store.Kind
	all        map[int64]change // by revision
	seen       map[string]int64 // revisions of objects
	unreadable map[string]bool  // names of objects that could not be read at a time
	removed    string
}

func (j *journal) Begin()                          {}
func (j *journal) Synced()                         {}
func (j *journal) Unreadable(name string, _ error) { j.unreadable[name] = true }
func (j *journal) Set(name string, o store.Object) {
	path, revision := j.kind.Folder()+name, revisionOf(o.GetResourceVersion())
	if j.seen[path] < revision { // else it is listed again
		j.seen[path] = revision
		j.all[revision] = change{revision, path, newRecord(path, revision, o)}
	}
}
func (j *journal) Delete(name string) { j.removed = j.kind.Folder() + name }
func (j *journal) Reached(version string) {
	if j.removed != "" {
		j.all[revisionOf(version)] = change{revisionOf(version), j.removed, nil}
		j.removed = ""
	}
}

// slow is the store of a process whose watches are late at times, each by itself.
type slow struct {
	*memory.Process
	seed uint64
}

// Follow implements store.Store.
func (s slow) Follow(ctx context.Context, kind store.Kind, scope store.Scope, to store.Follower) error {
	tracker, _ := to.(store.Tracker)
	return s.Process.Follow(ctx, kind, scope, &late{Tracker: tracker, Rand: rand.New(rand.NewPCG(s.seed, 0))})
}

// late is a Follower that receives changes up to two seconds late, for about half of the time.
type late struct {
	store.Tracker
	*rand.Rand
	next time.Time // when it is late again
}

func (l *late) wait() {
	if time.Now().Before(l.next) {
		return
	}
	time.Sleep(time.Duration(l.IntN(2000)) * time.Millisecond)
	l.next = time.Now().Add(time.Duration(l.IntN(2000)) * time.Millisecond)
}

// Set implements store.Follower.
func (l *late) Set(name string, o store.Object) {
	l.wait()
	l.Tracker.Set(name, o)
}

// Delete implements store.Follower.
func (l *late) Delete(name string) {
	l.wait()
	l.Tracker.Delete(name)
}

// TestRandomOperationsAreCollectedByTheRules has people change objects at random while collectors are
// killed, and judges each write of a collector by the model.
func TestRandomOperationsAreCollectedByTheRules(t *testing.T) {
	rounds := uint64(10)
	if os.Getenv("HOSTLER_TEST_LONG") != "" {
		rounds = 200
	}
	sum := map[string]int{}
	for seed := range rounds {
		synctest.Test(t, func(t *testing.T) {
			for what, n := range runInMemory(t, seed) {
				sum[what] += n
			}
		})
	}
	t.Logf("%v", sum)
	for _, what := range []string{"removal", "removal after a finalizer", "request of deletion", "change of owners", "change of finalizers"} {
		if sum["collector: "+what] == 0 {
			t.Errorf("no %s by a collector", what)
		}
	}
}

func runInMemory(t *testing.T, seed uint64) map[string]int {
	const writers, operations = 6, 150
	s := memory.New(memory.Options{EndsLeases: true})
	var journals []*journal
	for _, kind := range []store.Kind{store.Nodes.Metadata(), store.Objects} {
		j := &journal{kind: kind, all: map[int64]change{}, seen: map[string]int64{}, unreadable: map[string]bool{}}
		journals = append(journals, j)
		go func() { _ = s.Follow(t.Context(), kind, store.AllChanges, j) }()
	}
	var creating sync.Mutex
	crowd := &people{store: s, place: fleetPlace{}, names: 1, claims: newClaims(), create: func(_ context.Context, kind store.Kind, name string, o *metav1.PartialObjectMetadata) error {
		creating.Lock()
		defer creating.Unlock()
		if before, err := s.Peek(kind.Metadata(), name); err == nil && before.GetUID() == o.UID {
			return controlplane.ErrConflict
		}
		s.PutRaw(kind, name, []byte(text(o))) // which may be in the place of another object
		return nil
	}}
	var acting sync.WaitGroup
	for i := range uint64(writers) {
		acting.Go(func() {
			p := &person{crowd, rand.New(rand.NewPCG(seed, i))}
			for range operations {
				p.act(t.Context())
				time.Sleep(time.Duration(p.IntN(400)*p.IntN(2)) * time.Millisecond)
			}
		})
	}
	random := rand.New(rand.NewPCG(seed, writers))
	start := func() (*replica, *memory.Process) {
		m := s.Process()
		return collect(t, slow{m, random.Uint64()}, fmt.Sprint(random.Uint64())), m
	}
	one, oneStore := start()
	two, twoStore := start()
	done := make(chan struct{})
	go func() {
		acting.Wait()
		close(done)
	}()
	for acts := true; acts; {
		select {
		case <-done:
			acts = false
		case <-time.After(time.Duration(random.IntN(4000)) * time.Millisecond):
		}
		switch random.IntN(6) {
		case 0:
			synctest.Wait() // the journals have everything
			s.Relist()
		case 1:
			s.Depose(garbagecollector.Name)
		case 2:
			s.Inject([]memory.Call{memory.Update, memory.Delete}[random.IntN(2)], memory.Fault{LoseAnswer: true, Times: 2})
		case 3, 4: // much changes between a decision and its write
			s.Inject([]memory.Call{memory.Update, memory.Delete}[random.IntN(2)], memory.Fault{Delay: time.Second, Times: 20})
		case 5:
			if !one.election.Status().Leading {
				one, oneStore, two, twoStore = two, twoStore, one, oneStore
			}
			oneStore.Kill()
			one.stop()
			one, oneStore = start()
		}
	}
	s.Heal()
	m := newModel(crowd.claims, onEtcd)
	quiet := func() {
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		all := map[int64]change{}
		for _, j := range journals {
			maps.Copy(all, j.all)
		}
		m.replay(all)
		m.report(t, fmt.Sprint("seed ", seed))
	}
	quiet()
	crowd.releaseAll(t.Context(), m.held())
	quiet()
	return m.counts
}

// report shows what is wrong once all is quiet.
func (m *model) report(t *testing.T, round string) {
	t.Helper()
	for _, list := range [][]string{m.faults, m.left()} {
		for i, fault := range list {
			if i == 3 {
				t.Errorf("%s: and %d more", round, len(list)-i)
				break
			}
			t.Errorf("%s: %s", round, fault)
		}
	}
}

// releaseAll removes the finalizers of other programs from objects.
func (p *people) releaseAll(ctx context.Context, paths []string) {
	last := &person{p, rand.New(rand.NewPCG(0, 0))}
	for _, path := range paths {
		kind, name := p.place.at(path)
		for {
			o, err := p.store.Get(ctx, kind.Metadata(), name)
			if errors.Is(err, controlplane.ErrNotFound) || err == nil && !slices.Contains(o.GetFinalizers(), held) || ctx.Err() != nil {
				break
			}
			if err == nil {
				last.edits(ctx, kind, name, o, release)
			}
		}
	}
}

// TestACircleIsReleasedAtOnceOrOneAfterTheOther has the model judge the release of two objects that own each
// other, and that other programs hold.
func TestACircleIsReleasedAtOnceOrOneAfterTheOther(t *testing.T) {
	object := func(name, owner string, revision int64, finalizers ...string) *record {
		block, now := true, metav1.Now()
		o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Thing"}, ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Finalizers: finalizers, DeletionTimestamp: &now,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Thing", Name: owner, UID: types.UID(owner), BlockOwnerDeletion: &block}},
		}}
		return newRecord("things/"+name, revision, o)
	}
	for second, want := range map[int64]int{3: 0, 4: 1} {
		m := newModel(newClaims(), rules{})
		m.apply(change{1, "things/a", object("a", "b", 1, "example.com/f", "foregroundDeletion")})
		m.apply(change{2, "things/b", object("b", "a", 2, "example.com/f", "foregroundDeletion")})
		m.apply(change{3, "things/a", object("a", "b", 3, "example.com/f")})
		m.apply(change{second, "things/b", object("b", "a", second, "example.com/f")})
		if len(m.faults) != want {
			t.Errorf("released at revisions 3 and %d: faults = %q, want %d", second, m.faults, want)
		}
	}
}
