//go:build integration

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/fleet"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/etcd"
)

// lease returns the host's stored Lease; nil if there is none.
func (f etcdFleet) lease(name string) *coordinationv1.Lease {
	f.t.Helper()
	text := f.ctl("get", "--print-value-only", "/hostler/leases/"+name)
	if strings.TrimSpace(text) == "" {
		return nil
	}
	lease := &coordinationv1.Lease{}
	check(f.t, json.Unmarshal([]byte(text), lease))
	return lease
}

// change stores a changed Node, as another client does.
func (f etcdFleet) change(name string, change func(*corev1.Node)) {
	f.t.Helper()
	node := f.node(name)
	change(node)
	text, err := json.Marshal(node)
	check(f.t, err)
	f.ctl("put", "/hostler/nodes/"+name, string(text))
}

// well reports whether the host is Ready and alive.
func (f etcdFleet) well(name string) func() bool {
	return func() bool { return f.ready(name) == "True "+status.ReasonHostReady && f.alive(name) }
}

// good returns how long the host's Lease lasts, by the Lease and by its etcd lease, in seconds.
func (f etcdFleet) good(name string) string {
	f.t.Helper()
	lease := f.lease(name)
	var found struct{ Kvs []struct{ Lease int64 } }
	check(f.t, json.Unmarshal([]byte(f.ctl("get", "/hostler/leases/"+name, "--write-out=json")), &found))
	if lease == nil || len(found.Kvs) == 0 {
		return "none"
	}
	var bound struct {
		Granted int `json:"granted-ttl"`
	}
	check(f.t, json.Unmarshal([]byte(f.ctl("lease", "timetolive", fmt.Sprintf("%x", found.Kvs[0].Lease), "--write-out=json")), &bound))
	return fmt.Sprintf("%d, etcd %d", *lease.Spec.LeaseDurationSeconds, bound.Granted)
}

// TestAFleetInEtcdThatIsSetBack restores a backup while a host runs.
func TestAFleetInEtcdThatIsSetBack(t *testing.T) {
	t.Parallel()
	f, folder := newFleet(t, etcd.Options{}), t.TempDir()
	const name = "rack1-node1"
	empty, full := filepath.Join(folder, "empty.db"), filepath.Join(folder, "full.db")
	check(t, f.Backup(t.Context(), empty))
	settings := f.settings(name, ", labels: {example.com/rack: r1}") + often
	a := startAgent(t, settings)
	eventually(t, "the host is there, Ready and alive", f.well(name))
	a.prints("cordon")
	first := f.node(name)

	// back waits until the host is healthy again, in its status and in etcd.
	back := func() *corev1.Node {
		t.Helper()
		eventually(t, "the host is there again, Ready and alive", f.well(name))
		stored := f.node(name)
		a.await("hostler status says so", func(s api.Status) bool {
			c := s.ControlPlane
			return c.Connected && c.LastError == "" && c.Overdue == "" && c.Paused == "" && nodeOf(s).UID == stored.UID
		})
		if len(a.status().Drift) > 0 {
			t.Errorf("drift after a backup was restored = %+v, want none", a.status().Drift)
		}
		return stored
	}
	check(t, f.Restore(t.Context(), empty))
	node := back()
	if node.UID == first.UID || node.Labels["example.com/rack"] != "r1" || !node.Spec.Unschedulable {
		t.Errorf("the Node after a backup from before it = %v, want a new one with its label, cordoned as a person wants it", node)
	}

	check(t, f.Backup(t.Context(), full))
	pressed := func() bool {
		return condition(api.Status{Node: f.node(name)}, corev1.NodeMemoryPressure).Status == corev1.ConditionTrue
	}
	a.configure(settings + "pressure: {transitionPeriod: 0s, memoryAvailable: 100%}\n")
	a.prints("reload")
	eventually(t, "the host is short of memory", pressed)
	a.prints("uncordon")
	var renewed time.Time
	eventually(t, "there is a Lease", func() bool {
		lease := f.lease(name)
		if lease != nil {
			renewed = lease.Spec.RenewTime.Time
		}
		return lease != nil
	})
	check(t, f.Restore(t.Context(), full))
	eventually(t, "the Node has the status that the backup lacks", pressed)
	eventually(t, "the Lease is renewed that was in the backup", func() bool {
		lease := f.lease(name)
		return lease != nil && lease.Spec.RenewTime.After(renewed)
	})
	if again := back(); again.UID != node.UID || !again.Spec.Unschedulable {
		t.Errorf("the Node after a backup that has it = %v, want it as of there, cordoned and with UID %s", again, node.UID)
	}
	a.await("hostler says so", func(s api.Status) bool { return nodeOf(s).Spec.Unschedulable })
	mentions(t, "hostler status", a.screen(), "MemoryPressure", "etcd at "+f.Endpoints()[0])
	a.stop()
}

