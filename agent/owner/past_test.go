package owner

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/internal/statefile"
)

// A kubelet that is upgraded or fails to start reads the state of its pods from dead sandboxes,
// containers and logs. Hostler must not collect them while the kubelet does not run.
func TestAKubeletKeepsItsJobsWhileItDoesNotRun(t *testing.T) {
	const nobody, running, absent = "hostler", "process kubelet, pid 7", "does not run now"
	type step struct {
		what    string
		pass    time.Duration
		restart bool   // of the agent
		boot    string // boot after the restart; the same if empty
		nodeOn  bool   // node.enabled: true at the restart
		found   bool   // a kubelet is running
		want    string
	}
	for name, steps := range map[string][]step{
		"a host without one": {
			{what: "at the start", want: nobody},
			{what: "later", pass: time.Hour, want: nobody},
			{what: "after a boot", restart: true, boot: "b2", want: nobody},
		},
		"one that is away": {
			{what: "while it runs", found: true, want: running},
			{what: "for half a minute", pass: 30 * time.Second, want: running},
			{what: "for two minutes", pass: 90 * time.Second, want: absent},
			{what: "for a day", pass: 24 * time.Hour, want: absent},
			{what: "across a restart of hostler", restart: true, want: absent},
			{what: "until it returns", pass: time.Minute, found: true, want: running},
		},
		"one that starts after hostler at a boot": {
			{what: "while it runs", found: true, want: running},
			{what: "before it runs", restart: true, boot: "b2", want: absent},
			{what: "when it does", pass: 30 * time.Second, found: true, want: running},
			{what: "when it is away in that boot", restart: true, want: absent},
		},
		"one that a boot passes without": {
			{what: "while it runs", found: true, want: running},
			{what: "in the boot without it", restart: true, boot: "b2", want: absent},
			{what: "late in it", pass: time.Hour, want: absent},
			{what: "after a restart of hostler in it", restart: true, want: absent},
			{what: "in the next boot", restart: true, boot: "b3", want: nobody},
			{what: "after a restart of hostler", restart: true, want: nobody},
			{what: "when it is installed again", found: true, want: running},
		},
		"a boot that is too short to count": {
			{what: "while it runs", found: true, want: running},
			{what: "in the short boot", restart: true, boot: "b2", want: absent},
			{what: "late in it", pass: bootCounts - time.Second, want: absent},
			{what: "in the next boot", restart: true, boot: "b3", want: absent},
		},
		"a soft-reboot is a boot": {
			{what: "while it runs", restart: true, boot: "b1@1", found: true, want: running},
			{what: "after the first", restart: true, boot: "b1@2", want: absent},
			{what: "late in it", pass: bootCounts, want: absent},
			{what: "if systemd does not report its start", restart: true, boot: "b1", want: absent},
			{what: "after the second", restart: true, boot: "b1@3", want: nobody},
		},
		"a person says that it is gone": {
			{what: "while it runs", found: true, want: running},
			{what: "in the same boot", restart: true, nodeOn: true, want: nobody},
			{what: "with the default again", restart: true, want: nobody},
		},
		"a person says that it is gone, after a boot": {
			{what: "while it runs", found: true, want: running},
			{what: "in the next boot", restart: true, boot: "b2", want: absent},
			{what: "with the key", restart: true, nodeOn: true, want: nobody},
		},
		"a Node that was hostler's beside it says nothing of its end": {
			{what: "while it runs", restart: true, nodeOn: true, found: true, want: running},
			{what: "while it is away", pass: 2 * time.Minute, want: "reboot without a kubelet"},
			{what: "after a boot, before it runs", restart: true, boot: "b2", nodeOn: true, want: "reboot without a kubelet"},
			{what: "without the key", restart: true, want: absent},
			{what: "with the key set again", restart: true, nodeOn: true, want: nobody},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := PastOptions{Notes: statefile.NewMemory().Notes("node"), Boot: "b1", Node: nodeName, Log: discard()}
				past := OpenPast(o)
				for _, s := range steps {
					time.Sleep(s.pass)
					if s.restart {
						if s.boot != "" {
							o.Boot = s.boot
						}
						o.NodeOn = s.nodeOn
						past = OpenPast(o)
					}
					got := past.Update(running, s.found)
					for _, job := range []Job{Node, Lease, ImageGC, ContainerGC} {
						owner, found := got[job]
						if found != (s.want != nobody) || found && (owner.Name != Kubelet || !strings.Contains(owner.Evidence, s.want) || owner.Absent != (s.want != running)) {
							t.Errorf("%s: Look()[%s] = %+v, want %s", s.what, job, owner, s.want)
						}
					}
					if _, found := got[Shutdown]; found {
						t.Errorf("%s: Look() = %v, want nothing of the shutdown", s.what, got)
					}
				}
			})
		})
	}
}

