package owner

import (
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"hostler.io/hostler/shutdown/journal"
)

// Keys of notes about kubelets of this host. Their format must not change: every version reads
// them.
const (
	keyNode = "kubelets-node" // name of the Node in a cluster whose status a kubelet writes
	keyRan  = "kubelet-ran"   // a ran
)

const (
	// restarting is how long a missing kubelet counts as running, because it may be restarting.
	restarting = time.Minute
	// bootCounts is how long a boot must last without a kubelet to count as a boot without one. If
	// a host reboots twice in a row, the kubelet may not have had time to start.
	bootCounts = 10 * time.Minute
)

// ran is the note that a kubelet ran on this host: in this boot, or in an earlier one if Without is
// set.
type ran struct {
	Boot    string `json:"boot"`
	Without bool   `json:"without,omitempty"` // no kubelet has run in Boot
	// NodeOn reports that node.enabled has been true since the kubelet ran. Only setting it later
	// means that the kubelet does not return.
	NodeOn bool `json:"nodeOn,omitempty"`
}

// after returns the note after a scan for a kubelet; nil if no kubelet is expected any more. scanned
// is how long the agent has scanned in this boot.
func (r *ran) after(found bool, boot string, nodeOn bool, scanned time.Duration) *ran {
	switch {
	case found:
		return &ran{Boot: boot, NodeOn: nodeOn}
	case r == nil || nodeOn && !r.NodeOn:
		return nil
	case journal.SameBoot(r.Boot, boot):
		return &ran{Boot: r.Boot, Without: r.Without, NodeOn: nodeOn}
	case r.Without: // for the whole earlier boot
		return nil
	case scanned >= bootCounts:
		return &ran{Boot: boot, Without: true, NodeOn: nodeOn}
	}
	return &ran{Boot: r.Boot, NodeOn: nodeOn}
}

// Notes persist values by key, even if other state is lost.
type Notes interface {
	Load() (map[string][]byte, error)
	Write(put map[string][]byte, remove []string) error
	// Unread reports whether earlier values could not be read.
	Unread() bool
}

// PastOptions are the options of OpenPast.
type PastOptions struct {
	Notes  Notes
	Boot   string // ID of the current boot
	Node   string // the name of the Node
	Shared bool   // a kubelet may own the Node on this control plane
	NodeOn bool   // node.enabled is true, so hostler writes the Node even beside a kubelet
	Log    *slog.Logger
}

// Past persists, across restarts and boots, which kubelet ran on this host. The kubelet keeps its
// jobs while it does not run: it may be upgrading, failing to start, or not started yet after a
// boot. Past is safe for concurrent use.
type Past struct {
	o     PastOptions
	since time.Time // when this agent began to scan

	mu       sync.Mutex
	node     bool      // a kubelet owns the Node in the cluster
	ran      *ran      // nil if no kubelet is expected
	seen     time.Time // when this agent last saw a kubelet; zero if it did not
	evidence string    // evidence of that kubelet
}

// OpenPast loads the notes of earlier runs of the agent.
func OpenPast(o PastOptions) *Past {
	p := &Past{o: o, since: time.Now()}
	var node string
	notes, err := o.Notes.Load()
	if value, noted := notes[keyNode]; err == nil && noted {
		err = json.Unmarshal(value, &node)
	}
	if value, noted := notes[keyRan]; err == nil && noted {
		err = json.Unmarshal(value, &p.ran)
	}
	if err != nil {
		o.Log.Warn("cannot read whether a kubelet ran on this host before", "error", err)
	}
	p.node = node == o.Node
	return p
}

// NodeShows records whether a kubelet wrote the status of the Node in the cluster. Such a Node
// stays the kubelet's after boots without it, until a user deletes the Node or sets node.enabled:
// true.
func (p *Past) NodeShows(kubelets bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteNode(p.o.Shared && kubelets && !p.o.NodeOn)
}

// Update records whether a kubelet was found. It returns the jobs that the kubelet owns: all except
// the shutdown.
func (p *Past) Update(evidence string, found bool) map[Job]Owner {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if found {
		p.seen, p.evidence = now, evidence
	}
	p.noteNode(p.o.Shared && p.node && !p.o.NodeOn)
	p.noteRan(p.ran.after(found, p.o.Boot, p.o.NodeOn, now.Sub(p.since)))
	jobs := map[Job]Owner{}
	for _, job := range []Job{Node, Lease, ImageGC, ContainerGC} {
		switch {
		case p.ran != nil && !p.seen.IsZero() && now.Sub(p.seen) < restarting:
			jobs[job] = Owner{Name: Kubelet, Evidence: p.evidence}
		case p.node && (job == Node || job == Lease):
			jobs[job] = Owner{Name: Kubelet, Evidence: "the Node has the status of a kubelet, and the kubelet does not run. To give it to hostler, set node.enabled: true, or delete the Node and reboot without a kubelet", Absent: true}
		case p.ran != nil && p.ran.NodeOn:
			jobs[job] = Owner{Name: Kubelet, Evidence: "a kubelet ran on this host, and does not run now. To give its jobs to hostler, reboot without a kubelet", Absent: true}
		case p.ran != nil:
			jobs[job] = Owner{Name: Kubelet, Evidence: "a kubelet ran on this host, and does not run now. To give its jobs to hostler, set node.enabled: true, or reboot without a kubelet", Absent: true}
		}
	}
	return jobs
}

// noteNode records whether a kubelet owns the Node in the cluster. The caller holds mu.
func (p *Past) noteNode(kubelets bool) {
	if kubelets != p.node && p.o.Shared {
		p.node = kubelets
		p.write(keyNode, p.o.Node, !kubelets)
	}
}

// noteRan records which kubelet ran. The caller holds mu.
func (p *Past) noteRan(r *ran) {
	if (r == nil) != (p.ran == nil) || r != nil && *r != *p.ran {
		p.ran = r
		p.write(keyRan, r, r == nil)
	}
}

// write persists a note, or removes it. Notes that could not be read stay as they are: a write would replace them.
func (p *Past) write(key string, value any, remove bool) {
	if p.o.Notes.Unread() {
		return
	}
	put, gone := map[string][]byte{}, []string{key}
	text, err := json.Marshal(value)
	if !remove {
		put[key], gone = text, nil
	}
	if err == nil {
		err = p.o.Notes.Write(put, gone)
	}
	if err != nil { // the next scan writes it again
		p.o.Log.Warn("cannot persist whether a kubelet ran on this host", "error", err)
	}
}
