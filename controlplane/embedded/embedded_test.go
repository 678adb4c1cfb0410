package embedded_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/conformance"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/controlplane/embedded"
	"hostler.io/hostler/internal/statefile"
)

var update = flag.Bool("update", false, "rewrite the results of the conformance checks")

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func open(t *testing.T, path string) (*embedded.Client, *statefile.Folder) {
	t.Helper()
	return openOn(t, path, "m1")
}

// openOn opens the control plane on the machine of that ID.
func openOn(t *testing.T, path, machine string) (*embedded.Client, *statefile.Folder) {
	t.Helper()
	folder, err := statefile.Open(path, quiet())
	if err != nil {
		t.Fatal(err)
	}
	return embedded.New(embedded.Options{
		Folder: folder, Endpoint: path, Machine: controlplane.Identity{MachineID: machine}, Log: quiet(),
	}), folder
}

func TestConformance(t *testing.T) {
	controlplanetest.Record(t, embedded.Type, *update, func(t *testing.T) controlplanetest.Backend {
		path := t.TempDir()
		client, db := openOn(t, path, "")
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		return controlplanetest.Backend{
			Client: client,
			Inject: func(conformance.Fault) (func(), error) {
				return nil, &conformance.AbsentError{Why: "there is no server: it is in the agent itself"}
			},
			Restart: func(context.Context) (controlplane.Client, error) {
				if err := db.Close(); err != nil {
					return nil, err
				}
				client, db = openOn(t, path, "")
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

func inMemory() *embedded.Client { return in(statefile.NewMemory()) }

func in(folder *statefile.Folder) *embedded.Client {
	return embedded.New(embedded.Options{Folder: folder, Endpoint: "memory", Log: quiet()})
}

func TestRenewalsAreWrittenTogether(t *testing.T) {
	path := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		client, folder := open(t, path)
		if _, err := client.Register(t.Context(), node("n"), controlplane.RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _ = folder.Run(ctx) })
		time.Sleep(time.Minute)
		before := modified(t, path)
		keeper, err := controlplane.NewLeaseKeeper(client, controlplane.LeasePolicy{Node: "n", Duration: 40 * time.Second, Interval: 10 * time.Second}, quiet())
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() { _ = keeper.Run(ctx) })
		writes, last := 0, time.Time{}
		for range 600 {
			time.Sleep(time.Second)
			synctest.Wait()
			if now := modified(t, path)["leases.state"]; !now.Equal(last) {
				writes, last = writes+1, now
			}
		}
		if writes < 15 || writes > 20 {
			t.Errorf("the lease was written %d times in 10 minutes, want once in 30 s", writes)
		}
		after := modified(t, path)
		delete(after, "leases.state")
		if !maps.Equal(after, before) {
			t.Errorf("files were written at %v, before the renewals at %v, want no other than that of the lease", after, before)
		}
		cancel()
		all.Wait()
		if err := folder.Close(); err != nil {
			t.Error(err)
		}
	})
}

// modified returns when each file of a folder was written.
func modified(t *testing.T, path string) map[string]time.Time {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]time.Time{}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		times[entry.Name()] = info.ModTime()
	}
	return times
}

func TestEventsAreBounded(t *testing.T) {
	folder := statefile.NewMemory()
	for run := range 3 {
		client := in(folder)
		for i := range 700 {
			if err := client.PublishEvent(t.Context(), newEvent(run, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var stored []any
	folder.File("events").Load(&stored)
	events, err := in(folder).Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if first, last := events[0].Name, events[len(events)-1].Name; len(stored) != embedded.MaxEvents || len(events) != embedded.MaxEvents || first != "e-1-400" || last != "e-2-699" {
		t.Errorf("Events() = %d from %s to %s, %d stored, want %d from e-1-400 to e-2-699", len(events), first, last, len(stored), embedded.MaxEvents)
	}
}

// newEvent returns the i-th Event of a run, with one Event a second.
func newEvent(run, i int) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("e-%d-%d", run, i), Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{Name: "n"},
		LastTimestamp:  metav1.Unix(int64(1000*run+i), 0),
	}
}

func TestAnUnreadableFileIsPassedOver(t *testing.T) {
	path := t.TempDir()
	client, folder := open(t, path)
	if _, err := client.Register(t.Context(), node("n"), controlplane.RegisterOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := folder.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"leases.state", "events.state"} {
		if err := os.WriteFile(filepath.Join(path, name), []byte("{\x00"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	client, folder = open(t, path)
	if _, err := client.Node(t.Context(), "n"); err != nil || folder.Health().SetAside == "" {
		t.Errorf("Node() beside files that cannot be read = %v, %+v, want no error, and them set aside", err, folder.Health())
	}
	if err := folder.Close(); err != nil {
		t.Error(err)
	}
}

func TestANewNameReplacesTheNode(t *testing.T) {
	client := inMemory()
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
	client := inMemory()
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
	path := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(path, nil, 0o600); err != nil { // a file where a folder is needed
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
	client := inMemory()
	if _, err := client.Cordon(t.Context(), "n", true, false); err == nil {
		t.Error("Cordon() of no node = nil, want an error")
	}
	if _, err := client.Register(t.Context(), node("n"), controlplane.RegisterOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, true, false} {
		n, err := client.Cordon(t.Context(), "n", want, want)
		if err != nil || n.Spec.Unschedulable != want {
			t.Errorf("Cordon(%v) = %v, %v, want it so", want, n, err)
		}
		wantTaint(t, n, want)
	}
}

func TestANodeThatIsCreatedCordonedHasTheTaint(t *testing.T) {
	client := inMemory()
	cordoned := node("n")
	cordoned.Spec.Unschedulable = true
	cordoned.Spec.Taints = []corev1.Taint{{Key: "ours", Effect: corev1.TaintEffectNoSchedule}}
	n, err := client.Register(t.Context(), cordoned, controlplane.RegisterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantTaint(t, n, true)
	if n, err = client.Cordon(t.Context(), "n", false, false); err != nil || len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "ours" {
		t.Errorf("Cordon(false) = %v, %v, want the other taint alone", n, err)
	}
}

// wantTaint checks for the taint of cordoned Nodes.
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

// No other client can renew a Lease in this store, so there is nothing to watch.
func TestALeaseOfAnEarlierRunByAnotherMachineIsDead(t *testing.T) {
	path := t.TempDir()
	node := func(machine string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{MachineID: machine}}}
	}
	lease, err := controlplane.NewLease("n", controlplane.Identity{MachineID: "one"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	client, db := openOn(t, path, "one")
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
	was := os.DirFS(path)
	for _, leaseFirst := range []bool{true, false} {
		path := t.TempDir()
		if err := os.CopyFS(path, was); err != nil {
			t.Fatal(err)
		}
		client, db = openOn(t, path, "two")
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