// unread are notes that could not be read.
type unread struct{ Notes }

func (unread) Unread() bool { return true }

func TestNotesThatCouldNotBeReadAreNotReplaced(t *testing.T) {
	notes := statefile.NewMemory().Notes("node")
	past := OpenPast(PastOptions{Notes: unread{notes}, Boot: "b1", Node: nodeName, Shared: true, Log: discard()})
	past.NodeShows(true)
	if jobs := past.Update("process kubelet, pid 7", true); jobs[Node].Name != Kubelet {
		t.Errorf("Update() = %v, want the jobs of the kubelet that runs", jobs)
	}
	if values, err := notes.Load(); err != nil || len(values) > 0 {
		t.Errorf("the notes are %q, %v, want none written", values, err)
	}
}

// A process with the name of a kubelet does not decide for later boots.
func TestANodeWithAKubeletsStatusStaysTheKubelets(t *testing.T) {
	notes := statefile.NewMemory().Notes("node")
	synctest.Test(t, func(t *testing.T) {
		for _, boot := range []string{"b1", "b2", "b3"} {
			past := OpenPast(PastOptions{Notes: notes, Boot: boot, Node: nodeName, Shared: true, Log: discard()})
			if boot == "b1" {
				past.Update("process kubelet, pid 7", true)
			}
			time.Sleep(bootCounts)
			past.Update("", false)
			if jobs := past.Update("", false); boot == "b3" && len(jobs) > 0 {
				t.Errorf("after a boot without a kubelet, whose status the Node never showed, its jobs are %v, want none", jobs)
			}
		}
	})
}

// Otherwise the cluster would schedule pods to a host without a running kubelet, even after many
// boots.
func TestANodeInAClusterStaysTheKubeletsAcrossBoots(t *testing.T) {
	notes := statefile.NewMemory().Notes("node")
	open := func(boot, node string, nodeOn bool) *Past {
		return OpenPast(PastOptions{Notes: notes, Boot: boot, Node: node, Shared: true, NodeOn: nodeOn, Log: discard()})
	}
	nodes := func(p *Past) int {
		jobs := p.Update("", false)
		if jobs[Node] != jobs[Lease] || jobs[Node].Name != "" && !strings.Contains(jobs[Node].Evidence, "node.enabled: true") {
			t.Errorf("Update() = %v, want node and lease of one owner, and how to change that", jobs)
		}
		return len(jobs)
	}
	if got := nodes(open("b1", nodeName, false)); got != 0 {
		t.Errorf("%d jobs are a kubelet's before there was one, want none", got)
	}
	first := open("b1", nodeName, false)
	first.Update("process kubelet, pid 7", true)
	first.NodeShows(true)
	synctest.Test(t, func(t *testing.T) {
		past := open("b2", nodeName, false)
		time.Sleep(bootCounts)
		if got := nodes(past); got != 4 {
			t.Errorf("%d jobs are a kubelet's in a boot without it, want all but the shutdown", got)
		}
	})
	if got := nodes(open("b3", nodeName, false)); got != 2 {
		t.Errorf("%d jobs are a kubelet's after a boot without it, want node and lease", got)
	}
	if past := open("b3", nodeName, false); nodes(past) == 2 {
		if past.NodeShows(false); nodes(past) != 0 {
			t.Errorf("a Node without a kubelet's status is a kubelet's, want it hostler's")
		}
		past.NodeShows(true)
	}
	if got := nodes(open("b3", "other", true)); got != 0 {
		t.Errorf("%d jobs are a kubelet's with another Node, want none", got)
	}
	if got := nodes(open("b3", nodeName, true)); got != 0 {
		t.Errorf("%d jobs are a kubelet's once a person has switched the Node on, want none", got)
	}
	if got := nodes(open("b3", nodeName, false)); got != 0 {
		t.Errorf("%d jobs are a kubelet's with the default again, want none", got)
	}
}
