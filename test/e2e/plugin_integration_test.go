//go:build integration

package e2e_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/httpstore"
)

// endpoint is an HTTPS one that keeps hosts, and how the example of a plugin gets there.
type endpoint struct {
	*httpstore.Store
	t       *testing.T
	url     string
	command string // as the configuration has it
}

func newEndpoint(t *testing.T) endpoint {
	t.Helper()
	store := httpstore.New()
	server := httptest.NewTLSServer(store)
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	check(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o644))
	return endpoint{store, t, server.URL, fmt.Sprintf("controlPlane: {type: plugin, plugin: {command: [%s, -url, %q, -ca, %s]}}\n", examplePlugin, server.URL, ca)}
}

// node is what the fleet has of that host; nil if it has nothing.
func (f endpoint) node(name string) *corev1.Node {
	f.t.Helper()
	value := f.Value("nodes/" + name)
	if value == nil {
		return nil
	}
	var n corev1.Node
	check(f.t, json.Unmarshal(value, &n))
	return &n
}

// renewed is when the host's Lease was renewed last; never if there is none.
func (f endpoint) renewed(name string) (at time.Time) {
	f.t.Helper()
	value := f.Value("leases/" + name)
	if value == nil {
		return at
	}
	var l coordinationv1.Lease
	check(f.t, json.Unmarshal(value, &l))
	return l.Spec.RenewTime.Time
}

// ready is the status and the reason of condition Ready, as the fleet has it.
func (f endpoint) ready(name string) string {
	n := f.node(name)
	if n == nil {
		return ""
	}
	c := condition(api.Status{Node: n}, corev1.NodeReady)
	return string(c.Status) + " " + c.Reason
}

// children are the processes that the agent has started and not ended.
func (a *agent) children() (ids []int) {
	a.t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", a.process.PID))
	check(a.t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // of a thread that has ended meanwhile
		}
		for _, word := range strings.Fields(string(text)) {
			id, err := strconv.Atoi(word)
			check(a.t, err)
			ids = append(ids, id)
		}
	}
	return ids
}

