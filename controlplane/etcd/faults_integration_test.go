//go:build integration

package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/objects"
	bed "hostler.io/hostler/test/etcd"
)

// TestARestoredBackup restores a backup of a cluster while a store is connected.
func TestARestoredBackup(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	s := at(t, c)
	first := put(t, s, node, objects.Put{Value: []byte("1")})
	held := put(t, s, lease, objects.Put{Value: []byte("l"), TTL: time.Hour})
	backup := filepath.Join(t.TempDir(), "backup.db")
	if err := c.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	second := put(t, s, node, objects.Put{Value: []byte("2"), Instead: first})
	third := put(t, s, node, objects.Put{Value: []byte("3"), Instead: second})
	seen, ended := follow(t, s, node)
	sees(t, seen, ended, "3")
	if err := c.Restore(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	// Another client gives the same key the same revisions as before.
	ctl(t, c, "put", "/hostler/nodes/n", "other 2")
	ctl(t, c, "put", "/hostler/nodes/n", "other 3")
	eventually(t, "the cluster is reached again", func(ctx context.Context) bool {
		_, err := s.Get(ctx, lease)
		return err == nil
	})
	stored := holds(t, s, node)
	if stored.Version == third || stored.Version == second {
		t.Errorf("the version of another value at the same revision = %s, want another one", stored.Version)
	}
	_, err := s.Put(patient(t), node, objects.Put{Value: []byte("4"), Instead: third})
	conflict, ok := errors.AsType[*objects.ConflictError](err)
	if !ok || string(conflict.Stored.Value) != "other 3" {
		t.Errorf("Put() instead of what the backup has undone = %v, want a conflict with the stored object", err)
	}
	put(t, s, node, objects.Put{Value: []byte("4"), Instead: stored.Version})
	put(t, s, lease, objects.Put{Value: []byte("l"), Instead: held, TTL: time.Hour}) // the state in the backup
	select {
	case err := <-ended: // a watch may report that the store was lost
		if !errors.Is(err, controlplane.ErrUnavailable) {
			t.Errorf("Watch() while the cluster was away = %v, want that it was", err)
		}
		seen, ended = follow(t, s, node)
		sees(t, seen, ended, "4")
	case o := <-seen:
		if string(o.Value) != "4" {
			sees(t, seen, ended, "4")
		}
	case <-time.After(patience):
		t.Error("Watch() hangs at a revision that is yet to come")
	}
}

// TestARevisionThatCameAgainIsNoVersion checks versions. etcd itself compares only revisions.
func TestARevisionThatCameAgainIsNoVersion(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	s := at(t, c)
	put(t, s, lease, objects.Put{Value: []byte("l"), TTL: time.Hour})
	backup := filepath.Join(t.TempDir(), "backup.db")
	if err := c.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	mine := put(t, s, node, objects.Put{Value: []byte("mine")})
	if err := c.Restore(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	ctl(t, c, "put", "/hostler/nodes/n", "other") // created at the same revision
	eventually(t, "the cluster is reached again", func(ctx context.Context) bool {
		_, err := s.Put(ctx, node, objects.Put{Value: []byte("mine again"), Instead: mine})
		if err == nil {
			t.Fatal("Put() instead of a revision that came again = no error, want a conflict")
		}
		return errors.Is(err, controlplane.ErrConflict)
	})
	if got := holds(t, s, node); string(got.Value) != "other" {
		t.Errorf("what is stored = %s, want other", got.Value)
	}
}

// renews repeats a put of the lease until it succeeds, within patience, and returns its version.
func renews(t *testing.T, s *etcd.Store, version objects.Version) objects.Version {
	t.Helper()
	eventually(t, "the lease is renewed", func(context.Context) bool {
		// With the store's own deadline: a member whose disk hangs may never answer.
		next, err := s.Put(t.Context(), lease, objects.Put{Value: []byte("l"), Instead: version, TTL: time.Hour})
		conflict, lost := errors.AsType[*objects.ConflictError](err)
		switch {
		case lost: // an earlier answer was lost
			version = conflict.Stored.Version
		case err == nil:
			version = next
		case !errors.Is(err, controlplane.ErrUnavailable):
			t.Fatalf("Put() = %v, want no error or that the cluster is away", err)
		}
		return err == nil
	})
	return version
}

// follower returns a member that does not lead.
func follower(t *testing.T, c *bed.Cluster, leader *bed.Member) *bed.Member {
	t.Helper()
	for _, m := range c.Members {
		if m != leader {
			return m
		}
	}
	t.Fatal("there is no follower")
	return nil
}

func leads(t *testing.T, c *bed.Cluster) *bed.Member {
	t.Helper()
	var leader *bed.Member
	eventually(t, "a member leads", func(ctx context.Context) bool {
		var err error
		leader, err = c.Leader(ctx)
		return err == nil
	})
	return leader
}

func TestThreeMembers(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{Members: 3, Apart: true})
	s := at(t, c)
	version := renews(t, s, objects.None)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Run("the leader is killed", func(t *testing.T) {
		leader := leads(t, c)
		check(leader.Kill())
		version = renews(t, s, version)
		check(c.Run(t.Context()))
	})
	t.Run("the leader hangs", func(t *testing.T) {
		leader := leads(t, c)
		check(leader.Pause())
		version = renews(t, s, version)
		check(leader.Continue())
	})
	t.Run("a lease lives a TTL of each leader at most", func(t *testing.T) { aLeaseLivesATTLOfEachLeaderAtMost(t, c) })
	t.Run("the member that is used is cut off", func(t *testing.T) {
		seen, ended := follow(t, s, lease)
		sees(t, seen, ended, "l")
		used := c.Members[0]
		for _, m := range c.Members {
			if m.Endpoint == s.Endpoint() {
				used = m
			}
		}
		check(used.Cut())
		version = renews(t, s, version)
		if s.Endpoint() == used.Endpoint {
			t.Errorf("Endpoint() = %s after that one was cut off, want another one", s.Endpoint())
		}
		check(used.Restore())
		check(c.Ready(t.Context(), used))
	})
	t.Run("a member without a leader is left for another one", func(t *testing.T) {
		lonely := follower(t, c, leads(t, c))
		alone := at(t, c, func(o *etcd.Options) { o.Endpoints = []string{lonely.Endpoint} })
		for _, m := range c.Members {
			if m != lonely {
				check(m.Pause())
			}
		}
		eventually(t, "the lonely one says that it has no leader, or does not answer", func(ctx context.Context) bool {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_, err := alone.Get(ctx, node)
			return err != nil && !errors.Is(err, controlplane.ErrNotFound)
		})
		for _, m := range c.Members {
			if m != lonely {
				check(m.Continue())
			}
		}
		version = renews(t, s, version)
	})
	t.Run("all members hang", func(t *testing.T) {
		for _, m := range c.Members {
			check(m.Pause())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := s.Get(ctx, lease); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, controlplane.ErrUnavailable) {
			t.Errorf("Get() while all members hang = %v, want no answer", err)
		}
		for _, m := range c.Members {
			check(m.Continue())
		}
		version = renews(t, s, version)
	})
}

func TestAuthThatIsTurnedOnWhileRunning(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("pass\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	named := at(t, c, func(o *etcd.Options) { o.Username, o.PasswordFile = "n", password })
	nobody := at(t, c)
	version := put(t, named, lease, objects.Put{Value: []byte("l"), TTL: time.Hour})
	put(t, nobody, objects.Key{Kind: objects.Lease, Node: "other"}, objects.Put{Value: []byte("l"), TTL: time.Hour})
	if err := c.Grant(t.Context(), "n", "pass", "readwrite", "/hostler/nodes/n", "/hostler/leases/n", "/hostler/events/n/"); err != nil {
		t.Fatal(err)
	}
	if err := c.EnableAuth(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, named, lease, objects.Put{Value: []byte("l"), Instead: version, TTL: time.Hour})
	_, err := nobody.Get(patient(t), node)
	if !errors.Is(err, controlplane.ErrUnauthorized) || !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), "controlPlane.etcd.username") {
		t.Errorf("Get() without a user = %v, want it unauthorized, with the key to set", err)
	}
	_, err = named.Put(patient(t), objects.Key{Kind: objects.Lease, Node: "other"}, objects.Put{Value: []byte("l"), TTL: time.Hour})
	if !errors.Is(err, controlplane.ErrForbidden) || !strings.Contains(err.Error(), "/hostler/leases/other") || !strings.Contains(err.Error(), `user "n"`) {
		t.Errorf("Put() of another host's lease = %v, want it forbidden, naming key and user", err)
	}
	if _, _, err := named.List(patient(t), objects.Node, "", ""); !errors.Is(err, controlplane.ErrForbidden) || !strings.Contains(err.Error(), "hostler-reader --prefix read /hostler/nodes/;") || !strings.Contains(err.Error(), "hostler-reader --prefix read /hostler/leases/;") {
		t.Errorf("List() of the fleet = %v, want it forbidden, with the rights of a reader", err)
	}
	if err := named.Watch(t.Context(), objects.Key{Kind: objects.Node, Node: "other"}, make(chan objects.Object)); !errors.Is(err, controlplane.ErrForbidden) {
		t.Errorf("Watch() of another node = %v, want it forbidden", err)
	}

	check := func(user, node string) etcd.Diagnosis {
		o := etcd.Options{Endpoints: c.Endpoints(), Prefix: "/hostler", Insecure: true, Username: user, PasswordFile: password}
		return etcd.Diagnose(t.Context(), o, node)
	}
	if diagnosis := check("n", "n"); diagnosis.Members[0].Err != nil || diagnosis.Leaseless || diagnosis.Node || len(diagnosis.MissingRights) != 0 || diagnosis.Unreachable != "/hostler/settings/lease-duration" || diagnosis.RightsErr != nil {
		t.Errorf("Diagnose() = %+v, want its own lease, and all rights but to read the setting", diagnosis)
	}
	ctl(t, c, "role", "grant-permission", "n", "read", "/hostler/settings/lease-duration")
	ctl(t, c, "put", "/hostler/nodes/n", "{}")
	ctl(t, c, "del", "/hostler/leases/n")
	if diagnosis := check("n", "n"); !diagnosis.Node || !diagnosis.Leaseless || diagnosis.Unreachable != "" {
		t.Errorf("Diagnose() at a node whose lease has expired = %+v, want Leaseless, and all rights", diagnosis)
	}
	if err := c.Grant(t.Context(), "half", "pass", "readwrite", "/hostler/nodes/n"); err != nil {
		t.Fatal(err)
	}
	if diagnosis := check("half", "n"); !diagnosis.Node || diagnosis.Leaseless {
		t.Errorf("Diagnose() at a node whose lease may not be read = %+v, want Leaseless false", diagnosis)
	}
	diagnosis := check("n", "m")
	if want := "write /hostler/events/m/"; len(diagnosis.MissingRights) != 6 || diagnosis.MissingRights[5] != want {
		t.Errorf("Diagnose() as another node lacks %v, want all six, the last %q", diagnosis.MissingRights, want)
	}
	if want := `as etcd root, for user "n" (ignore "already exists"): ` + "etcdctl role add hostler-m; etcdctl role grant-permission hostler-m readwrite /hostler/nodes/m; etcdctl role grant-permission hostler-m readwrite /hostler/leases/m; etcdctl role grant-permission hostler-m --prefix readwrite /hostler/events/m/; etcdctl user grant-role n hostler-m"; diagnosis.Grants != want {
		t.Errorf("Diagnose() as another node grants %s, want %s", diagnosis.Grants, want)
	}

	if err := os.WriteFile(password, []byte("another\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	named.Reconnect()
	if _, err := named.Get(t.Context(), lease); !errors.Is(err, controlplane.ErrUnauthorized) || !strings.Contains(err.Error(), password) {
		t.Errorf("Get() with a wrong password = %v, want it unauthorized, naming its file", err)
	}
}

func TestACertificateThatHasEndedAndIsRenewed(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{TLS: true})
	client := func(lifetime time.Duration) bed.Credentials {
		t.Helper()
		files, err := c.Client("n", lifetime)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	files := client(-time.Hour)
	s := at(t, c, func(o *etcd.Options) { o.Certificate, o.Key, o.Insecure = files.Certificate, files.Key, false })
	if _, err := s.Get(patient(t), node); !errors.Is(err, controlplane.ErrUnauthorized) || !errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("Get() with a certificate that has ended = %v, want it unauthorized", err)
	}
	client(time.Hour)
	version := put(t, s, node, objects.Put{Value: []byte("1")})
	client(-time.Hour) // the connection stays open
	version = put(t, s, node, objects.Put{Value: []byte("2"), Instead: version})
	client(time.Hour)

	none := at(t, c)
	if _, err := none.Get(patient(t), node); !errors.Is(err, controlplane.ErrUnauthorized) || !strings.Contains(err.Error(), "tls.certificate") {
		t.Errorf("Get() without a certificate = %v, want it unauthorized, with the key to set", err)
	}
	distrustful := at(t, c, func(o *etcd.Options) { o.CA, o.Certificate, o.Key = "", files.Certificate, files.Key })
	if _, err := distrustful.Get(patient(t), node); !errors.Is(err, controlplane.ErrUntrusted) || !strings.Contains(err.Error(), "tls.ca") {
		t.Errorf("Get() without the authority = %v, want it untrusted, with the key to set", err)
	}

	if err := c.CertifyMembers(-time.Hour); err != nil {
		t.Fatal(err)
	}
	s.Reconnect()
	if _, err := s.Get(patient(t), node); !errors.Is(err, controlplane.ErrUntrusted) {
		t.Errorf("Get() from a member whose certificate has ended = %v, want it untrusted", err)
	}
	if err := c.CertifyMembers(time.Hour); err != nil {
		t.Fatal(err)
	}
	put(t, s, node, objects.Put{Value: []byte("3"), Instead: version})
}

func TestADatabaseThatIsFull(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{Flags: []string{"--quota-backend-bytes=16777216"}})
	s := at(t, c)
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		key := objects.Key{Kind: objects.Event, Node: "n", Name: fmt.Sprintf("n.%d", i)}
		_, err = s.Put(patient(t), key, objects.Put{Value: bytes.Repeat([]byte("x"), 1<<20), TTL: time.Hour})
	}
	if !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), "etcdctl alarm disarm") {
		t.Fatalf("Put() into a full database = %v, want it unavailable, with the fix", err)
	}
	ctl(t, c, "del", "--prefix", "/hostler/events/")
	ctl(t, c, "compact", revision(t, c))
	ctl(t, c, "defrag")
	ctl(t, c, "alarm", "disarm")
	renews(t, s, objects.None)
}