// TestAFleetInEtcdSeenFromOneOfItsHosts lets another host die meanwhile.
func TestAFleetInEtcdSeenFromOneOfItsHosts(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{})
	const own, other = "rack1-node1", "rack1-node2"
	// The other's Lease of 10 s ends when it dies, and now and then on a busy machine.
	a, b := startAgent(t, f.settings(own, "")+strings.Replace(often, "10s", "1h", 1)), startAgent(t, f.settings(other, "")+often)
	for _, name := range []string{own, other} {
		eventually(t, name+" is there, Ready and alive", f.well(name))
	}
	eventually(t, "hostler nodes shows two that live", func() bool { return !strings.Contains(a.prints("nodes"), "with expired lease") })
	mentions(t, "hostler nodes", onOneLine(a.prints("nodes")), "2 nodes on etcd at "+f.Endpoints()[0], "* is this host", "* "+own+" Ready ", " "+other+" Ready ")
	eventuallyMentions(t, "hostler nodes of another host", func() string { return onOneLine(a.prints("nodes", other)) }, other+" is Ready", "lease renewed ", "valid for 10s", "control plane etcd at ", "hostler "+version)
	eventually(t, "hostler nodes -o json has the other's Lease, as this host has it", func() bool {
		one := answers[fleet.MemberOf](a, "nodes", other)
		return one.Node.Name == other && one.Lease != nil && one.ControlPlane.Node == own
	})
	watch := newScreen(t, a, "nodes", "--watch")
	eventually(t, "the watch shows both", func() bool { return strings.Contains(watch.shown(), own) && strings.Contains(watch.shown(), other) })
	if shown := watch.shown(); strings.Contains(shown, "gone") {
		t.Errorf("hostler nodes --watch of two that live = %s, want nobody gone", shown)
	}

	b.kill()
	// The Lease first expires, and etcd deletes it a little later.
	eventually(t, "the watch shows that its lease is gone", func() bool {
		shown := onOneLine(watch.shown())
		return strings.Contains(shown, "1 with expired lease") && strings.Contains(shown, " deleted ")
	})
	if code := watch.interrupt(); code != 0 {
		t.Errorf("hostler nodes --watch that is interrupted ends with %d, want 0", code)
	}
	screen := a.prints("nodes")
	mentions(t, "hostler nodes", onOneLine(screen), "1 with expired lease", other+" Ready ", " deleted ")
	if strings.Index(screen, other) > strings.Index(screen, own) {
		t.Errorf("hostler nodes = %s, want the dead host first", screen)
	}
	mentions(t, "hostler nodes of a dead host", onOneLine(a.prints("nodes", other)), other+": LEASE EXPIRED", "the control plane deletes a Lease that has expired")
	if one := answers[fleet.MemberOf](a, "nodes", other); one.Node == nil || one.Lease != nil {
		t.Errorf("hostler nodes %s -o json = %+v, want a Node without a Lease", other, one)
	}
	if list := answers[corev1.NodeList](a, "nodes"); list.Kind != "NodeList" || len(list.Items) != 2 || list.Items[0].Name != own || list.Items[1].Name != other {
		t.Errorf("hostler nodes -o json = %s of %d, want a NodeList of both by name", list.Kind, len(list.Items))
	}
	if r := a.hostler("nodes", "rack1-node3"); r.code != 1 || !strings.Contains(r.err, "there is no node rack1-node3") || !strings.Contains(r.err, other) {
		t.Errorf("hostler nodes of nobody = code %d, %s, want that there is none, and those like it", r.code, r.err)
	}
	check(t, f.Members[0].Kill())
	if r := a.hostler("nodes"); r.code != 1 || r.out != "" || !strings.Contains(r.err, "hint: run `hostler doctor`") {
		t.Errorf("hostler nodes without an etcd = code %d, %s%s, want no partial list, and a hint", r.code, r.out, r.err)
	}
	a.stop()
}

