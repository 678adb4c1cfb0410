//go:build integration

package etcd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/storetest"
	bed "hostler.io/hostler/test/etcd"
)

// fleetAt returns the store of the server role in a cluster.
func fleetAt(t *testing.T, c *bed.Cluster, prefix string) *etcd.Fleet {
	t.Helper()
	f, err := etcd.NewFleet(etcd.Options{Endpoints: c.Endpoints(), Prefix: prefix, CA: c.CAFile, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// key returns the key of a Node or a Lease in the agents' store.
func key(kind store.Kind, name string) objects.Key {
	return objects.Key{Kind: objects.Kind(kind.Name), Node: name}
}

// agentPut stores an object as an agent does. It repeats a write whose answer was lost, or before which a Lease expired.
func agentPut(ctx context.Context, s *etcd.Store, kind store.Kind, o store.Object) error {
	return served(ctx, func() error { return agentPutOnce(ctx, s, kind, o) }, controlplane.ErrConflict)
}

func agentPutOnce(ctx context.Context, s *etcd.Store, kind store.Kind, o store.Object) error {
	put := objects.Put{}
	if lease, ok := o.(*coordinationv1.Lease); ok {
		put.TTL = time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
	}
	stored, err := s.Get(ctx, key(kind, o.GetName()))
	if err != nil && !errors.Is(err, controlplane.ErrNotFound) {
		return err
	}
	put.Instead = stored.Version
	left := controlplane.MostValues
	if before, err := kind.Decode(o.GetName(), stored.Value, "", &left); err == nil {
		o.SetUID(before.GetUID())
	} else {
		o.SetUID(apitypes.UID(fmt.Sprintf("uid-%d", uids.Add(1))))
	}
	if put.Value, err = kind.Encode(o); err != nil {
		return err
	}
	_, err = s.Put(ctx, key(kind, o.GetName()), put)
	return err
}

// uids counts the UIDs of agents.
var uids atomic.Int64

func TestTheFleetKeepsItsPromises(t *testing.T) {
	t.Parallel()
	f := &fleets{cluster: bed.For(t, bed.Options{})}
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		prefix := f.next()
		agents := f.in(t, prefix)
		return storetest.Backend{
			Store:   fleetAt(t, f.cluster, prefix),
			Another: func(t *testing.T) store.Store { return fleetAt(t, f.cluster, prefix) },
			Put: func(ctx context.Context, kind store.Kind, o store.Object) error {
				if kind.NameOf == nil {
					return agentPut(ctx, agents, kind, o)
				}
				o.SetUID(apitypes.UID(fmt.Sprintf("uid-%d", uids.Add(1))))
				value, err := kind.Encode(o)
				if err != nil {
					return err
				}
				return f.cluster.Put(ctx, prefix+"/objects/"+kind.Name+"/"+kind.NameOf(o), string(value))
			},
			PutUnreadable: func(ctx context.Context, kind store.Kind, name string) error {
				return f.cluster.Put(ctx, prefix+"/"+kind.Name+"/"+name, "{")
			},
			PutSetting: func(ctx context.Context, name, value string) error {
				if value == "" {
					ctl(t, f.cluster, "del", prefix+"/settings/"+name)
					return nil
				}
				return f.cluster.Put(ctx, prefix+"/settings/"+name, value)
			},
		}
	})
}

// seen counts the reports of a Fleet.
type seen struct {
	lists, sets, unreadable, deleted atomic.Int64
	lost                             atomic.Int64 // calls that ended because the connection was lost
	version                          atomic.Value // of the last unreadable object
}

func (s *seen) Begin()                   { s.lists.Add(1) }
func (s *seen) Set(string, store.Object) { s.sets.Add(1) }
func (s *seen) Synced()                  {}
func (s *seen) Delete(string)            { s.deleted.Add(1) }

// Unreadable implements store.Follower.
func (s *seen) Unreadable(_ string, err error) {
	if e, is := errors.AsType[*store.UnreadableError](err); is {
		s.version.Store(e.Version)
	}
	s.unreadable.Add(1)
}

// followed follows until the test ends, and starts again when the connection is lost.
func followed(t *testing.T, f *etcd.Fleet, kind store.Kind, scope store.Scope) *seen {
	t.Helper()
	s := &seen{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		err := f.Follow(ctx, kind, scope, s)
		for ; errors.Is(err, controlplane.ErrUnavailable); err = f.Follow(ctx, kind, scope, s) {
			s.lost.Add(1)
			time.Sleep(50 * time.Millisecond) // between attempts, as a controller does
		}
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow() = %v, want that its context has ended", err)
		}
	})
	return s
}

