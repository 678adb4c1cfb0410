//go:build integration

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/etcd"
)

// etcdFleet is a control plane without Kubernetes.
type etcdFleet struct {
	*etcd.Cluster
	t *testing.T
}

func newFleet(t *testing.T, o etcd.Options) etcdFleet { return etcdFleet{etcd.For(t, o), t} }

// ctl runs etcdctl as the administrator.
func (f etcdFleet) ctl(args ...string) string {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	out, err := f.Ctl(ctx, args...)
	check(f.t, err)
	return out
}

// node returns the stored Node; nil if there is none.
func (f etcdFleet) node(name string) *corev1.Node {
	f.t.Helper()
	text := f.ctl("get", "--print-value-only", "/hostler/nodes/"+name)
	if strings.TrimSpace(text) == "" {
		return nil
	}
	node := &corev1.Node{}
	check(f.t, json.Unmarshal([]byte(text), node))
	return node
}

// ready returns status and reason of the stored Node's condition Ready.
func (f etcdFleet) ready(name string) string {
	c := condition(api.Status{Node: f.node(name)}, corev1.NodeReady)
	return fmt.Sprintf("%s %s", c.Status, c.Reason)
}

// alive reports whether the host's Lease exists.
func (f etcdFleet) alive(name string) bool {
	return strings.Contains(f.ctl("get", "--keys-only", "/hostler/leases/"+name), "/hostler/leases/"+name)
}

// revision returns etcd's revision, which every change increases.
func (f etcdFleet) revision() string {
	f.t.Helper()
	revision := regexp.MustCompile(`"revision":\d+`).FindString(f.ctl("endpoint", "status", "--write-out=json"))
	if revision == "" {
		f.t.Fatal("etcd returns no revision")
	}
	return revision
}

// settings returns the configuration of an agent in this fleet.
func (f etcdFleet) settings(name, more string) string {
	return fmt.Sprintf("controlPlane: {type: etcd, etcd: {endpoints: [%s]}}\nnode: {name: %s%s}\n", strings.Join(f.Endpoints(), ", "), name, more)
}

// TestAHostOfAFleetInEtcd follows a host's life as a reader of etcd sees it.
func TestAHostOfAFleetInEtcd(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{})
	const name = "rack1-node1"
	a := startAgent(t, f.settings(name, ", labels: {example.com/rack: r1}, taints: [{key: example.com/new, effect: NoSchedule}]")+
		"lease: {duration: 10s, renewInterval: 1s}\nstatus: {updateInterval: 1s}\n")
	wellIn := func(what string) {
		t.Helper()
		eventually(t, what, func() bool { return f.ready(name) == "True "+status.ReasonHostReady && f.alive(name) })
	}
	wellIn("the host is there, Ready and alive")
	if node := f.node(name); node.Labels["example.com/rack"] != "r1" || len(node.Spec.Taints) != 1 || node.Kind != "Node" || node.UID == "" {
		t.Errorf("the node in etcd = %v, want its label and its taint", node)
	}
	mentions(t, "hostler status", a.screen(), "etcd at "+f.Endpoints()[0])
	eventuallyMentions(t, "hostler doctor", a.doctor, "etcd answers, and node "+name+" exists", "etcd allows everything that hostler needs")
	eventually(t, "an Event reports the start", func() bool {
		return strings.Contains(f.ctl("get", "--prefix", "/hostler/events/"+name+"/"), `"Registered"`)
	})

	t.Run("a cordon by a person on the host, and one by a person elsewhere", func(t *testing.T) {
		a.prints("cordon")
		eventually(t, "the node in etcd is cordoned after hostler cordon", func() bool { return f.node(name).Spec.Unschedulable })
		a.prints("uncordon")
		node := f.node(name)
		node.Spec.Unschedulable = true
		text, err := json.Marshal(node)
		check(t, err)
		f.ctl("put", "/hostler/nodes/"+name, string(text))
		eventually(t, "hostler shows the cordon", func() bool { return strings.Contains(a.screen(), "SchedulingDisabled") })
		a.prints("uncordon")
	})
	t.Run("what somebody else changes is set again", func(t *testing.T) {
		node := f.node(name)
		node.Labels["example.com/rack"], node.Spec.Taints = "r2", nil
		text, err := json.Marshal(node)
		check(t, err)
		f.ctl("put", "/hostler/nodes/"+name, string(text))
		eventually(t, "label and taint are there again", func() bool {
			node := f.node(name)
			return node.Labels["example.com/rack"] == "r1" && len(node.Spec.Taints) == 1
		})
	})
	t.Run("a node that is deleted is registered again", func(t *testing.T) {
		before := f.node(name).UID
		f.ctl("del", "/hostler/nodes/"+name)
		eventually(t, "there is a new node", func() bool { n := f.node(name); return n != nil && n.UID != before })
		wellIn("it is Ready and alive")
	})
	t.Run("an agent that dies, and restarts", func(t *testing.T) {
		a.kill()
		eventually(t, "its lease is gone", func() bool { return !f.alive(name) })
		if f.node(name) == nil {
			t.Error("the node of a host that is dead is gone, want it to stay")
		}
		before := f.revision()
		found(t, a.diagnoseAlone(), "etcd", doctor.OK, "etcd answers, and node "+name+" exists")
		if after := f.revision(); after != before {
			t.Errorf("hostler doctor has brought etcd from revision %s to %s, want nothing changed", before, after)
		}
		a.start()
		wellIn("it is back")
	})
	t.Run("etcd dies, and restarts", func(t *testing.T) {
		check(t, f.Members[0].Kill())
		eventually(t, "hostler reports the overdue lease", func() bool { return a.status().ControlPlane.Overdue != "" })
		check(t, f.Run(t.Context()))
		wellIn("the host is there again")
	})
	t.Run("another cluster needs a restart", func(t *testing.T) {
		a.configure(strings.Replace(f.settings(name, ""), "http://", "http://127.0.0.1:1, http://", 1))
		if r := a.hostler("reload"); r.code != 1 || !strings.Contains(r.err+r.out, "controlPlane.etcd.endpoints") {
			t.Errorf("hostler reload = code %d, %s%s, want it refused by name", r.code, r.out, r.err)
		}
	})
	t.Run("a host that leaves", func(t *testing.T) {
		a.prints("leave")
		if f.node(name) != nil || f.alive(name) {
			t.Error("node and lease are in etcd after hostler leave, want them gone")
		}
		a.prints("leave", "--undo")
		wellIn("it is back")
	})
	a.stop()
}

