//go:build integration

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	fleetanswer "hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/page"
)

// keys returns all keys of the fleet below these folders.
func (f etcdFleet) keys(folders ...string) string {
	f.t.Helper()
	var keys []string
	for _, folder := range folders {
		keys = append(keys, strings.Fields(f.ctl("get", "--prefix", "--keys-only", "/hostler/"+folder))...)
	}
	return strings.Join(keys, " ")
}

// ticket stores an object of kind Ticket with owners, each KIND NAME UID.
func (f etcdFleet) ticket(name, more string, owners ...string) {
	f.t.Helper()
	refs := []metav1.OwnerReference{}
	for _, owner := range owners {
		field := strings.Fields(owner)
		ref := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: field[0], Name: field[1], UID: types.UID(field[2])}
		if field[0] == "Node" {
			ref.APIVersion = "v1"
		}
		block := true
		ref.BlockOwnerDeletion = &block
		refs = append(refs, ref)
	}
	text, err := json.Marshal(refs)
	check(f.t, err)
	f.ctl("put", "/hostler/objects/tickets/"+name, fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Ticket","metadata":{"name":%q,"uid":"uid-of-%s","ownerReferences":%s%s}}`, name, name, text, more))
}

// TestAServerCollectsGarbageInEtcd deletes a Node with etcdctl, and objects with hostler.
func TestAServerCollectsGarbageInEtcd(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{})
	// Their Leases end long after this test.
	const pace = "lease: {duration: 1h, renewInterval: 10s}\nstatus: {updateInterval: 1s}\n"
	agents := map[string]*agent{}
	for _, name := range []string{"n1", "n2"} {
		agents[name] = startAgent(t, f.settings(name, "")+pace)
	}
	for name := range agents {
		eventually(t, name+" is there, Ready and alive", f.well(name))
		eventually(t, name+" has an Event", func() bool { return f.keys("events/"+name+"/") != "" })
	}
	s := startServer(t, f.served(""))
	eventually(t, "the server leads", s.leads)

	t.Run("a Node takes along what it owns", func(t *testing.T) {
		eventually(t, "the Lease names the Node as its owner", func() bool {
			return strings.Contains(f.ctl("get", "--print-value-only", "/hostler/leases/n1"), string(f.node("n1").UID))
		})
		node := f.node("n1")
		pod := newPod("n1", "web", -1)
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: node.UID}}
		f.putPod(pod)
		ticket := page.Blocks(t, "../../docs/explanation/garbage-collection.md", "Objects of your own", "json")[0]
		f.ctl("put", "/hostler/objects/tickets/disk-7", strings.NewReplacer("rack1-node1", "n1", "UID-OF-THE-NODE", string(node.UID)).Replace(ticket))
		f.ticket("note", "", "Ticket disk-7 0d9e6b4e-4a0c-4d5e-9d7b-1f0f4c8f2f11")
		f.ticket("other", "", "Node n2 "+string(f.node("n2").UID))
		eventually(t, "hostler fleet get lists the tickets", func() bool {
			list := onOneLine(s.prints("get", "tickets"))
			return strings.Contains(list, "disk-7 nodes/n1") && strings.Contains(list, "note tickets/disk-7")
		})
		mentions(t, "hostler fleet get tickets/disk-7", s.prints("get", "tickets/disk-7"), "text: replace disk 7")
		mentions(t, "hostler fleet get pods", onOneLine(s.prints("get", "pods")), "n1/default/web nodes/n1")

		plan := onOneLine(s.prints("delete", "nodes/n1", "--dry-run"))
		mentions(t, "hostler fleet delete nodes/n1 --dry-run", plan, "deleted nodes/n1", "deleted leases/n1", "deleted tickets/disk-7", "deleted tickets/note", "deleted pods/n1/default/web", "deleted events/n1/", "run `hostler leave` there", "nothing was changed")
		if f.node("n1") == nil || f.keys("objects/tickets/disk-7") == "" {
			t.Fatal("a dry run has deleted something")
		}

		agents["n1"].kill()
		f.ctl("del", "/hostler/nodes/n1")
		eventually(t, "all that n1 owns is deleted", func() bool {
			return f.keys("leases/n1", "events/n1/", "objects/pods/n1/", "objects/tickets/disk-7", "objects/tickets/note") == ""
		})
		for _, key := range []string{"nodes/n2", "leases/n2", "events/n2/", "objects/tickets/other"} {
			if f.keys(key) == "" {
				t.Errorf("%s of another Node is deleted, too", key)
			}
		}
	})

	t.Run("each cascade", func(t *testing.T) {
		for cascade, left := range map[string]string{
			fleetanswer.Background: "/hostler/objects/tickets/keeper /hostler/objects/tickets/shared",
			fleetanswer.Foreground: "/hostler/objects/tickets/keeper /hostler/objects/tickets/shared",
			fleetanswer.Orphan:     "/hostler/objects/tickets/child /hostler/objects/tickets/grandchild /hostler/objects/tickets/keeper /hostler/objects/tickets/shared",
		} {
			f.ctl("del", "--prefix", "/hostler/objects/tickets/")
			f.ticket("root", "")
			f.ticket("keeper", "")
			f.ticket("child", "", "Ticket root uid-of-root")
			f.ticket("grandchild", "", "Ticket child uid-of-child")
			f.ticket("shared", "", "Ticket root uid-of-root", "Ticket keeper uid-of-keeper")
			eventually(t, "the server knows them", func() bool {
				return strings.Contains(s.prints("delete", "tickets/root", "--dry-run"), "tickets/shared") && strings.Contains(s.prints("delete", "tickets/child", "--dry-run"), "tickets/grandchild")
			})
			before := f.ctl("get", "--prefix", "/hostler/objects/")
			mentions(t, "a dry run of "+cascade, onOneLine(s.prints("delete", "tickets/root", "--cascade="+cascade, "--dry-run")), "kept tickets/shared owner tickets/keeper remains")
			if after := f.ctl("get", "--prefix", "/hostler/objects/"); after != before {
				t.Errorf("objects after a dry run of %s = %s, want %s", cascade, after, before)
			}
			var d fleetanswer.Deletion
			check(t, json.Unmarshal([]byte(s.prints("delete", "tickets/root", "--cascade="+cascade, "-o", "json")), &d))
			if !d.Requested || d.UID != "uid-of-root" {
				t.Errorf("deletion = %+v, want it requested", d)
			}
			eventually(t, cascade+" leaves "+left, func() bool { return f.keys("objects/tickets/") == left })
			for _, name := range []string{"shared", "child"} {
				if text := f.ctl("get", "--print-value-only", "/hostler/objects/tickets/"+name); strings.Contains(text, "uid-of-root") {
					eventually(t, name+" has no reference to root", func() bool {
						return !strings.Contains(f.ctl("get", "--print-value-only", "/hostler/objects/tickets/"+name), "uid-of-root")
					})
				}
			}
		}
	})

	t.Run("what holds an object up is shown", func(t *testing.T) {
		f.ticket("held", `,"finalizers":["example.com/f"]`)
		eventually(t, "the server knows it", func() bool { return strings.Contains(s.prints("get", "tickets"), "example.com/f") })
		s.prints("delete", "tickets/held")
		eventually(t, "hostler fleet gc plan shows it", func() bool {
			return strings.Contains(onOneLine(s.prints("gc", "plan")), "waits tickets/held - finalizers of other programs: example.com/f")
		})
		f.ctl("del", "/hostler/objects/tickets/held")
	})

	t.Run("who may not delete", func(t *testing.T) {
		f.ticket("safe", "")
		check(t, os.Chmod(s.folder, 0o755))
		check(t, os.Chmod(s.socket(), 0o666))
		as := func(args ...string) answer {
			t.Helper()
			cmd := exec.Command(binary, append(append([]string{"fleet"}, args...), "--socket", s.socket())...)
			runAs(cmd, 65534, 65534)
			return execute(t, cmd, nil)
		}
		if r := as("delete", "tickets/safe", "--dry-run"); r.code != 0 {
			t.Errorf("a dry run by another user = %d, %s, want 0", r.code, r.err)
		}
		r := as("delete", "tickets/safe")
		if r.code != 1 {
			t.Errorf("a deletion by another user = %d, want 1", r.code)
		}
		mentions(t, "stderr", r.err, "only root may do this", "hint: run the command with sudo")
		if f.keys("objects/tickets/safe") == "" {
			t.Error("another user has deleted an object")
		}
	})

	if log := s.logged(); strings.Contains(log, "restarting loop") {
		t.Errorf("commands have disturbed the loops of the server:\n%s", log)
	}

	t.Run("bad input", func(t *testing.T) {
		for object, want := range map[string]string{
			"tickets/none": "hint: `hostler fleet get tickets` lists them", "ticket/safe": "hint: use one of events, leases, nodes, pods, tickets",
			"nodes/../tickets/safe": "hint: use a kind such as nodes", "tickets/": "hint: use KIND/NAME", "tickets": "hint: use KIND/NAME",
		} {
			r := command(t, nil, "fleet", "delete", object, "--socket", s.socket())
			if r.code != 1 {
				t.Errorf("hostler fleet delete %s = %d, want 1", object, r.code)
			}
			mentions(t, "hostler fleet delete "+object, r.err, want)
		}
	})
}
