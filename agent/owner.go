package agent

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
)

// job is one of the things that must have exactly one owner on a host.
type job string

// The jobs, as `hostler status` names them.
const (
	jobNode        job = "node"
	jobLease       job = "lease"
	jobShutdown    job = "shutdown"
	jobImageGC     job = "imageGC"
	jobContainerGC job = "containerGC"
)

var jobs = [...]job{jobNode, jobLease, jobShutdown, jobImageGC, jobContainerGC}

// owners knows who does which job on this host. A job that is switched to auto
// is hostler's unless somebody else is seen doing it. It is safe for concurrent
// use.
type owners struct {
	switches map[job]config.Switch
	look     func(ctx context.Context) map[job]api.Owner // who else is seen, by job

	mu      sync.Mutex
	current map[job]api.Owner
	others  map[job]sighting // who else was seen last
	changed chan struct{}    // closed and replaced when current changes
}

// sighting is when another owner was last seen, by the monotonic clock.
type sighting struct {
	owner api.Owner
	at    time.Time
}

// ownerGone is how long another owner must not have been seen before its jobs
// count as free: a kubelet is restarted and upgraded, and nobody wants a second
// collector for that minute. Its lock is another matter: where it is gone, the
// shutdown is not guarded.
const ownerGone = time.Minute

func newOwners(cfg config.Config, look func(context.Context) map[job]api.Owner) *owners {
	o := &owners{
		switches: map[job]config.Switch{
			jobNode:        cfg.Node.Enabled,
			jobLease:       cfg.Lease.Enabled,
			jobShutdown:    cfg.Shutdown.Enabled,
			jobImageGC:     cfg.ImageGC.Enabled,
			jobContainerGC: cfg.ContainerGC.Enabled,
		},
		look:    look,
		others:  map[job]sighting{},
		changed: make(chan struct{}),
	}
	return o
}

// refresh looks again, and tells whether anything changed.
func (o *owners) refresh(ctx context.Context) bool {
	seen := o.look(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for j, owner := range seen {
		o.others[j] = sighting{owner, now}
	}
	for j, last := range o.others {
		if _, there := seen[j]; !there && j != jobShutdown && now.Sub(last.at) < ownerGone {
			seen[j] = last.owner
		}
	}
	next := decideOwners(o.switches, seen)
	if maps.Equal(o.current, next) {
		return false
	}
	o.current = next
	close(o.changed)
	o.changed = make(chan struct{})
	return true
}

// seen tells whether somebody else was lately seen who would do the job, whoever
// is to do it.
func (o *owners) seen(j job) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	last, found := o.others[j]
	return found && time.Since(last.at) < 2*ownerGone
}

// mine tells whether the job is hostler's, who has it otherwise, and gives a
// channel that is closed when that may have changed.
func (o *owners) mine(j job) (bool, api.Owner, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	owner := o.current[j]
	return owner.Name == api.OwnerHostler, owner, o.changed
}

// all returns every job's owner.
func (o *owners) all() map[string]api.Owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	m := make(map[string]api.Owner, len(o.current))
	for j, owner := range o.current {
		m[string(j)] = owner
	}
	return m
}

// decideOwners gives each job its owner from what is configured and who is seen.
func decideOwners(switches map[job]config.Switch, seen map[job]api.Owner) map[job]api.Owner {
	result := make(map[job]api.Owner, len(jobs))
	for _, j := range jobs {
		other, found := seen[j]
		switch {
		case switches[j] == config.Off:
			result[j] = api.Owner{Name: api.OwnerNone, Evidence: "switched off in the configuration"}
			if found {
				result[j] = other
			}
		case switches[j] == config.On && found:
			result[j] = api.Owner{Name: api.OwnerHostler, Evidence: "switched on in the configuration, although there is a " + other.Name + ": " + other.Evidence}
		case switches[j] == config.On:
			result[j] = api.Owner{Name: api.OwnerHostler, Evidence: "switched on in the configuration"}
		case found:
			result[j] = other
		default:
			result[j] = api.Owner{Name: api.OwnerHostler, Evidence: "no other owner found"}
		}
	}
	return result
}

// kubelets are the process names under which a kubelet runs.
var kubelets = []string{"kubelet", "kubelite", "k3s-server", "k3s-agent"}

// findKubelet returns the process that is this host's kubelet, if there is one,
// by the names in proc. One in a PID namespace of its own belongs to a node in a
// container, such as kind's, and not to this host.
func findKubelet(proc string) (evidence string, found bool) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return "", false
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		comm, err := os.ReadFile(filepath.Join(proc, e.Name(), "comm"))
		if err != nil {
			continue // it ended meanwhile
		}
		name := string(bytes.TrimSpace(comm))
		if slices.Contains(kubelets, name) && !ended(proc, e.Name()) && samePIDNamespace(proc, e.Name()) {
			return fmt.Sprintf("process %s, pid %d", name, pid), true
		}
	}
	return "", false
}

// ended tells whether pid is a zombie, which does no job any more, however long
// nobody reaps it.
func ended(proc, pid string) bool {
	stat, err := os.ReadFile(filepath.Join(proc, pid, "stat"))
	if err != nil {
		return false
	}
	// The state follows the name in parentheses, which may hold some itself.
	state := bytes.TrimSpace(stat[bytes.LastIndexByte(stat, ')')+1:])
	return len(state) > 0 && (state[0] == 'Z' || state[0] == 'X')
}

// samePIDNamespace tells whether pid lives in this process's PID namespace;
// where that cannot be read it is taken to.
func samePIDNamespace(proc, pid string) bool {
	theirs, err := os.Readlink(filepath.Join(proc, pid, "ns/pid"))
	ours, ourErr := os.Readlink(filepath.Join(proc, "self/ns/pid"))
	return err != nil || ourErr != nil || theirs == ours
}
