package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/conformance"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/controlplane/embedded"
	"hostler.io/hostler/internal/state"
)

var update = flag.Bool("update", false, "write what became of the conformance checks anew")

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func open(t *testing.T, path string) (*embedded.Client, *state.DB) {
	t.Helper()
	db, err := state.Open(path, quiet())
	if err != nil {
		t.Fatal(err)
	}
	client, err := embedded.New(db.Bucket(embedded.BucketName), path, nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	return client, db
}

func TestConformance(t *testing.T) {
	controlplanetest.Record(t, embedded.Type, *update, func(t *testing.T) controlplanetest.Backend {
		path := filepath.Join(t.TempDir(), "state.db")
		client, db := open(t, path)
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		return controlplanetest.Backend{
			Client: client,
			Hinder: func(conformance.Fault) (func(), error) {
				return nil, &conformance.AbsentError{Why: "there is no server: it is in the agent itself"}
			},
			Restart: func(context.Context) (controlplane.Client, error) {
				if err := db.Close(); err != nil {
					return nil, err
				}
				client, db = open(t, path)
				return client, nil
			},
			MaxEvents: embedded.MaxEvents,
		}
	})
}

func node(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{MachineID: "m1", SystemUUID: "u1"}},
	}
}

// recordingStore is memory that counts keys and kinds of writes.
type recordingStore struct {
	values       map[string][]byte
	writes, lazy int
}

func (s *recordingStore) Load() (map[string][]byte, error) { return maps.Clone(s.values), nil }

func (s *recordingStore) Write(put map[string][]byte, remove []string) error {
	s.writes++
	maps.Copy(s.values, put)
	for _, key := range remove {
		delete(s.values, key)
	}
	return nil
}

func (s *recordingStore) WriteLazily(put map[string][]byte, remove []string) error {
	s.lazy++
	s.writes--
	return s.Write(put, remove)
}