// TestAFleetInEtcdSeesAShutdownBeforeTheHostIsGone also checks the return of the host.
func TestAFleetInEtcdSeesAShutdownBeforeTheHostIsGone(t *testing.T) {
	login := logind(t)
	web := pod(t, "web", nil, 10*time.Minute, endsOnUSR1())
	f := newFleet(t, etcd.Options{})
	const name = "comes-and-goes"
	a := startAgent(t, f.settings(name, "")+phases)
	a.awaitGuard(shutdown.Armed)
	ready := func() bool { return f.ready(name) == "True "+status.ReasonHostReady }
	eventually(t, "the fleet sees the host Ready", ready)
	check(t, login.Reboot(t.Context()))
	eventually(t, "the fleet sees that it drains", func() bool { return f.ready(name) == "False "+status.ReasonDraining })
	endAsked(t, web)
	a.awaitGuard(shutdown.Released)
	a.stop()
	boot(t, login)
	a.start()
	eventually(t, "the fleet sees the host Ready again", ready)
	eventually(t, "the Node has the result of the shutdown", func() bool {
		return strings.Contains(f.ctl("get", "--prefix", "/hostler/events/"+name+"/"), `"LastShutdownGraceful"`)
	})
	a.stop()
}

// TestAHostOutlivesTheMemberThatItTalksTo uses a user with rights only to its own keys.
func TestAHostOutlivesTheMemberThatItTalksTo(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{Members: 3, TLS: true})
	const name = "rack1-node1"
	files, err := f.Client(name, 48*time.Hour)
	check(t, err)
	check(t, f.Grant(t.Context(), name, "", "readwrite", "/hostler/nodes/"+name, "/hostler/leases/"+name, "/hostler/events/"+name+"/"))
	f.ctl("role", "grant-permission", name, "read", "/hostler/settings/lease-duration")
	check(t, f.EnableAuth(t.Context()))
	a := startAgent(t, fmt.Sprintf("controlPlane: {type: etcd, etcd: {endpoints: [%s], tls: {ca: %s, certificate: %s, key: %s}}}\nnode: {name: %s}\n",
		strings.Join(f.Endpoints(), ", "), f.CAFile, files.Certificate, files.Key, name)+"status: {updateInterval: 1s}\n")
	eventually(t, "the host is there, Ready and alive", func() bool { return f.ready(name) == "True "+status.ReasonHostReady && f.alive(name) })
	eventuallyMentions(t, "hostler doctor", a.doctor, "etcd answers, and node "+name+" exists", "the certificate is valid until", "etcd allows everything that hostler needs")
	used := a.status().ControlPlane.Endpoint
	for _, m := range f.Members {
		if m.Endpoint == used {
			check(t, m.Kill())
		}
	}
	eventually(t, "hostler talks to another member", func() bool {
		s := a.status().ControlPlane
		return s.Endpoint != used && s.LastError == ""
	})
	a.prints("cordon")
	eventually(t, "the node with one member less is cordoned and alive", func() bool { node := f.node(name); return node != nil && node.Spec.Unschedulable && f.alive(name) })
	eventuallyMentions(t, "hostler doctor", a.doctor, "2 of 3 members answer; no answer from "+used)
	a.stop()
}
