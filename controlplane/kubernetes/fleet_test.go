package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/controlplane/store"
)

// openFleet returns the store of the server role with that kubeconfig.
func openFleet(t *testing.T, kubeconfig, version string) *kubernetes.Fleet {
	t.Helper()
	fleet, err := kubernetes.NewFleet(kubernetes.Options{Kubeconfig: kubeconfig, Version: version, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fleet.Close() })
	return fleet
}

// dialFleet returns the store of the server role on that server.
func dialFleet(t *testing.T, server *httptest.Server) *kubernetes.Fleet {
	t.Helper()
	return openFleet(t, write(t, "kubeconfig", config(server.URL, "certificate-authority: "+authority(t, server), "token: secret")), "1.2.3")
}

// reports are the calls of a Follower, as text.
type reports struct {
	mu   sync.Mutex // guards the fields below
	made []string
	last func(call string) // called with each call; may be nil
}

func (c *reports) add(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = append(c.made, call)
	if c.last != nil {
		c.last(call)
	}
}

func (c *reports) Begin() { c.add("begin") }
func (c *reports) Set(name string, o store.Object) {
	c.add("set " + name + " " + o.GetResourceVersion())
}
func (c *reports) Unreadable(name string, _ error) { c.add("unreadable " + name) }
func (c *reports) Synced()                         { c.add("synced") }
func (c *reports) Delete(name string) {
	c.add("delete " + name)
}

// event returns an event of a watch.
func event(kind, name, version string) string {
	return fmt.Sprintf(`{"type":%q,"object":{"kind":"Node","apiVersion":"v1","metadata":{"name":%q,"resourceVersion":%q}}}`+"\n", kind, name, version)
}

func TestAFollowContinuesFromTheLastVersion(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	fleet := dialFleet(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		query := r.URL.Query()
		if !query.Has("watch") {
			if query.Get("limit") != "1" { // not only to read the version
				asked = append(asked, "list")
			}
			listed(w, r, "Node", "v1", "a", "b")
			return
		}
		asked = append(asked, "watch "+query.Get("resourceVersion"))
		if query.Get("resourceVersion") == "7" {
			respond(w, event("MODIFIED", "a", "8")+event("DELETED", "b", "9")+event("BOOKMARK", "", "12"))
		}
	}))
	seen := &reports{}
	err := fleet.Follow(t.Context(), store.Nodes, store.AllChanges, seen)
	if !errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("Follow() of a server that ends watches at once = %v, want %q", err, controlplane.ErrUnavailable)
	}
	if want := []string{"list", "list", "watch 7", "watch 12"}; !slices.Equal(asked, want) {
		t.Errorf("requests = %q, want %q", asked, want)
	}
	if want := []string{"begin", "set a ", "set b ", "synced", "set a 8", "delete b"}; !slices.Equal(seen.made, want) {
		t.Errorf("calls = %q, want %q", seen.made, want)
	}
}

// No event of one object stops a watch: the changes of all others follow.
func TestAFollowContinuesAfterAnEventThatIsTooLarge(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	values := "[{}" + strings.Repeat(",{}", controlplane.MostValues) + "]"
	large := func(name, metadata, status string) string {
		return fmt.Sprintf(`{"type":"MODIFIED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":%q,"resourceVersion":"8"%s},"status":{%s}}}`+"\n", name, metadata, status)
	}
	fleet := dialFleet(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.Query().Has("watch") {
			listed(w, r, "Node", "v1", "a")
			return
		}
		respond(w, large("x", "", `"images":`+values)+large("y", `,"ownerReferences":`+values, "")+
			large("z", "", `"capacity":{"cpu":"1e999999999"}`)+strings.Replace(large("x", "", `"images":`+values), "MODIFIED", "DELETED", 1)+event("MODIFIED", "a", "9"))
	}))
	seen := &reports{last: func(call string) {
		if call == "set a 9" {
			cancel()
		}
	}}
	if err := fleet.Follow(ctx, store.Nodes, store.AllChanges, seen); !errors.Is(err, context.Canceled) {
		t.Errorf("Follow() = %v, want that its context has ended", err)
	}
	if want := []string{"begin", "set a ", "synced", "unreadable x", "unreadable y", "unreadable z", "delete x", "set a 9"}; !slices.Equal(seen.made, want) {
		t.Errorf("calls = %q, want %q", seen.made, want)
	}
}

