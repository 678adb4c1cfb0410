//go:build integration

package e2e_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/fleet"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/page"
)

// machineID is the file of the machine's ID, which hostler reads at its start.
const machineID = "/etc/machine-id"

// reinstalled gives this machine another ID until the test ends.
func reinstalled(t *testing.T, id string) {
	t.Helper()
	before, err := os.ReadFile(machineID)
	check(t, err)
	t.Cleanup(func() { check(t, os.WriteFile(machineID, before, 0o444)) })
	check(t, os.WriteFile(machineID, []byte(id+"\n"), 0o444))
}

const often = "lease: {duration: 10s, renewInterval: 1s}\nstatus: {updateInterval: 1s}\n"

// TestAReinstalledHost replaces the Node of its previous machine, with the rights of a node. No
// other test that reads the machine ID may run at the same time.
func TestAReinstalledHost(t *testing.T) {
	c := newCluster(t, kube.Options{})
	settings := c.asNode("again", "") + often
	a := startAgent(t, settings)
	eventually(t, "the node is Ready", c.ready("again"))
	a.kill()
	c.kubectl("label", "node", "again", "theirs.example.com/rack=r1")
	c.kubectl("taint", "node", "again", "theirs.example.com/gpu=yes:NoSchedule")
	c.kubectl("cordon", "again")
	before := c.node("again")

	const id = "0123456789abcdef0123456789abcdef"
	reinstalled(t, id)
	a = startAgent(t, settings)
	// The status says so only as long as the previous machine's Lease of 10 s is watched.
	eventually(t, "it says which machine it watches", func() bool {
		return len(a.logLines("watching whether its lease is renewed", before.Annotations[controlplane.AnnotationMachineID], id)) > 0
	})
	eventually(t, "the node is this machine's", func() bool {
		return c.node("again").Annotations[controlplane.AnnotationMachineID] == id
	})
	s := a.await("what remains is reported", func(s api.Status) bool { return len(s.Drift) == 2 && s.ControlPlane.Paused == "" })
	mentions(t, "what remains", s.Drift[0].Message, "labels", "theirs.example.com/rack", "taints theirs.example.com/gpu=yes:NoSchedule")
	if s.Drift[0].Fix != "kubectl delete node again" || s.Drift[1].Fix != "hostler uncordon" {
		t.Errorf("drift = %+v, want the commands that fix it", s.Drift)
	}
	a.awaitLease(s) // the previous machine's Lease has ended meanwhile
	mentions(t, "status", a.screen(), "drift:", "theirs.example.com/rack", "`kubectl delete node again`")
	if n := c.node("again"); n.UID != before.UID || !n.Spec.Unschedulable || n.Labels["theirs.example.com/rack"] != "r1" {
		t.Errorf("the Node is %+v, want it taken over as far as a node may", n)
	}
	if got := c.refusals("again"); !slices.Equal(got, []string{"delete nodes again 403"}) {
		t.Errorf("the server has refused %q, want one request to delete the Node", got)
	}
	found(t, a.diagnose(), "cluster-node", doctor.Warn, "theirs.example.com/rack", "kubectl delete node again")
	eventually(t, "it is reported as an Event", func() bool {
		return strings.Contains(c.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}"), "NodeTakenOver")
	})

	a.prints("uncordon")
	c.kubectl("delete", "node", "again")
	a.await("nothing is left once somebody deleted it", func(s api.Status) bool { return len(s.Drift) == 0 && nodeOf(s).UID != before.UID })
	eventually(t, "the node is registered again", func() bool {
		n := c.node("again")
		return n != nil && n.UID != before.UID && n.Labels["theirs.example.com/rack"] == "" && !n.Spec.Unschedulable
	})
	a.stop()
}

// TestTwoThatAreOneHost runs two agents as the same machine and Node, like clones.
func TestTwoThatAreOneHost(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kube.Options{})
	settings := c.asNode("twin", "") + often
	first := startAgent(t, settings)
	eventually(t, "the node is Ready", c.ready("twin"))
	first.stop()
	first.start() // a restart is not a clone
	first.awaitLease(first.status())
	if s := first.status(); len(s.Drift) > 0 {
		t.Errorf("drift after a restart = %+v, want none", s.Drift)
	}
	second := startAgent(t, settings)
	for _, a := range []*agent{first, second} {
		s := a.await("it sees the other", func(s api.Status) bool { return len(s.Drift) > 0 })
		mentions(t, "what it says of the other", s.Drift[0].Message+s.Drift[0].Fix, "also writes this Node", "systemd-machine-id-setup")
	}
	eventually(t, "it is reported as an Event", func() bool {
		return strings.Contains(c.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}"), "MachineCloned")
	})
	second.stop()
	s := first.await("the other has gone", func(s api.Status) bool { return len(s.Drift) == 0 })
	if condition(s, corev1.NodeReady).Status != corev1.ConditionTrue {
		t.Errorf("status = %+v, want it Ready", nodeOf(s).Status.Conditions)
	}
	first.stop()
}

// TestTheRightToListTheFleet runs the commands of docs/reference/kubernetes.md and docs/explanation/heartbeats.md.
func TestTheRightToListTheFleet(t *testing.T) {
	t.Parallel()
	const rights, file = "../../docs/reference/kubernetes.md", "../../docs/explanation/heartbeats.md"
	c := newCluster(t, kube.Options{})
	a := startAgent(t, c.asNode("lister", "")+strings.Replace(often, "10s", "40s", 1)) // less than the 2m that a command requests
	eventually(t, "the node is Ready", c.ready("lister"))
	if r := a.hostler("nodes"); r.code != 1 || !strings.Contains(r.err, "list nodes") {
		t.Errorf("hostler nodes = %d %s, want it refused the list", r.code, r.err)
	}
	mentions(t, "hostler nodes of its own name", a.prints("nodes", "lister"), "lister is Ready")
	for line := range strings.Lines(page.Blocks(t, rights, "Optional rights", "sh")[1]) {
		mentions(t, line, c.kubectl(strings.Fields(line)[1:]...), "created")
	}
	eventually(t, "the right has come", func() bool {
		r := a.hostler("nodes")
		return r.code == 0 && strings.Contains(r.out, "lister")
	})

	text, err := os.ReadFile(file)
	check(t, err)
	spans := regexp.MustCompile("`kubectl ([^`]+)`").FindAllStringSubmatch(string(text), -1)
	if len(spans) != 3 {
		t.Fatalf("docs/explanation/heartbeats.md names the commands %q, want three", spans)
	}
	for _, span := range spans {
		command := strings.ReplaceAll(span[1], "NAME", "lister")
		asks := strings.HasSuffix(command, "=2m")
		if asks {
			c.kubectl("annotate", "node", "lister", "hostler.io/lease-duration-")
		}
		mentions(t, "kubectl "+command, c.kubectl(strings.Fields(command)...), "lister")
		if asks {
			eventually(t, "the lease has the requested duration", func() bool {
				lease := answers[fleet.MemberOf](a, "nodes", "lister").Lease
				return lease != nil && *lease.Spec.LeaseDurationSeconds == 120
			})
		}
	}
	a.stop()
}
