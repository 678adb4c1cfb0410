package pods_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/logtest"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status/pods"
)

// store is a store in memory that counts calls, and that fails or is modified by others on demand.
type store struct {
	mu         sync.Mutex
	objects    map[string]controlplane.StoredPod
	revision   int64
	connection int64
	calls      []string
	fault      error
	before     func() // called once before a write
}

func newStore() *store { return &store{objects: map[string]controlplane.StoredPod{}, connection: 1} }

func (s *store) List(_ context.Context, page string) (controlplane.PodPage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, "list")
	if s.fault != nil {
		return controlplane.PodPage{}, s.fault
	}
	list := controlplane.PodPage{Connection: s.connection}
	for _, path := range slices.Sorted(maps.Keys(s.objects)) {
		if (page == "" || path > page) && list.Next == "" {
			if len(list.Pods) == 2 {
				list.Next = list.Pods[1].Path
				continue
			}
			o := s.objects[path]
			o.Version.Connection = s.connection
			list.Pods = append(list.Pods, o)
		}
	}
	return list, nil
}

func (s *store) Put(_ context.Context, path string, value []byte, instead controlplane.PodVersion) (controlplane.StoredPod, error) {
	return s.write("put "+path, path, value, instead)
}

func (s *store) Delete(_ context.Context, path string, version controlplane.PodVersion) (controlplane.StoredPod, error) {
	return s.write("delete "+path, path, nil, version)
}

func (s *store) write(call, path string, value []byte, instead controlplane.PodVersion) (controlplane.StoredPod, error) {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
	if s.fault != nil {
		return controlplane.StoredPod{}, s.fault
	}
	stored := s.objects[path]
	stored.Path = path
	if stored.Version.Mod != 0 {
		stored.Version.Connection = s.connection
	}
	if stored.Version != instead {
		return stored, fmt.Errorf("%s: %w", call, controlplane.ErrConflict)
	}
	if value == nil {
		delete(s.objects, path)
		return controlplane.StoredPod{Path: path}, nil
	}
	s.revision++
	stored.Value, stored.Version.Mod, stored.Version.Connection = value, s.revision, s.connection
	if stored.Version.Create == 0 {
		stored.Version.Create = s.revision
	}
	s.objects[path] = stored
	return stored, nil
}

func (s *store) Current(connection int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return connection == s.connection
}

// fail makes all calls fail.
func (s *store) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = err
}

// set stores an object as another client; nil removes it.
func (s *store) set(path string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value == nil {
		delete(s.objects, path)
		return
	}
	s.revision++
	create := s.objects[path].Version.Create
	if create == 0 {
		create = s.revision
	}
	s.objects[path] = controlplane.StoredPod{Path: path, Value: value, Version: controlplane.PodVersion{Create: create, Mod: s.revision}}
}

func (s *store) edit(t *testing.T, path string, edits ...func(*corev1.Pod)) {
	t.Helper()
	o := s.get(t, path)
	for _, edit := range edits {
		edit(o)
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	s.set(path, text)
}

// get returns a stored object, or nil.
func (s *store) get(t *testing.T, path string) *corev1.Pod {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	stored, found := s.objects[path]
	if !found {
		return nil
	}
	o := &corev1.Pod{}
	if err := json.Unmarshal(stored.Value, o); err != nil {
		t.Fatal(err)
	}
	return o
}

// took returns the calls since the last took.
func (s *store) took() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := strings.Join(s.calls, ", ")
	s.calls = nil
	return calls
}

// desk is a Publisher with its store, in a synctest bubble.
type desk struct {
	*store
	*pods.Publisher
	log     logtest.Book
	unseen  bool
	health  error
	written []bool
	asked   int
	hangs   string // the name of a pod whose network the runtime does not return
}

// run starts a Publisher on a host with these pods, and returns it after its first pass.
func run(t *testing.T, s *store, list ...runtime.Pod) *desk {
	t.Helper()
	d := &desk{}
	d.start(t, s, list...)
	return d
}