func TestAFollowListsAgainAfterAVersionThatIsTooOld(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var mu sync.Mutex
	watches := 0
	fleet := dialFleet(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch query := r.URL.Query(); {
		case !query.Has("watch"):
			listed(w, r, "Node", "v1", "a")
		default:
			if watches++; watches == 1 {
				respond(w, tooOld)
				return
			}
			respond(w, event("MODIFIED", "a", "9"))
		}
	}))
	seen := &reports{last: func(call string) {
		if call == "set a 9" {
			cancel()
		}
	}}
	if err := fleet.Follow(ctx, store.Nodes, store.AllChanges, seen); !errors.Is(err, context.Canceled) {
		t.Errorf("Follow() = %v, want that its context has ended", err)
	}
	if want := []string{"begin", "set a ", "synced", "begin", "set a ", "synced", "set a 9"}; !slices.Equal(seen.made, want) {
		t.Errorf("calls = %q, want %q", seen.made, want)
	}
}

func TestAListThatTakesTooLongBeginsAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	refused := false
	fleet := dialFleet(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.FormValue("continue") != "" && !refused:
			refused = true
			refuse(w, http.StatusGone, "Expired", "the provided continue parameter is too old")
		case r.FormValue("watch") != "":
			cancel()
		default:
			listed(w, r, "Node", "v1", "a", "b")
		}
	}))
	seen := &reports{}
	if err := fleet.Follow(ctx, store.Nodes, store.AllChanges, seen); !errors.Is(err, context.Canceled) {
		t.Errorf("Follow() = %v, want that its context has ended", err)
	}
	if want := []string{"begin", "set a ", "begin", "set a ", "set b ", "synced"}; !slices.Equal(seen.made, want) {
		t.Errorf("calls = %q, want %q", seen.made, want)
	}
}

