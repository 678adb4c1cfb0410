// Package owner knows who does which job on this host: each has exactly one owner,
// hostler or another such as a kubelet. It owns the jobs, how a kubelet is found,
// and the waiting while somebody else has one. It refuses to do any of them.
package owner

import (
	"context"
	"log/slog"
	"maps"
	"sync"
)

// Job is one of the things that must have exactly one owner on a host.
type Job string

// The jobs, as `hostler status` names them.
const (
	Node        Job = "node"
	Lease       Job = "lease"
	Shutdown    Job = "shutdown"
	ImageGC     Job = "imageGC"
	ContainerGC Job = "containerGC"
)

// Jobs are all of them.
func Jobs() []Job { return []Job{Node, Lease, Shutdown, ImageGC, ContainerGC} }

// Owner is who does a job on this host.
type Owner struct {
	Name     string `json:"name"` // Hostler, Kubelet or None
	Evidence string `json:"evidence"`
	Absent   bool   `json:"-"` // it does not run now, and keeps the job
}

// Names of owners.
const (
	Hostler = "hostler"
	Kubelet = "kubelet"
	None    = "none"
)

// Switch says whether hostler is to do a job.
type Switch string

// The values of a Switch.
const (
	Auto Switch = "auto" // unless somebody else on this host does it
	On   Switch = "true"
	Off  Switch = "false"
)

// Scan tells who else is seen on this host, by job. It gets who had each job by the look before.
type Scan func(ctx context.Context, known map[Job]Owner) map[Job]Owner

// Owners knows who does which job on this host. A job that is switched to Auto
// is hostler's unless somebody else is seen doing it. It is safe for concurrent
// use.
type Owners struct {
	switches map[Job]Switch
	scan     Scan
	log      *slog.Logger

	mu      sync.Mutex
	current map[Job]Owner
	others  map[Job]Owner // the last look's
	changed chan struct{} // closed and replaced when current changes
}

// New returns owners of whom nobody is known before the first Refresh: no job is
// hostler's until then. A job without a switch counts as Auto.
func New(switches map[Job]Switch, scan Scan, log *slog.Logger) *Owners {
	return &Owners{switches: switches, scan: scan, log: log, changed: make(chan struct{})}
}

// Refresh looks again, and reports whether anything changed.
func (o *Owners) Refresh(ctx context.Context) bool {
	o.mu.Lock()
	known := o.current // is replaced, and never changed
	o.mu.Unlock()
	seen := o.scan(ctx, known)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.others = seen
	next := decide(o.switches, seen)
	if maps.Equal(o.current, next) {
		return false
	}
	o.current = next
	close(o.changed)
	o.changed = make(chan struct{})
	return true
}

// Other returns who else has the job by the last look, whoever is to do it here.
func (o *Owners) Other(j Job) (Owner, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	other, found := o.others[j]
	return other, found
}

// Mine reports whether the job is hostler's, who has it otherwise, and gives a
// channel that is closed when that may have changed.
func (o *Owners) Mine(j Job) (bool, Owner, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	owner := o.current[j]
	return owner.Name == Hostler, owner, o.changed
}

// Has reports whether a job is hostler's.
func (o *Owners) Has(j Job) bool {
	mine, _, _ := o.Mine(j)
	return mine
}

// Beside reports whether the Node is a kubelet's on this host.
func (o *Owners) Beside() bool {
	_, other, _ := o.Mine(Node)
	return other.Name == Kubelet
}

// All returns every job's owner.
func (o *Owners) All() map[string]Owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	m := make(map[string]Owner, len(o.current))
	for j, owner := range o.current {
		m[string(j)] = owner
	}
	return m
}

// decide gives each job its owner from what is configured and who is seen.
func decide(switches map[Job]Switch, seen map[Job]Owner) map[Job]Owner {
	result := make(map[Job]Owner, len(Jobs()))
	for _, j := range Jobs() {
		other, found := seen[j]
		switch {
		case switches[j] == Off:
			result[j] = Owner{Name: None, Evidence: "switched off in the configuration"}
			if found {
				result[j] = other
			}
		case found && other.Name == None: // which no switch changes
			result[j] = other
		case switches[j] == On && found:
			result[j] = Owner{Name: Hostler, Evidence: "switched on in the configuration, although there is a " + other.Name + ": " + other.Evidence}
		case switches[j] == On:
			result[j] = Owner{Name: Hostler, Evidence: "switched on in the configuration"}
		case found:
			result[j] = other
		default:
			result[j] = Owner{Name: Hostler, Evidence: "no other owner found"}
		}
	}
	return result
}

// Loop is told whether what runs in it rests.
type Loop interface {
	Pause()
	Wake()
}

// While runs what does a job as long as that is hostler's, and lets its loop rest
// while somebody else has it. It returns when ctx ends, or the run does by itself.
func (o *Owners) While(ctx context.Context, j Job, l Loop, run func(context.Context) error) error {
	for {
		mine, owner, changed := o.Mine(j)
		if mine {
			l.Wake()
			if err := o.untilLost(ctx, j, run); err != nil {
				return err
			}
			continue
		}
		o.log.Info("yielding job to its owner", "job", j, "owner", owner.Name, "evidence", owner.Evidence)
		l.Pause()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
		if mine, owner, _ := o.Mine(j); mine {
			o.log.Info("hostler owns job again", "job", j, "evidence", owner.Evidence)
		}
	}
}

// untilLost runs until the job is somebody else's, and then returns nil.
func (o *Owners) untilLost(ctx context.Context, j Job, run func(context.Context) error) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		for {
			mine, _, changed := o.Mine(j)
			if !mine {
				stop()
				return
			}
			select {
			case <-changed:
			case <-running.Done():
				return
			}
		}
	}()
	err := run(running)
	stop()
	<-lost
	if mine, _, _ := o.Mine(j); !mine && ctx.Err() == nil {
		return nil
	}
	return err
}