// TestAHostWhoseControlPlaneIsAPlugin is its life, with the plugin that docs/plugin.md
// shows, run by hostler.
func TestAHostWhoseControlPlaneIsAPlugin(t *testing.T) {
	t.Parallel()
	f := newEndpoint(t)
	const name = "plugged"
	a := startAgent(t, f.command+"node: {name: plugged, labels: {example.com/rack: r1}}\nlease: {renewInterval: 1s}\nstatus: {updateInterval: 1s}\n")
	ready := func() bool { return f.ready(name) == "True "+status.ReasonHostReady }
	eventually(t, "the fleet sees the host Ready", ready)
	eventually(t, "the fleet has a Lease", func() bool { return !f.renewed(name).IsZero() })
	if label := f.node(name).Labels["example.com/rack"]; label != "r1" {
		t.Errorf("the Node's label is %q, want r1", label)
	}
	s := a.await("the plugin serves", func(s api.Status) bool { return s.ControlPlane.Connected && loopOf(t, s, "plugin").Healthy })
	if s.ControlPlane.Type != "plugin" || s.ControlPlane.Endpoint != f.url {
		t.Errorf("hostler status says %+v, want a plugin and %s", s.ControlPlane, f.url)
	}

	knows := "plugin https 1.0.0, speaking protocol 1 for " + f.url + ", answers, and knows node " + name
	t.Run("hostler doctor finds it well", func(t *testing.T) {
		mentions(t, "hostler doctor", a.hostler("doctor", "-o", "json").out, knows, "runs, and has not ended since the agent was started", "it tells of no changes: they are looked for every 10 seconds", "its lease is renewed")
	})
	t.Run("a plugin that is killed comes back, and the lease is kept", func(t *testing.T) {
		ids := a.children()
		if len(ids) != 1 {
			t.Fatalf("the agent has the children %v, want the plugin alone", ids)
		}
		before := f.renewed(name)
		check(t, syscall.Kill(ids[0], syscall.SIGKILL))
		eventually(t, "another one runs, and the lease is renewed through it", func() bool {
			if f.renewed(name).IsZero() {
				t.Error("the Lease has ended meanwhile")
			}
			now := a.children()
			return len(now) == 1 && now[0] != ids[0] && f.renewed(name).After(before.Add(2*time.Second))
		})
		a.await("the plugin is shown as running again", func(s api.Status) bool {
			l := loopOf(t, s, "plugin")
			return l.Healthy && l.Restarts > 0
		})
		mentions(t, "hostler doctor", a.hostler("doctor", "-o", "json").out, knows, "it has ended once since the agent was started", "signal: killed")
	})
	t.Run("a person on the host", func(t *testing.T) {
		a.prints("cordon")
		if !f.node(name).Spec.Unschedulable {
			t.Error("the fleet has it schedulable after a cordon")
		}
		a.prints("uncordon")
		mentions(t, "hostler leave", a.prints("leave"), "Node and Lease are deleted")
		if f.node(name) != nil || !f.renewed(name).IsZero() {
			t.Error("the fleet has Node or Lease after a leave")
		}
		a.prints("leave", "--undo")
		eventually(t, "it is Ready once that is undone", ready)
	})
	t.Run("its promises are verified by a plugin of the command's own", func(t *testing.T) {
		r := command(t, []string{"HOSTLER_CONFIG=" + a.config}, "controlplane", "verify")
		mentions(t, "hostler controlplane verify", onOneLine(r.out), " 0 failed")
		if r.code != 0 {
			t.Errorf("hostler controlplane verify: exit code %d\n%s%s", r.code, r.out, r.err)
		}
		if f.node(name) == nil {
			t.Error("the host's own Node is gone after a verification")
		}
	})
	ids := a.children()
	a.stop()
	for _, id := range ids {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", id)); err == nil {
			t.Errorf("process %d, the plugin, outlives the agent", id)
		}
	}
	if _, err := os.Stat(a.socket + ".plugin"); err == nil {
		t.Error("the folder of the plugin's socket is left")
	}
	t.Run("hostler doctor finds it well without an agent", func(t *testing.T) {
		before := f.node(name)
		mentions(t, "hostler doctor", command(t, []string{"HOSTLER_CONFIG=" + a.config}, "doctor", "-o", "json").out, knows, "can be run; it was, for this look")
		if after := f.node(name); after.ResourceVersion != before.ResourceVersion {
			t.Error("the fleet's Node has changed under a look")
		}
		check(t, os.WriteFile(a.config, []byte("controlPlane: {type: plugin, plugin: {command: [/bin/sh, -c, \"echo no such fleet >&2; exit 3\"]}}\n"), 0o600))
		mentions(t, "hostler doctor", command(t, []string{"HOSTLER_CONFIG=" + a.config}, "doctor", "-o", "json").out, "was run for this look, and does not serve", "exit status 3: it said: no such fleet")
	})
}

// TestTheLastWordOfAShutdownGoesThroughThePlugin has it end after that.
func TestTheLastWordOfAShutdownGoesThroughThePlugin(t *testing.T) {
	login, manager := logind(t), serviceManager(t)
	f := newEndpoint(t)
	const name = "goes-down"
	a := newAgent(t, f.command+"node: {name: goes-down}\n"+phases)
	a.notify = manager
	a.start()
	a.awaitGuard(shutdown.Armed)
	eventually(t, "the fleet sees the host Ready", func() bool { return f.ready(name) == "True "+status.ReasonHostReady })

	login.Manager.SetProperty("SystemState", "stopping") // past logind
	a.signal(syscall.SIGTERM)
	if code := a.exit(); code != 0 {
		t.Errorf("exit code = %d, want 0", code)
	}
	if now := f.ready(name); now != "False "+status.ReasonDraining {
		t.Errorf("when the host went down the fleet had %q, want it not ready, and why", now)
	}
	login.Manager.SetProperty("SystemState", "running")
}