// A request that was sent may be served late. It is cancelled before another process may lead.
func TestAWriteEndsWithItsTerm(t *testing.T) {
	fleet := dialFleet(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			respond(w, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"hostler-c","uid":"l","resourceVersion":"2"},"spec":{"holderIdentity":"x"}}`)
		case strings.HasSuffix(r.URL.Path, "/leases/hostler-c"):
			refuse(w, http.StatusNotFound, "NotFound", "not found")
		case r.Method == http.MethodGet:
			respond(w, nodeText)
		default:
			<-r.Context().Done()
		}
	}))
	began := time.Now()
	term, _, err := fleet.Elect(t.Context(), "c", "x", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	write := func() error {
		return fleet.Delete(t.Context(), store.Nodes, "n", store.Preconditions{Term: term}, "")
	}
	if err := write(); !errors.Is(err, controlplane.ErrUnavailable) && !errors.Is(err, store.ErrDeposed) || time.Since(began) > patience {
		t.Errorf("Delete() that is not answered = %v after %v, want it unavailable after the term", err, time.Since(began))
	}
	if err := write(); !errors.Is(err, store.ErrDeposed) {
		t.Errorf("Delete() after the term = %v, want %q", err, store.ErrDeposed)
	}
	if err := fleet.Extend(t.Context(), term); !errors.Is(err, store.ErrDeposed) {
		t.Errorf("Extend() after the term = %v, want %q", err, store.ErrDeposed)
	}
}

// A backup of the cluster may be restored, with an owner that was absent before.
func TestAnAbsentOwnerIsReadAgain(t *testing.T) {
	if kubernetes.CountsAsAbsent(time.Minute) || !kubernetes.CountsAsAbsent(time.Second) {
		t.Errorf("an absent owner counts as absent after a minute: %t, and after a second: %t, want false and true", kubernetes.CountsAsAbsent(time.Minute), kubernetes.CountsAsAbsent(time.Second))
	}
}

// TestAnAbsentOwnerIsReadAgainAfterAnOutage deletes dependents of an owner that is absent. A restored backup brings it
// back, with its dependents as they were.
func TestAnAbsentOwnerIsReadAgainAfterAnOutage(t *testing.T) {
	for name, c := range map[string]struct {
		version string // of the Nodes afterwards; empty if the server does not answer
		want    error  // of Ping
		during  bool   // whether the owner is being read meanwhile
	}{
		"the store does not answer":                      {"", controlplane.ErrUnavailable, false},
		"its revision goes back":                         {"50", store.ErrRestored, false},
		"its revision jumps":                             {"200000100", store.ErrRestored, false},
		"the store does not answer for a moment":         {"", controlplane.ErrUnavailable, true},
		"its revision goes back while the owner is read": {"50", store.ErrRestored, true},
	} {
		t.Run(name, func(t *testing.T) {
			var version atomic.Pointer[string]
			version.Store(new("100"))
			var exists atomic.Bool
			reads, answers := make(chan struct{}, 1), make(chan struct{})
			if !c.during {
				close(answers)
			}
			fleet := dialFleet(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodDelete:
					respond(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
				case strings.HasSuffix(r.URL.Path, "/owner") && exists.Load():
					respond(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"owner","uid":"u","resourceVersion":"7"}}`)
				case strings.HasSuffix(r.URL.Path, "/owner"):
					reads <- struct{}{}
					<-answers
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusNotFound)
					respond(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
				case *version.Load() == "":
					w.WriteHeader(http.StatusServiceUnavailable)
				default:
					respond(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"`+*version.Load()+`"},"items":[]}`)
				}
			}))
			remove := func() error {
				owner := store.Reference{Kind: store.Nodes, Name: "owner", UID: "u"}
				return fleet.Delete(t.Context(), store.Nodes, "n", store.Preconditions{Others: []store.Reference{owner}}, "")
			}
			if err := fleet.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			removed := make(chan error, 1)
			go func() { removed <- remove() }()
			<-reads
			if !c.during {
				if err := <-removed; err != nil {
					t.Fatal(err)
				}
			}
			version.Store(&c.version)
			if err := fleet.Ping(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("Ping() = %v, want %v", err, c.want)
			}
			if c.during {
				close(answers)
				if err := <-removed; err != nil {
					t.Fatal(err)
				}
			}
			exists.Store(true)
			if err := remove(); !errors.Is(err, controlplane.ErrConflict) {
				t.Errorf("Delete() = %v, want that the owner is read again", err)
			}
		})
	}
}

// TestEachPartOfAnUpdateIsConfirmed lets a host renew its Lease while the status of its Node is written. The taint of the same update
// must not follow.
func TestEachPartOfAnUpdateIsConfirmed(t *testing.T) {
	var mu sync.Mutex
	var made []string
	lease := "7"
	fleet := dialFleet(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case strings.Contains(r.URL.Path, "/leases/"):
			respond(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"n","uid":"l","resourceVersion":"`+lease+`"}}`)
			return
		case r.Method == http.MethodPatch:
			made = append(made, r.URL.Path)
			lease = "8"
		}
		respond(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","uid":"u","resourceVersion":"9"}}`)
	}))
	alive := store.Reference{Kind: store.Leases, Name: "n", Version: "7"}
	_, err := fleet.Update(t.Context(), store.Nodes, "n", store.Preconditions{Others: []store.Reference{alive}}, func(o store.Object) error {
		n := o.(*corev1.Node)
		n.Status.Conditions, n.Spec.Taints = conditions("Ready"), []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}
		return nil
	})
	if !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("Update() = %v, want %v", err, controlplane.ErrConflict)
	}
	if want := []string{"/api/v1/nodes/n/status"}; !slices.Equal(made, want) {
		t.Errorf("patches = %q, want %q", made, want)
	}
}

// TestAnOwnerIsReadOnceForAllItsDependents deletes dependents of one owner at the same time.
func TestAnOwnerIsReadOnceForAllItsDependents(t *testing.T) {
	got := int64(0)
	for delay := 300 * time.Millisecond; got != 1 && delay < time.Minute; delay *= 2 { // on a busy machine, some begin too late
		got = readsOfAnOwner(t, delay)
	}
	if got != 1 {
		t.Errorf("the owner was read %d times, want once", got)
	}
}

// readsOfAnOwner returns how often an owner is read that the server returns after a delay.
func readsOfAnOwner(t *testing.T, delay time.Duration) int64 {
	t.Helper()
	var reads atomic.Int64
	all := make(chan struct{})
	fleet := dialFleet(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			reads.Add(1)
			<-all
			respond(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"owner","uid":"u","resourceVersion":"7","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["foregroundDeletion"]}}`)
			return
		}
		respond(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	}))
	owner := store.Reference{Kind: store.Nodes, Name: "owner", UID: "u", Deletion: metav1.DeletePropagationForeground}
	var writing sync.WaitGroup
	for i := range 16 {
		writing.Go(func() {
			if err := fleet.Delete(t.Context(), store.Nodes, fmt.Sprint("n", i), store.Preconditions{Others: []store.Reference{owner}}, ""); err != nil {
				t.Errorf("Delete(n%d) = %v, want no error", i, err)
			}
		})
	}
	time.AfterFunc(delay, func() { close(all) })
	writing.Wait()
	return reads.Load()
}