// screen is a command that prints until it is interrupted.
type screen struct {
	t    *testing.T
	cmd  *exec.Cmd
	file string
}

func newScreen(t *testing.T, a *agent, args ...string) screen {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "screen"))
	check(t, err)
	defer out.Close()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{"HOSTLER_SOCKET=" + a.socket}, out, out
	check(t, cmd.Start())
	return screen{t, cmd, out.Name()}
}

// shown returns all of its output.
func (s screen) shown() string {
	s.t.Helper()
	text, err := os.ReadFile(s.file)
	check(s.t, err)
	return string(text)
}

// interrupt interrupts it as Ctrl-C does, and returns its exit code.
func (s screen) interrupt() int {
	s.t.Helper()
	check(s.t, s.cmd.Process.Signal(syscall.SIGINT))
	_ = s.cmd.Wait() // the exit code has the result
	return s.cmd.ProcessState.ExitCode()
}

// TestAFleetInEtcdThatAsksForLongerLeases requests longer Leases from all hosts, and from one.
func TestAFleetInEtcdThatAsksForLongerLeases(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{})
	const name, setting = "rack1-node1", "/hostler/settings/lease-duration"
	a := startAgent(t, f.settings(name, "")+often)
	eventually(t, "the host is there, Ready and alive", f.well(name))
	becomes := func(what, want string) {
		t.Helper()
		eventually(t, what, func() bool { return f.good(name) == want })
	}
	becomes("its Lease is as configured", "10, etcd 10")
	if pace := a.status().LeasePace; pace != nil {
		t.Errorf("the requested pace = %+v, want none", pace)
	}

	f.ctl("put", setting, "2m")
	becomes("its Lease has the duration for all hosts", "120, etcd 120")
	mentions(t, "hostler status", a.screen(), "valid for 120s; the control plane's setting for all hosts requests 2m0s")
	f.ctl("put", setting, "soon")
	s := a.await("the status reports the invalid value", func(s api.Status) bool { return s.LeasePace != nil && len(s.LeasePace.Faults) == 1 })
	mentions(t, "what it says", s.LeasePace.Faults[0].Message+s.LeasePace.Faults[0].Fix, `"soon"`, "settings/lease-duration")
	if s.LeasePace.Duration.Duration != 2*time.Minute || f.good(name) != "120, etcd 120" {
		t.Errorf("the Lease after a slip = %v, %s, want it as before", s.LeasePace.Duration, f.good(name))
	}
	f.ctl("del", setting)
	becomes("its Lease is as configured again", "10, etcd 10")
	a.await("no pace is requested", func(s api.Status) bool { return s.LeasePace == nil })

	f.change(name, func(n *corev1.Node) { n.Annotations[controlplane.AnnotationLeaseDuration] = "20s" })
	becomes("its Lease is as its Node asks for", "20, etcd 20")
	f.change(name, func(n *corev1.Node) { delete(n.Annotations, controlplane.AnnotationLeaseDuration) })
	becomes("its Lease is as configured once more", "10, etcd 10")
	a.stop()
}