func (d *desk) start(t *testing.T, s *store, list ...runtime.Pod) {
	t.Helper()
	d.store = s
	d.Publisher = pods.New(pods.Options{
		Store:  s,
		Node:   func() pods.NodeFacts { return facts().Node },
		Unseen: func() bool { return d.unseen },
		Network: func(_ context.Context, p runtime.Pod) (runtime.PodNetwork, error) {
			d.asked++
			if p.Name == d.hangs {
				return runtime.PodNetwork{}, runtime.ErrUnavailable
			}
			return runtime.PodNetwork{IPs: []string{"10.0.0.7"}}, nil
		},
		Written:   func(w bool) { d.written = append(d.written, w) },
		Heartbeat: func(err error) { d.health = err },
		Log:       d.log.Logger(),
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	d.Named("node-uid")
	d.sees(list...)
}

// sees calls Observe, and waits for the resulting pass.
func (d *desk) sees(list ...runtime.Pod) {
	d.Observe(list)
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("calls %s = %q, want %q", what, got, want)
	}
}

func TestObjectsAreWrittenOnChangeOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newStore(), web())
		expect(t, "at the start", d.took(), "list, put shop/web")
		for range 8 {
			d.sees(web())
			time.Sleep(time.Minute)
		}
		expect(t, "without a change", d.took(), "")
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		expect(t, "after ten minutes", d.took(), "list")
		if d.asked != 1 || !slices.Equal(d.written, []bool{true}) {
			t.Errorf("network requested %d times, written %v, want both once", d.asked, d.written)
		}
		d.sees(web(), web(func(p *runtime.Pod) { p.ID, p.Name = "s2", "db" }))
		expect(t, "with another pod", d.took(), "put shop/db")
		d.sees(web())
		expect(t, "with a pod less", d.took(), "delete shop/db")
		d.sees(web(ended(1)))
		expect(t, "with a pod that has ended", d.took(), "delete shop/web")
		d.sees(web(ended(1)))
		expect(t, "later", d.took(), "")
		if d.health != nil {
			t.Errorf("health = %v, want none", d.health)
		}
	})
}

func TestASandboxThatHangsKeepsNoAddressOfOthersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := web(func(p *runtime.Pod) { p.ID, p.Name = "s2", "db" })
		d := run(t, newStore())
		d.hangs = "web"
		for range 3 {
			d.sees(web(), db)
		}
		if ip := d.get(t, "shop/db").Status.PodIP; ip != "10.0.0.7" {
			t.Errorf("the object of a pod after one whose sandbox hangs has address %q, want 10.0.0.7", ip)
		}
		d.hangs = ""
		d.sees(web(), db)
		if ip := d.get(t, "shop/web").Status.PodIP; ip != "10.0.0.7" || d.asked > 5 {
			t.Errorf("the object of the other has address %q after %d requests, want 10.0.0.7 after 5", ip, d.asked)
		}
	})
}

func TestManyChangesAreOnePassASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newStore())
		d.took()
		for i := range 100 {
			d.Observe([]runtime.Pod{web(func(p *runtime.Pod) { p.Labels = map[string]string{"n": fmt.Sprint(i)} })})
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := strings.Count(d.took(), "put"); n > 4 || d.get(t, "shop/web").Labels["n"] != "99" {
			t.Errorf("%d writes in 2 seconds, labels %v, want one a second and the latest", n, d.get(t, "shop/web").Labels)
		}
	})
}

func TestNothingIsWrittenBeforeNodeAndPodsAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.set("shop/web", []byte("{}"))
		p := pods.New(pods.Options{
			Store: s, Node: func() pods.NodeFacts { return facts().Node }, Unseen: func() bool { return false },
			Network: func(context.Context, runtime.Pod) (runtime.PodNetwork, error) {
				return runtime.PodNetwork{}, runtime.ErrUnsupported
			},
			Heartbeat: func(error) {}, Written: func(bool) {}, Log: slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		time.Sleep(time.Hour)
		p.Observe(nil)
		time.Sleep(time.Hour)
		expect(t, "without a Node", s.took(), "")
		p.Named("u")
		time.Sleep(time.Minute)
		expect(t, "with one", s.took(), "list, delete shop/web")
		cancel()
		<-ended
	})
}

func TestConcurrentWritesOfOthersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newStore(), web())
		relabelled := web(func(p *runtime.Pod) { p.Labels = map[string]string{"app": "v2"} })
		d.edit(t, "shop/web", deleted, disrupted, annotated)
		d.took()
		d.sees(relabelled)
		expect(t, "after a change by another", d.took(), "put shop/web, put shop/web")
		if o := d.get(t, "shop/web"); o.Labels["app"] != "v2" || o.DeletionTimestamp == nil || len(o.Annotations) == 0 || conditionOf(o, corev1.DisruptionTarget).Status != corev1.ConditionTrue {
			t.Errorf("object = %+v, want the label, and what others wrote", o)
		}
		d.before = func() { d.set("shop/web", nil) }
		d.sees(web())
		if o := d.get(t, "shop/web"); o == nil || o.DeletionTimestamp != nil {
			t.Errorf("object after its deletion = %+v, want a new one", o)
		}
		d.edit(t, "shop/web", finalized)
		d.took()
		d.sees()
		expect(t, "of a pod that ends, with a finalizer", d.took(), "delete shop/web, put shop/web")
		if o := d.get(t, "shop/web"); o == nil || o.DeletionTimestamp == nil || o.Status.Phase != corev1.PodFailed {
			t.Errorf("object = %+v, want it marked", o)
		}
		d.edit(t, "shop/web", func(o *corev1.Pod) { o.Labels["app"] = "x" })
		d.took()
		d.sees(web(uid("u2")))
		if d.health == nil || !strings.Contains(d.health.Error(), "shop/web (the object of an earlier pod has finalizers)") {
			t.Errorf("health = %v, want the pod that waits", d.health)
		}
		d.set("shop/web", nil)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if o := d.get(t, "shop/web"); o == nil || o.UID != "u2" || d.health != nil {
			t.Errorf("object = %+v, health %v, want the new one", o, d.health)
		}
	})
}

func TestObjectsWithoutAPodAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		for _, path := range []string{"a/1", "a/2", "a/3", "a/b/c", "", "shop/web"} {
			s.set(path, []byte(`{"apiVersion":"v1","kind":"Pod"`))
		}
		d := run(t, s, web())
		if log := d.log.String(); d.log.Count("found unreadable pod objects") != 1 || strings.Count(log, "unexpected end of JSON input") != 5 || !strings.Contains(log, "and 1 more") {
			t.Errorf("log = %s, want one message that names 5 of 6 objects", log)
		}
		if len(s.objects) != 1 || d.get(t, "shop/web").UID != "u1" {
			t.Errorf("objects = %v, want that of the pod", slices.Collect(maps.Keys(s.objects)))
		}
		d.unseen = true
		d.sees()
		if len(s.objects) != 1 {
			t.Error("the object is gone while a runtime is not seen, want it kept")
		}
		d.sees(web(ended(0)))
		if len(s.objects) != 0 {
			t.Error("the object of a pod that has ended stays, want it gone")
		}
		d.unseen = false
		d.sees(web())
		d.sees()
		if len(s.objects) != 0 {
			t.Error("the object stays, want it gone")
		}
	})
}

