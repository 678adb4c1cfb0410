//go:build integration

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/etcd"
	bed "hostler.io/hostler/test/etcd"
)

// podPaths lists all objects of pods.
func podPaths(t *testing.T, p *etcd.Pods) (paths []string, connection int64) {
	t.Helper()
	for page, first := "", true; first || page != ""; first = false {
		list, err := p.List(patient(t), page)
		if err != nil {
			t.Fatalf("List() = %v, want no error", err)
		}
		for _, o := range list.Pods {
			paths = append(paths, o.Path)
		}
		page, connection = list.Next, list.Connection
	}
	return paths, connection
}

func TestObjectsOfPodsAreChangedOnlyAsTheyWereSeen(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	s := at(t, c)
	p := s.Pods("n")
	none := controlplane.PodVersion{}

	first, err := p.Put(patient(t), "shop/web", []byte("a"), none)
	if err != nil || string(first.Value) != "a" {
		t.Fatalf("Put() = %+v, %v, want it stored", first, err)
	}
	if got := ctl(t, c, "get", "--print-value-only", "/hostler/objects/pods/n/shop/web"); got != "a\n" {
		t.Errorf("etcd has %q at the path that is promised, want a", got)
	}
	if now, err := p.Put(patient(t), "shop/web", []byte("b"), none); !errors.Is(err, controlplane.ErrConflict) || string(now.Value) != "a" || now.Version != first.Version {
		t.Errorf("Put() of a new one = %+v, %v, want a conflict with what is stored", now, err)
	}
	second, err := p.Put(patient(t), "shop/web", []byte("b"), first.Version)
	if err != nil || second.Version == first.Version {
		t.Fatalf("Put() = %+v, %v, want another version", second, err)
	}
	ctl(t, c, "put", "/hostler/objects/pods/n/shop/web", "theirs")
	if now, err := p.Put(patient(t), "shop/web", []byte("c"), second.Version); !errors.Is(err, controlplane.ErrConflict) || string(now.Value) != "theirs" {
		t.Errorf("Put() after a change = %+v, %v, want a conflict with the change", now, err)
	}
	now, err := p.Delete(patient(t), "shop/web", second.Version)
	if !errors.Is(err, controlplane.ErrConflict) || string(now.Value) != "theirs" {
		t.Errorf("Delete() after a change = %+v, %v, want a conflict with the change", now, err)
	}

	ctl(t, c, "put", "/hostler/objects/pods/n2/shop/web", "of another host")
	ctl(t, c, "put", "/hostler/objects/pods/n/a/b/c", "nobody's")
	for i := range 250 {
		ctl(t, c, "put", fmt.Sprintf("/hostler/objects/pods/n/z/%03d", i), "x")
	}
	paths, connection := podPaths(t, p)
	if len(paths) != 252 || paths[0] != "a/b/c" || paths[1] != "shop/web" || !slices.IsSorted(paths) || !p.Current(connection) {
		t.Errorf("List() = %d paths %v…, current %t, want all of this host once, over a connection in use", len(paths), paths[:2], p.Current(connection))
	}

	s.Reconnect()
	if p.Current(connection) {
		t.Error("Current() after Reconnect() = true, want false")
	}
	again, err := p.Put(patient(t), "shop/web", []byte("d"), now.Version)
	if !errors.Is(err, controlplane.ErrConflict) || string(again.Value) != "theirs" || again.Version == now.Version {
		t.Errorf("Put() with a version of an earlier connection = %+v, %v, want it read again", again, err)
	}
	if gone, err := p.Delete(patient(t), "shop/web", again.Version); err != nil || gone.Version != none {
		t.Errorf("Delete() = %+v, %v, want it gone", gone, err)
	}
	if gone, err := p.Delete(patient(t), "shop/web", again.Version); !errors.Is(err, controlplane.ErrConflict) || gone.Version != none {
		t.Errorf("Delete() of what is gone = %+v, %v, want a conflict with nothing", gone, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.List(ctx, ""); !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "list objects/pods/n: ") {
		t.Errorf("List() with a context that has ended = %v, want that", err)
	}
	if _, err := p.Put(patient(t), "shop/large", make([]byte, 2<<20), controlplane.PodVersion{}); !errors.Is(err, controlplane.ErrInvalid) || !strings.HasPrefix(err.Error(), "put objects/pods/n/shop/large: ") {
		t.Errorf("Put() of 2 MiB = %v, want it refused as invalid", err)
	}
}

func TestAHostNeedsRightsToTheObjectsOfItsPods(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("pass\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Grant(t.Context(), "n", "pass", "readwrite", "/hostler/nodes/n", "/hostler/leases/n", "/hostler/events/n/"); err != nil {
		t.Fatal(err)
	}
	ctl(t, c, "role", "grant-permission", "n", "read", "/hostler/settings/lease-duration")
	if err := c.EnableAuth(t.Context()); err != nil {
		t.Fatal(err)
	}
	const grant = "etcdctl role grant-permission hostler-n --prefix readwrite /hostler/objects/pods/n/;"
	o := etcd.Options{Endpoints: c.Endpoints(), Prefix: "/hostler", Insecure: true, Username: "n", PasswordFile: password}
	if d := etcd.Diagnose(t.Context(), o, "n"); len(d.MissingRights) != 0 || d.RightsErr != nil {
		t.Errorf("Diagnose() of a host without such objects = %+v, want that it lacks nothing", d)
	}
	o.Pods = true
	if d := etcd.Diagnose(t.Context(), o, "n"); !slices.Equal(d.MissingRights, []string{"read /hostler/objects/pods/n/", "write /hostler/objects/pods/n/"}) || !strings.Contains(d.Grants, grant) {
		t.Errorf("Diagnose() = %v, %s, want the rights to the objects, and %s", d.MissingRights, d.Grants, grant)
	}
	p := at(t, c, func(to *etcd.Options) { *to = o }).Pods("n")
	if _, err := p.List(patient(t), ""); !errors.Is(err, controlplane.ErrForbidden) || !strings.Contains(err.Error(), grant) {
		t.Errorf("List() = %v, want it forbidden, and %s", err, grant)
	}
	if _, err := p.Put(patient(t), "shop/web", []byte("a"), controlplane.PodVersion{}); !errors.Is(err, controlplane.ErrForbidden) || !strings.Contains(err.Error(), grant) {
		t.Errorf("Put() = %v, want it forbidden, and %s", err, grant)
	}

	ctl(t, c, "role", "grant-permission", "n", "--prefix", "readwrite", "/hostler/objects/pods/n/")
	if d := etcd.Diagnose(t.Context(), o, "n"); len(d.MissingRights) != 0 || d.RightsErr != nil {
		t.Errorf("Diagnose() with the right = %+v, want that it lacks nothing", d)
	}
	stored, err := p.Put(patient(t), "shop/web", []byte("a"), controlplane.PodVersion{})
	if err != nil {
		t.Fatalf("Put() with the right = %v, want no error", err)
	}
	if paths, _ := podPaths(t, p); !slices.Equal(paths, []string{"shop/web"}) {
		t.Errorf("List() = %v, want the object", paths)
	}
	if _, err := p.Delete(patient(t), "shop/web", stored.Version); err != nil {
		t.Errorf("Delete() with the right = %v, want no error", err)
	}
	other := at(t, c, func(to *etcd.Options) { *to = o }).Pods("n2")
	if _, err := other.Put(patient(t), "shop/web", []byte("a"), controlplane.PodVersion{}); !errors.Is(err, controlplane.ErrForbidden) {
		t.Errorf("Put() for another host = %v, want it forbidden", err)
	}
}
