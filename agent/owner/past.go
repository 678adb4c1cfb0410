package owner

import (
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"hostler.io/hostler/shutdown/journal"
)

// Keys of the notes about kubelets of this host. Every version reads them.
const (
	keyNode = "kubelets-node" // the name of the Node in a cluster whose status is a kubelet's
	keyRan  = "kubelet-ran"   // a ran
)

const (
	// restarting is how long a kubelet that is not there counts as running: it is being
	// restarted.
	restarting = time.Minute
	// bootCounts is how long a boot must last without a kubelet to count as one without: a
	// host that reboots twice in a row may have had no time to start it.
	bootCounts = 10 * time.Minute
)

// ran is the note that a kubelet ran on this host, in the boot named or, if Without, in one
// before it.
type ran struct {
	Boot    string `json:"boot"`
	Without bool   `json:"without,omitempty"` // none has run in that boot
	// NodeOn says that node.enabled has been true since the kubelet ran: only a person who
	// sets it later says that the kubelet does not return.
	NodeOn bool `json:"nodeOn,omitempty"`
}

// after returns the note after a look for a kubelet; nil if none is to be expected any more.
// The agent has looked for that long, in that boot.
func (r *ran) after(found bool, boot string, nodeOn bool, looked time.Duration) *ran {
	switch {
	case found:
		return &ran{Boot: boot, NodeOn: nodeOn}
	case r == nil || nodeOn && !r.NodeOn:
		return nil
	case journal.SameBoot(r.Boot, boot):
		return &ran{Boot: r.Boot, Without: r.Without, NodeOn: nodeOn}
	case r.Without: // for all of that boot
		return nil
	case looked >= bootCounts:
		return &ran{Boot: boot, Without: true, NodeOn: nodeOn}
	}
	return &ran{Boot: r.Boot, NodeOn: nodeOn}
}

// Notes keep values by key, also where other state is lost.
type Notes interface {
	Load() (map[string][]byte, error)
	Write(put map[string][]byte, remove []string) error
}

// PastOptions say what OpenPast needs to know.
type PastOptions struct {
	Notes  Notes
	Boot   string // names the present boot
	Node   string // the name of the Node
	Shared bool   // a kubelet may have the Node on this control plane
	NodeOn bool   // the configuration switches the Node on, also beside a kubelet
	Log    *slog.Logger
}

// Past remembers, across restarts and boots, the kubelet that ran on this host. What was its
// own stays its own while it does not run: it is being upgraded, fails to start, or has not
// started yet after a boot. Past is safe for concurrent use.
type Past struct {
	o     PastOptions
	since time.Time // when this agent began to look

	mu       sync.Mutex
	node     bool      // the Node in the cluster is a kubelet's
	ran      *ran      // nil if no kubelet is to be expected
	seen     time.Time // when this agent last saw one; zero if it did not
	evidence string    // of that
}

// OpenPast reads what earlier runs of the agent have noted.
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

// NodeShows records whether the Node in the cluster has a kubelet's status. Such a Node stays the
// kubelet's after boots without it, until somebody deletes the Node or sets node.enabled: true.
func (p *Past) NodeShows(kubelets bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteNode(p.o.Shared && kubelets && !p.o.NodeOn)
}

// Update takes in whether a kubelet was found, and returns the jobs that are its own: all but
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

// noteNode notes whether the Node in the cluster is a kubelet's. The caller holds mu.
func (p *Past) noteNode(kubelets bool) {
	if kubelets != p.node && p.o.Shared {
		p.node = kubelets
		p.write(keyNode, p.o.Node, !kubelets)
	}
}

// noteRan notes which kubelet ran. The caller holds mu.
func (p *Past) noteRan(r *ran) {
	if (r == nil) != (p.ran == nil) || r != nil && *r != *p.ran {
		p.ran = r
		p.write(keyRan, r, r == nil)
	}
}

// write writes a note, or removes it.
func (p *Past) write(key string, value any, remove bool) {
	put, gone := map[string][]byte{}, []string{key}
	text, err := json.Marshal(value)
	if !remove {
		put[key], gone = text, nil
	}
	if err == nil {
		err = p.o.Notes.Write(put, gone)
	}
	if err != nil { // the next look notes what is seen then
		p.o.Log.Warn("cannot persist whether a kubelet ran on this host", "error", err)
	}
}