// TestVerifyingAFleetInEtcdLeavesNothingBehind verifies a cluster with a registered host: with that
// host's rights, and with rights to everything.
func TestVerifyingAFleetInEtcdLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{TLS: true})
	f.ctl("put", "/hostler/nodes/resident", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"resident"}}`)
	f.ctl("put", "/hostler/settings/lease-duration", "2m")
	check(t, f.Grant(t.Context(), "resident", "", "readwrite", "/hostler/nodes/resident", "/hostler/leases/resident", "/hostler/events/resident/"))
	check(t, f.Grant(t.Context(), "verifier", "", "readwrite", "/hostler/"))
	check(t, f.EnableAuth(t.Context()))
	stored := func() []byte {
		t.Helper()
		var all struct{ Kvs json.RawMessage } // without the store's revision
		check(t, json.Unmarshal([]byte(f.ctl("get", "--prefix", "/hostler/", "--write-out=json")), &all))
		return all.Kvs
	}
	before := stored()
	verify := func(user string, args ...string) answer {
		t.Helper()
		files, err := f.Client(user, 48*time.Hour)
		check(t, err)
		file := filepath.Join(t.TempDir(), user+".yaml")
		check(t, os.WriteFile(file, fmt.Appendf(nil, "controlPlane: {type: etcd, etcd: {endpoints: [%s], tls: {ca: %s, certificate: %s, key: %s}}}\nnode: {name: resident}\n",
			f.Endpoints()[0], f.CAFile, files.Certificate, files.Key), 0o644))
		r := verified(t, file, args...)
		if now := stored(); !bytes.Equal(now, before) {
			t.Errorf("what is stored after a verification by %s = %s, want it as before, %s", user, now, before)
		}
		return r
	}
	r := verify("resident", "--run", "stored as requested|lease that is not renewed")
	mentions(t, "verify as a host", onOneLine(r.out), "not allowed by the credentials", "was not verified", " 0 failed", "etcdctl role grant-permission")
	if r.code != 1 {
		t.Errorf("verify as a host: exit code %d, want 1, since nothing could be tried", r.code)
	}

	r = verify("verifier", "-o", "json")
	var found struct {
		ControlPlane struct{ Type, Endpoint, Prefix string }
		Checks       []struct{ Check, Status, Message string }
	}
	if err := json.Unmarshal([]byte(r.out), &found); err != nil || r.code != 0 || found.ControlPlane.Endpoint != f.Endpoints()[0] || len(found.Checks) < 40 {
		t.Fatalf("verify with all rights = code %d, %v: %s%s, want it to keep its promises", r.code, err, r.out, r.err)
	}
	counts := map[string]int{}
	for _, check := range found.Checks {
		if counts[check.Status]++; check.Status == "failed" || strings.Contains(check.Message, "credentials") {
			t.Errorf("verify with all rights: %+v, want it tried, and ok", check)
		}
	}
	if counts["ok"] < 40 {
		t.Errorf("verify with all rights: %v, want most of them ok: %s", counts, r.out)
	}
}

// verified runs `hostler controlplane verify`, again if it failed because something did not answer in time.
func verified(t testing.TB, config string, args ...string) answer {
	t.Helper()
	for tries := 0; ; tries++ {
		r := command(t, []string{"HOSTLER_CONFIG=" + config}, append([]string{"controlplane", "verify"}, args...)...)
		out := onOneLine(r.out + r.err)
		if r.code == 0 || tries == 5 || strings.Contains(out, " 0 failed") || !strings.Contains(out, "deadline exceeded") {
			return r
		}
	}
}

// TestAHostOutlivesADiskThatStalls blocks the disk of the member that it uses, and then all disks.
func TestAHostOutlivesADiskThatStalls(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{Members: 3, Disks: true})
	const name = "rack1-node1"
	a := startAgent(t, f.settings(name, "")+"lease: {renewInterval: 1s}\nstatus: {updateInterval: 1s}\n")
	eventually(t, "the host is there, Ready and alive", f.well(name))
	used := a.status().ControlPlane.Endpoint
	for _, m := range f.Members {
		if m.Endpoint == used {
			check(t, m.Freeze())
		}
	}
	a.await("hostler talks to another member", func(s api.Status) bool {
		return s.ControlPlane.Endpoint != used && s.ControlPlane.LastError == "" && s.ControlPlane.Overdue == ""
	})
	a.prints("cordon")
	for _, m := range f.Members {
		check(t, m.Thaw())
		check(t, f.Ready(t.Context(), m))
	}
	eventually(t, "the node with one disk less is cordoned and alive", func() bool { node := f.node(name); return node != nil && node.Spec.Unschedulable && f.alive(name) })

	for _, m := range f.Members {
		check(t, m.Freeze())
	}
	a.await("hostler says that nobody answers", func(s api.Status) bool { return s.ControlPlane.LastError != "" })
	for _, m := range f.Members {
		check(t, m.Thaw())
	}
	a.await("all is well again", func(s api.Status) bool { return s.ControlPlane.LastError == "" && s.ControlPlane.Overdue == "" })
	a.prints("uncordon")
	eventually(t, "the host is there, Ready and alive", f.well(name))
	a.stop()
}