// Others may store objects with finalizers, which stay.
func TestManyLargeObjectsOfOthersAreNotAllKeptInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		annotations := map[string]string{} // the limit of memory counts 512 bytes for each value
		for i := range 4000 {
			annotations[strconv.Itoa(i)] = ""
		}
		large, err := json.Marshal(annotations)
		if err != nil {
			t.Fatal(err)
		}
		s := newStore()
		const others = 50
		for i := range others {
			s.set(fmt.Sprintf("a/%d", i), fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"a","name":"%d","finalizers":["x"],"annotations":%s}}`, i, large))
		}
		d := &desk{unseen: true}
		d.start(t, s, web())
		d.took()
		d.unseen = false
		d.sees(web(func(p *runtime.Pod) { p.Labels = map[string]string{"app": "v2"} }))
		calls := d.took()
		if n := strings.Count(calls, "put a/"); n < others/4 || n > others*3/4 {
			t.Errorf("%d objects of others were updated from memory, want a part of %d: they count as 100 MB in memory", n, others)
		}
		if n := strings.Count(calls, "put shop/web"); n != 1 {
			t.Errorf("the object of the pod was written %d times, want once: it is known", n)
		}
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		for i := range others {
			if path := fmt.Sprintf("a/%d", i); d.get(t, path).DeletionTimestamp == nil {
				t.Errorf("object %s is not marked after all were compared", path)
			}
		}
	})
}

// hostler fleet delete and docs/reference/etcd.md mention this time.
func TestAnObjectThatAnotherClientDeletesIsStoredAgainWithinTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newStore(), web())
		d.edit(t, "shop/web", deleted)
		d.set("shop/web", nil)
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if o := d.get(t, "shop/web"); o == nil || o.DeletionTimestamp != nil {
			t.Errorf("object = %+v, want a new one, whose deletion is not requested", o)
		}
	})
}

func TestAfterAnOutageAllIsCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newStore(), web())
		d.took()
		d.fail(fmt.Errorf("put: %w", controlplane.ErrUnavailable))
		d.sees()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := strings.Count(d.took(), ","); n < 60 || n > 95 || !errors.Is(d.health, controlplane.ErrUnavailable) {
			t.Errorf("%d calls in 10 minutes without a store, health %v, want one in some 7 s, and the error", n, d.health)
		}
		d.fail(nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(d.objects) != 0 || d.health != nil {
			t.Errorf("objects = %v, health %v, want none", d.objects, d.health)
		}
		if d.log.Count("cannot update pod objects") != 1 || d.log.Count("updated again") != 1 {
			t.Errorf("log = %s, want the begin and the end", &d.log)
		}

		d.sees(web())
		d.mu.Lock()
		d.connection, d.objects = 2, map[string]controlplane.StoredPod{} // an old backup was restored
		d.mu.Unlock()
		d.took()
		d.sees(web())
		expect(t, "over another connection", d.took(), "list, put shop/web")
	})
}

func TestPodsWithoutAnObjectAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var list []runtime.Pod
		for i := range 8 {
			list = append(list, web(uid(fmt.Sprint(i)), func(p *runtime.Pod) { p.ID = fmt.Sprint(i) }))
		}
		d := run(t, newStore(), list...)
		const want = "7 running pods have no object in the control plane, 1 have: shop/web (an older pod has this name), "
		if d.health == nil || !strings.HasPrefix(d.health.Error(), want) || !strings.HasSuffix(d.health.Error(), "and 2 more") {
			t.Errorf("health = %v, want %s…", d.health, want)
		}
	})
}

func TestAHostThatLeavesRemovesItsObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		d := run(t, s, web(), web(func(p *runtime.Pod) { p.ID, p.Name = "s2", "db" }))
		d.edit(t, "shop/db", finalized)
		d.unseen = true
		if err := d.Remove(t.Context()); err != nil || len(s.objects) != 1 || d.get(t, "shop/db").DeletionTimestamp == nil {
			t.Errorf("Remove() = %v, objects %v, want all removed but that with a finalizer", err, s.objects)
		}
		if !slices.Equal(d.written, []bool{true, true, false}) {
			t.Errorf("Written = %v, want that there are no more", d.written)
		}
	})
}

func TestAHostThatKeepsNoObjectsAnyMoreRemovesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.set("shop/web", []byte("{}"))
		s.fault = controlplane.ErrUnavailable
		done := 0
		p := pods.New(pods.Options{
			Store: s, Heartbeat: func(error) {}, Written: func(bool) { done++ }, Log: slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.RunRemoval(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, "before the Node is this host's", s.took(), "")
		p.Named("u")
		time.Sleep(time.Minute)
		s.fail(nil)
		time.Sleep(2 * time.Minute)
		p.Observe(nil)
		s.took()
		time.Sleep(time.Hour)
		synctest.Wait()
		expect(t, "after the removal", s.took(), "")
		if len(s.objects) != 0 || done != 1 {
			t.Errorf("objects = %v, done %d times, want none, once", s.objects, done)
		}
		cancel()
		<-ended
	})
}

func TestTheObjectsOfANodeThatIsLostAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newStore(), web())
		d.took()
		d.Lost()
		d.sees()
		time.Sleep(time.Hour)
		expect(t, "of a Node that is somebody else's", d.took(), "")
		d.set("shop/theirs", []byte("{}"))
		d.Named("another-uid")
		d.sees(web())
		expect(t, "once it is this host's again", d.took(), "list, delete shop/theirs, put shop/web")
		if owner := d.get(t, "shop/web").OwnerReferences[0].UID; owner != "another-uid" {
			t.Errorf("owner = %s, want the new Node", owner)
		}
	})
}