func newClient(t *testing.T, store embedded.Store, log *slog.Logger) *embedded.Client {
	t.Helper()
	client, err := embedded.New(store, "memory", nil, log)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestARenewalHurriesNoWrite(t *testing.T) {
	store := &recordingStore{values: map[string][]byte{}}
	client := newClient(t, store, quiet())
	synctest.Test(t, func(t *testing.T) {
		keeper, err := controlplane.NewLeaseKeeper(client, controlplane.LeasePolicy{Node: "n", Duration: 40 * time.Second, Interval: 10 * time.Second}, quiet())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = keeper.Run(ctx)
	})
	if store.writes != 0 || store.lazy < 5 || store.lazy > 7 {
		t.Errorf("writes in a minute = %d at once and %d lazily, want 0 and about 6", store.writes, store.lazy)
	}
}

func TestKeysAreBounded(t *testing.T) {
	store := &recordingStore{values: map[string][]byte{}}
	for run := range 3 {
		client := newClient(t, store, quiet())
		for i := range 700 {
			e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("e-%d-%d", run, i), Namespace: "default"}}
			if err := client.PublishEvent(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"a", "b"} {
			if _, err := client.Register(t.Context(), node(name), controlplane.RegisterOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(store.values); n != embedded.MaxEvents+1 {
		t.Errorf("keys = %d, want %d events and a node", n, embedded.MaxEvents)
	}
	events, err := newClient(t, store, quiet()).Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if first, last := events[0].Name, events[len(events)-1].Name; len(events) != embedded.MaxEvents || first != "e-1-400" || last != "e-2-699" {
		t.Errorf("Events() = %d from %s to %s, want %d from e-1-400 to e-2-699", len(events), first, last, embedded.MaxEvents)
	}
}

func TestAnUnreadableValueIsPassedOver(t *testing.T) {
	store := &recordingStore{values: map[string][]byte{}}
	client := newClient(t, store, quiet())
	if _, err := client.Register(t.Context(), node("n"), controlplane.RegisterOptions{}); err != nil {
		t.Fatal(err)
	}
	store.values["lease"] = []byte("{\x00")
	store.values["event/0000"] = []byte("{}")
	store.values["event/9999"] = []byte("another version's")
	var log bytes.Buffer
	client = newClient(t, store, slog.New(slog.NewTextHandler(&log, nil)))
	if _, err := client.Node(t.Context(), "n"); err != nil {
		t.Errorf("Node() beside values that cannot be read = %v, want no error", err)
	}
	if n := strings.Count(log.String(), "cannot be read"); n != 2 {
		t.Errorf("warnings = %d, want 2 in:\n%s", n, log.String())
	}
}

func TestANewNameReplacesTheNode(t *testing.T) {
	client := newClient(t, state.NewMemory().Bucket("b"), quiet())
	for _, name := range []string{"old", "new"} {
		if _, err := client.Register(t.Context(), node(name), controlplane.RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	nodes, err := client.Nodes(t.Context())
	if err != nil || len(nodes) != 1 || nodes[0].Name != "new" {
		t.Errorf("Nodes() = %v, %v, want the new one alone", nodes, err)
	}
}

func TestUIDsAreRandomAndVersionsIncrease(t *testing.T) {
	client := newClient(t, state.NewMemory().Bucket("b"), quiet())
	uid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	version := 0
	for i := range 10 {
		n, err := client.Register(t.Context(), node(fmt.Sprint("n", i)), controlplane.RegisterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var v int
		if _, err := fmt.Sscan(n.ResourceVersion, &v); err != nil || v <= version {
			t.Errorf("resourceVersion = %q, want a number above %d", n.ResourceVersion, version)
		}
		version = v
		if !uid.MatchString(string(n.UID)) || seen[string(n.UID)] {
			t.Errorf("uid = %q, want a random one as of RFC 9562", n.UID)
		}
		seen[string(n.UID)] = true
	}
}

func TestWorksWhereNothingCanBeWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.Mkdir(path, 0o700); err != nil { // what no one can write a file over
		t.Fatal(err)
	}
	client, db := open(t, path)
	registered, err := client.Register(t.Context(), node("n"), controlplane.RegisterOptions{})
	if err != nil {
		t.Errorf("Register() = %v, want no error", err)
	}
	if db.Flush() == nil || db.Health().Persisted {
		t.Errorf("Health() = %+v, want not persisted", db.Health())
	}
	if _, err := client.UpdateStatus(t.Context(), registered); err != nil {
		t.Errorf("UpdateStatus() = %v, want no error", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Errorf("Close() once there is room = %v, want no error", err)
	}
	client, db = open(t, path)
	if n, err := client.Node(t.Context(), "n"); err != nil || n.UID != registered.UID {
		t.Errorf("Node() after a restart = %v, %v, want the one registered", n, err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

func TestCordon(t *testing.T) {
	client := newClient(t, state.NewMemory().Bucket("b"), quiet())
	if _, err := client.Cordon(t.Context(), "n", true); err == nil {
		t.Error("Cordon() of no node = nil, want an error")
	}
	if _, err := client.Register(t.Context(), node("n"), controlplane.RegisterOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, true, false} {
		n, err := client.Cordon(t.Context(), "n", want)
		if err != nil || n.Spec.Unschedulable != want {
			t.Errorf("Cordon(%v) = %v, %v, want it so", want, n, err)
		}
		wantTaint(t, n, want)
	}
}

func TestANodeThatIsCreatedCordonedHasTheTaint(t *testing.T) {
	client := newClient(t, state.NewMemory().Bucket("b"), quiet())
	cordoned := node("n")
	cordoned.Spec.Unschedulable = true
	cordoned.Spec.Taints = []corev1.Taint{{Key: "ours", Effect: corev1.TaintEffectNoSchedule}}
	n, err := client.Register(t.Context(), cordoned, controlplane.RegisterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantTaint(t, n, true)
	if n, err = client.Cordon(t.Context(), "n", false); err != nil || len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "ours" {
		t.Errorf("Cordon(false) = %v, %v, want the other taint alone", n, err)
	}
}

// wantTaint checks for the taint that Kubernetes gives cordoned nodes.
func wantTaint(t *testing.T, n *corev1.Node, want bool) {
	t.Helper()
	found := 0
	for _, taint := range n.Spec.Taints {
		if taint.Key == "node.kubernetes.io/unschedulable" && taint.Effect == corev1.TaintEffectNoSchedule && !taint.TimeAdded.IsZero() {
			found++
		}
	}
	if (found == 1) != want || found > 1 {
		t.Errorf("taints = %v, want the one of a cordoned node: %v", n.Spec.Taints, want)
	}
}

// Nobody else can renew a Lease in this store, so that there is nothing to watch.
func TestALeaseOfAnEarlierRunByAnotherMachineIsDead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	node := func(machine string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{MachineID: machine}}}
	}
	lease, err := controlplane.NewLease("n", controlplane.Identity{MachineID: "one"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	client, db := open(t, path)
	before, err := client.Register(t.Context(), node("one"), controlplane.RegisterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.RenewLease(t.Context(), controlplane.Renew(lease, time.Now())); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Register(t.Context(), node("two"), controlplane.RegisterOptions{}); err == nil {
		t.Error("Register() beside a machine that has just renewed its lease = nil, want it refused")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	was, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, leaseFirst := range []bool{true, false} {
		if err := os.WriteFile(path, was, 0o600); err != nil {
			t.Fatal(err)
		}
		client, db = open(t, path)
		if leaseFirst {
			next, err := controlplane.NewLease("n", controlplane.Identity{MachineID: "two"}, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.RenewLease(t.Context(), controlplane.Renew(next, time.Now())); err != nil {
				t.Errorf("RenewLease() by the other machine in a later run = %v, want it stored", err)
			}
		}
		after, err := client.Register(t.Context(), node("two"), controlplane.RegisterOptions{})
		if err != nil || after.UID == before.UID {
			t.Errorf("Register() in a later run = %v, %v, want the node replaced", after, err)
		}
		if _, err := client.Lease(t.Context(), "n"); errors.Is(err, controlplane.ErrNotFound) == leaseFirst {
			t.Errorf("Lease() = %v, lease renewed first: %v, want the old one gone with its node, and no other", err, leaseFirst)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