// reaches waits until a count is at least want.
func reaches(t *testing.T, what string, count *atomic.Int64, want int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d %s", want, what), func(context.Context) bool { return count.Load() >= want })
}

func aNode(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func cordon(o store.Object) error {
	o.(*corev1.Node).Spec.Unschedulable = !o.(*corev1.Node).Spec.Unschedulable
	return nil
}

func TestAFollowSurvivesAMemberThatHangsAndRestarts(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	agents, f := at(t, c), fleetAt(t, c, "/hostler")
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(agentPut(t.Context(), agents, store.Nodes, aNode("n")))
	s := followed(t, f, store.Nodes, store.AllChanges)
	reaches(t, "objects", &s.sets, 1)
	check(served(t.Context(), func() error { return f.Ping(t.Context()) }))

	change := func() {
		t.Helper()
		before := s.sets.Load()
		eventually(t, "a write", func(ctx context.Context) bool {
			_, err := f.Update(ctx, store.Nodes, "n", store.Preconditions{}, cordon)
			return err == nil
		})
		reaches(t, "changes", &s.sets, before+1)
	}
	// hang returns how long the member did not answer.
	hang := func() time.Duration {
		t.Helper()
		check(c.Members[0].Pause())
		began := time.Now()
		err := f.Ping(t.Context())
		check(c.Members[0].Continue())
		if !errors.Is(err, controlplane.ErrUnavailable) {
			t.Errorf("Ping() of a member that hangs = %v, want %q", err, controlplane.ErrUnavailable)
		}
		change()
		return time.Since(began)
	}
	for lists := s.lists.Load(); ; lists = s.lists.Load() {
		took := hang()
		if s.lists.Load() == lists && s.lost.Load() == 0 {
			break
		}
		if took < 10*time.Second { // a busy machine may stop it for longer, and then the connection is closed
			t.Fatalf("lists after a member hung for %v = %d, in %d calls, want the first of one call", took, s.lists.Load(), s.lost.Load()+1)
		}
		s.lost.Store(0)
	}

	lists := s.lists.Load()
	check(c.Members[0].Kill())
	check(c.Run(t.Context()))
	reaches(t, "lists", &s.lists, lists+1)
	change()
}

// listed ends a Follow after its list.
type listed struct {
	seen
	end func()
}

func (l *listed) Synced() { l.end() }

// TestACallerThatGivesUpKeepsTheConnection cancels lists and reads half-way, during a Follow over
// the same connection.
func TestACallerThatGivesUpKeepsTheConnection(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	unlessStalled(t, func(prefix string) (time.Time, error) { return keepsTheConnection(t, c, prefix) })
}

// unlessStalled runs a check in an empty fleet. If it fails, and took so long that a connection may have been closed
// because the machine was busy, it runs in another one, up to five times.
func unlessStalled(t *testing.T, check func(prefix string) (began time.Time, err error)) {
	t.Helper()
	for i := range 5 {
		began, err := check(fmt.Sprint("/fleets/", i))
		if err == nil {
			return
		}
		if took := time.Since(began); took < 10*time.Second || i == 4 {
			t.Fatalf("after %v: %v", took, err)
		}
	}
}

func keepsTheConnection(t *testing.T, c *bed.Cluster, prefix string) (began time.Time, err error) {
	t.Helper()
	agents, f := at(t, c, func(o *etcd.Options) { o.Prefix = prefix }), fleetAt(t, c, prefix)
	if err := agentPut(t.Context(), agents, store.Nodes, aNode("n")); err != nil {
		t.Fatal(err)
	}
	s := followed(t, f, store.Nodes, store.AllChanges)
	reaches(t, "objects", &s.sets, 1)
	began = time.Now()
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		if err := f.Follow(ctx, store.Nodes, store.Deletions, &listed{end: cancel}); !errors.Is(err, context.Canceled) {
			t.Fatalf("Follow() = %v, want that its context has ended", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond/2, cancel)
		_, _ = f.Get(ctx, store.Nodes, "n")
		cancel()
	}
	if _, err := f.Update(patient(t), store.Nodes, "n", store.Preconditions{}, cordon); err != nil {
		t.Fatal(err)
	}
	reaches(t, "objects", &s.sets, 2)
	if lists, lost := s.lists.Load(), s.lost.Load(); lists != 1 || lost != 0 {
		return began, fmt.Errorf("the other Follow has listed %d times and was lost %d times, want one list", lists, lost)
	}
	return began, nil
}

func TestAFollowSurvivesACompaction(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	agents, f := at(t, c), fleetAt(t, c, "/hostler")
	for i := range 450 { // more than two pages
		if err := agentPut(t.Context(), agents, store.Nodes, aNode(fmt.Sprintf("n-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	// Each object of the first list is followed by a compaction to the latest revision.
	ctx, cancel := context.WithCancel(t.Context())
	compacting := &compacting{t: t, c: c, agents: agents}
	ended := make(chan error, 1)
	go func() { ended <- f.Follow(ctx, store.Nodes, store.AllChanges, compacting) }()
	reaches(t, "lists that end", &compacting.synced, 1)
	ctl(t, c, "del", "/hostler/nodes/n-1")
	reaches(t, "deletions", &compacting.deleted, 1)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Follow() = %v, want that its context has ended", err)
	}
	if compacting.lists.Load() < 2 {
		t.Errorf("lists = %d, want a second one after the compaction", compacting.lists.Load())
	}
}

// compacting compacts the store during the first list, after the first page was read.
type compacting struct {
	seen
	t      *testing.T
	c      *bed.Cluster
	agents *etcd.Store
	synced atomic.Int64
}

func (s *compacting) Synced() { s.synced.Add(1) }

func (s *compacting) Set(string, store.Object) {
	if s.sets.Add(1) != 1 {
		return
	}
	if err := agentPut(s.t.Context(), s.agents, store.Nodes, aNode("another")); err != nil {
		s.t.Error(err)
	}
	ctl(s.t, s.c, "compact", "--physical", revision(s.t, s.c))
}

func TestADeposedLeaderWritesNothing(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	agents, f := at(t, c), fleetAt(t, c, "/hostler")
	if err := agentPut(t.Context(), agents, store.Nodes, aNode("n")); err != nil {
		t.Fatal(err)
	}
	first, _, err := f.Elect(patient(t), "lifecycle", "a", time.Hour)
	if err != nil || first == (store.Term{}) {
		t.Fatalf("Elect() = %v, %v, want a term", first, err)
	}
	var stored store.Leader
	text := ctl(t, c, "get", "--print-value-only", "/hostler/elections/lifecycle")
	if err := json.Unmarshal([]byte(text), &stored); err != nil || stored.Candidate != "a" || stored.Since.IsZero() {
		t.Errorf("stored = %s, want the candidate and since when", text)
	}
	write := func(term store.Term) error {
		_, err := f.Update(patient(t), store.Nodes, "n", store.Preconditions{Term: term}, func(o store.Object) error {
			return cordon(o)
		})
		return err
	}
	if err := write(first); err != nil {
		t.Fatalf("Update() of the leader = %v, want no error", err)
	}
	// Between the read and the write of the update, another candidate is elected.
	_, err = f.Update(patient(t), store.Nodes, "n", store.Preconditions{Term: first}, func(o store.Object) error {
		ctl(t, c, "del", "/hostler/elections/lifecycle")
		second, _, err := f.Elect(patient(t), "lifecycle", "a", time.Hour)
		if err != nil || second == (store.Term{}) {
			t.Errorf("Elect() after the deletion = %v, %v, want a term", second, err)
		}
		if err := write(second); err != nil {
			t.Errorf("Update() of the next leader = %v, want no error", err)
		}
		return cordon(o)
	})
	if !errors.Is(err, store.ErrDeposed) || errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("Update() of a deposed leader = %v, want %q", err, store.ErrDeposed)
	}
	if err := f.Extend(patient(t), first); !errors.Is(err, store.ErrDeposed) {
		t.Errorf("Extend() of a deposed leader = %v, want %q", err, store.ErrDeposed)
	}
	if err := f.Resign(patient(t), first); err != nil {
		t.Errorf("Resign() of a deposed leader = %v, want no error", err)
	}
	if leader, err := f.Leader(patient(t), "lifecycle"); err != nil || leader.Candidate != "a" {
		t.Errorf("Leader() after the first has resigned = %v, %v, want the second", leader, err)
	}
	ctl(t, c, "put", "/hostler/elections/lifecycle", "nobody")
	if _, err := f.Leader(patient(t), "lifecycle"); !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), "/hostler/elections/lifecycle") {
		t.Errorf("Leader() of an invalid record = %v, want an error that names the key", err)
	}
}

// TestARestoredBackupDeposesLeaders uses the revisions that the backup has undone for other keys.
func TestARestoredBackupDeposesLeaders(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	agents, f := at(t, c), fleetAt(t, c, "/hostler")
	if err := agentPut(t.Context(), agents, store.Nodes, aNode("n")); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(t.TempDir(), "backup.db")
	if err := c.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	undone, err := f.Update(patient(t), store.Nodes, "n", store.Preconditions{}, cordon)
	if err != nil {
		t.Fatal(err)
	}
	first, _, err := f.Elect(patient(t), "lifecycle", "a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Restore(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	ctl(t, c, "put", "/hostler/nodes/n", `{"metadata":{"name":"n","uid":"another"}}`)
	var second store.Term
	eventually(t, "another leader is elected", func(ctx context.Context) bool {
		second, _, err = f.Elect(ctx, "lifecycle", "b", time.Hour)
		return err == nil
	})
	for why, c := range map[string]struct {
		pre  store.Preconditions
		want error
	}{
		"at a version that is undone": {store.Preconditions{Version: undone.GetResourceVersion()}, controlplane.ErrConflict},
		"under a term that is undone": {store.Preconditions{Term: first}, store.ErrDeposed},
		"under the term":              {store.Preconditions{Term: second}, nil},
	} {
		if _, err := f.Update(patient(t), store.Nodes, "n", c.pre, cordon); !errors.Is(err, c.want) {
			t.Errorf("Update() %s = %v, want %v", why, err, c.want)
		}
	}
}

func TestAFollowOfDeletionsLeavesOutRenewals(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	unlessStalled(t, func(prefix string) (time.Time, error) { return leavesOutRenewals(t, c, prefix) })
}

func leavesOutRenewals(t *testing.T, c *bed.Cluster, prefix string) (began time.Time, err error) {
	t.Helper()
	agents, f := at(t, c, func(o *etcd.Options) { o.Prefix = prefix }), fleetAt(t, c, prefix)
	const leases, ended = 10_000, 7
	versions := make([]objects.Version, leases)
	fill(t, agents, versions)
	began = time.Now()
	s := followed(t, f, store.Leases, store.Deletions)
	reaches(t, "leases", &s.sets, leases)
	fill(t, agents, versions)
	for i := range ended {
		ctl(t, c, "del", fmt.Sprintf("%s/leases/n-%05d", prefix, i))
	}
	reaches(t, "deletions", &s.deleted, ended)
	if s.lists.Load() != 1 || s.sets.Load() != leases || s.deleted.Load() != ended {
		return began, fmt.Errorf("reported %d lists, %d leases, %d deletions, want 1, %d, %d", s.lists.Load(), s.sets.Load(), s.deleted.Load(), leases, ended)
	}
	return began, nil
}

// fill stores the Leases of that many agents.
func fill(t *testing.T, agents *etcd.Store, versions []objects.Version) {
	t.Helper()
	seconds, errs := int32(3600), make(chan error)
	const workers = 32
	for worker := range workers {
		go func() {
			var err error
			for i := worker; i < len(versions) && err == nil; i += workers {
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n-%05d", i)}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds}}
				put := objects.Put{Instead: versions[i], TTL: time.Hour}
				if put.Value, err = store.Leases.Encode(lease); err == nil {
					versions[i], err = tryPut(t.Context(), agents, key(store.Leases, lease.Name), put)
				}
			}
			errs <- err
		}()
	}
	for range workers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestObjectsThatAreTooLargeStopNoFollow(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{Flags: []string{"--max-request-bytes=8388608"}})
	agents, f := at(t, c), fleetAt(t, c, "/hostler")
	for _, name := range []string{"a", "c"} {
		if err := agentPut(t.Context(), agents, store.Nodes, aNode(name)); err != nil {
			t.Fatal(err)
		}
	}
	// etcdctl sends at most 2 MiB.
	client, err := grpc.NewClient(strings.TrimPrefix(c.Members[0].Endpoint, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	put := &etcdserverpb.PutRequest{Key: []byte("/hostler/nodes/b"), Value: bytes.Repeat([]byte("x"), 5<<20)}
	large := func() {
		t.Helper()
		if _, err := etcdserverpb.NewKVClient(client).Put(t.Context(), put); err != nil {
			t.Fatal(err)
		}
	}
	large()
	s := followed(t, f, store.Nodes, store.AllChanges)
	reaches(t, "objects that cannot be read", &s.unreadable, 1)
	reaches(t, "objects", &s.sets, 2)
	_, err = f.Get(patient(t), store.Nodes, "b")
	found, is := errors.AsType[*store.UnreadableError](err)
	if !is || found.Version != s.version.Load() {
		t.Fatalf("Get() = %v, want an error with version %v, as listed", err, s.version.Load())
	}
	update := func() error {
		_, err := f.Update(patient(t), store.Nodes, "a", store.Preconditions{Others: []store.Reference{{Kind: store.Nodes, Name: "b", Version: found.Version}}}, func(store.Object) error { return nil })
		return err
	}
	if err := update(); err != nil {
		t.Errorf("Update() that requires the version = %v, want no error", err)
	}
	large()
	if err := update(); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("Update() that requires an older version = %v, want %q", err, controlplane.ErrConflict)
	}
	reaches(t, "objects that cannot be read", &s.unreadable, 2)
	reaches(t, "objects", &s.sets, 4)
}

func TestOtherKindsAreBelowObjects(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	f := fleetAt(t, c, "/hostler")
	pods := store.Kind{Name: "pods", GVK: corev1.SchemeGroupVersion.WithKind("Pod"), New: func() store.Object { return &corev1.Pod{} }}
	ctl(t, c, "put", "/hostler/objects/pods/p", `{"metadata":{"name":"p"}}`)
	ctl(t, c, "put", "/hostler/objects/pods/p/x", `{}`) // without a host
	s := followed(t, f, pods, store.AllChanges)
	reaches(t, "objects", &s.sets, 1)
	if err := f.Delete(patient(t), pods, "p", store.Preconditions{}, ""); err != nil {
		t.Fatal(err)
	}
	reaches(t, "deletions", &s.deleted, 1)
	if s.sets.Load() != 1 || s.unreadable.Load() != 0 {
		t.Errorf("reported %d objects, %d unreadable, want one object", s.sets.Load(), s.unreadable.Load())
	}
}
