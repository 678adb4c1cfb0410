//go:build integration

package e2e_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/httpstore"
	"hostler.io/hostler/test/lab"
)

// endpoint is an HTTPS server that stores hosts, and the example of a plugin that uses it.
type endpoint struct {
	*httpstore.Store
	t      *testing.T
	url    string
	socket string // of the plugin
	plugin *lab.Daemon
}

// newEndpoint starts both, for the time of the test.
func newEndpoint(t *testing.T) endpoint {
	t.Helper()
	store := httpstore.New()
	server := httptest.NewTLSServer(store)
	t.Cleanup(server.Close)
	folder, err := os.MkdirTemp(lab.Dir, "plugin-")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(folder)) })
	ca := filepath.Join(folder, "ca.crt")
	check(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o644))
	f := endpoint{Store: store, t: t, url: server.URL, socket: filepath.Join(folder, "plugin.sock")}
	f.plugin = lab.NewDaemon("plugin", lab.Tool{Path: examplePlugin}, folder, nil, "-socket", f.socket, "-url", f.url, "-ca", ca)
	check(t, f.plugin.Start())
	t.Cleanup(func() { check(t, f.plugin.Kill()) })
	return f
}

// configuration returns hostler's configuration for the plugin.
func (f endpoint) configuration() string {
	return fmt.Sprintf("controlPlane: {type: plugin, plugin: {socket: %s}}\n", f.socket)
}

// node returns the fleet's Node of that host; nil if there is none.
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

// renewed returns when the host's Lease was last renewed; zero if there is none.
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

// ready returns status and reason of the fleet's condition Ready.
func (f endpoint) ready(name string) string {
	n := f.node(name)
	if n == nil {
		return ""
	}
	c := condition(api.Status{Node: n}, corev1.NodeReady)
	return string(c.Status) + " " + c.Reason
}

// TestAHostWhoseControlPlaneIsAPlugin follows a host's life with the plugin of
// docs/howto/control-plane-plugin.md.
func TestAHostWhoseControlPlaneIsAPlugin(t *testing.T) {
	t.Parallel()
	f := newEndpoint(t)
	const name = "plugged"
	a := startAgent(t, f.configuration()+"node: {name: plugged, labels: {example.com/rack: r1}}\nlease: {renewInterval: 1s}\nstatus: {updateInterval: 1s}\n")
	ready := func() bool { return f.ready(name) == "True "+status.ReasonHostReady }
	eventually(t, "the fleet sees the host Ready", ready)
	eventually(t, "the fleet has a Lease", func() bool { return !f.renewed(name).IsZero() })
	if label := f.node(name).Labels["example.com/rack"]; label != "r1" {
		t.Errorf("the Node's label is %q, want r1", label)
	}
	s := a.await("the plugin serves", func(s api.Status) bool { return s.ControlPlane.Connected })
	if s.ControlPlane.Type != "plugin" || s.ControlPlane.Endpoint != f.url {
		t.Errorf("hostler status says %+v, want a plugin and %s", s.ControlPlane, f.url)
	}

	knows := "plugin https 1.0.0, speaking protocol 1 for " + f.url + ", answers, and node " + name + " exists"
	t.Run("hostler doctor finds it well", func(t *testing.T) {
		eventuallyMentions(t, "hostler doctor", a.doctor, knows, "it cannot watch: hostler reads changes every 10 seconds", "the lease is renewed")
	})
	t.Run("a plugin that is killed and started again is reached, and the lease is kept", func(t *testing.T) {
		before := f.renewed(name)
		check(t, f.plugin.Kill())
		check(t, os.Remove(f.socket)) // systemd does it with RuntimeDirectory=
		eventuallyMentions(t, "hostler doctor", a.doctor, "socket does not exist: is the plugin running?", "start the service of the plugin")
		check(t, f.plugin.Start())
		eventually(t, "the lease is renewed through it", func() bool { return f.renewed(name).After(before.Add(2 * time.Second)) })
		eventuallyMentions(t, "hostler doctor", a.doctor, knows)
	})
	t.Run("a person on the host", func(t *testing.T) {
		a.prints("cordon")
		eventually(t, "the fleet has it cordoned", func() bool { return f.node(name).Spec.Unschedulable })
		a.prints("uncordon")
		mentions(t, "hostler leave", a.prints("leave"), "deleted Node and Lease")
		if f.node(name) != nil || !f.renewed(name).IsZero() {
			t.Error("the fleet has Node or Lease after a leave")
		}
		a.prints("leave", "--undo")
		eventually(t, "it is Ready once that is undone", ready)
	})
	t.Run("its promises are verified beside the agent", func(t *testing.T) {
		r := verified(t, a.config)
		mentions(t, "hostler controlplane verify", onOneLine(r.out), " 0 failed")
		if r.code != 0 {
			t.Errorf("hostler controlplane verify: exit code %d\n%s%s", r.code, r.out, r.err)
		}
		if f.node(name) == nil {
			t.Error("the host's own Node is gone after a verification")
		}
	})
	a.stop()
	t.Run("hostler doctor finds it well without an agent", func(t *testing.T) {
		before := f.node(name)
		alone := func() string { return command(t, []string{"HOSTLER_CONFIG=" + a.config}, "doctor", "-o", "json").out }
		eventuallyMentions(t, "hostler doctor", alone, knows)
		if after := f.node(name); after.ResourceVersion != before.ResourceVersion {
			t.Error("the fleet's Node has changed during a read")
		}
		check(t, f.plugin.Kill())
		eventuallyMentions(t, "hostler doctor", alone, "nothing listens on it: is the plugin running?")
	})
}

// TestTheFinalStatusOfAShutdownGoesThroughThePlugin checks that the plugin receives the final
// status of a shutdown.
func TestTheFinalStatusOfAShutdownGoesThroughThePlugin(t *testing.T) {
	login, manager := logind(t), serviceManager(t)
	// The drain takes until the fleet has seen it: hostler waits only seconds for that.
	web := pod(t, "web", nil, 10*time.Minute, endsOnUSR1())
	f := newEndpoint(t)
	const name = "goes-down"
	a := newAgent(t, f.configuration()+"node: {name: goes-down}\n"+phases)
	a.notify = manager
	a.start()
	a.awaitGuard(shutdown.Armed)
	eventually(t, "the fleet sees the host Ready", func() bool { return f.ready(name) == "True "+status.ReasonHostReady })

	login.Manager.SetProperty("SystemState", "stopping") // without logind notification
	a.signal(syscall.SIGTERM)
	eventually(t, "the fleet sees that the host drains", func() bool { return f.ready(name) == "False "+status.ReasonDraining })
	endAsked(t, web)
	if code := a.exit(); code != 0 {
		t.Errorf("exit code = %d, want 0", code)
	}
	if now := f.ready(name); now != "False "+status.ReasonDraining {
		t.Errorf("when the host went down the fleet had %q, want it not ready, and why", now)
	}
	login.Manager.SetProperty("SystemState", "running")
}
