// Package owner decides who does which job on this host. Each job has exactly one owner: hostler or
// another program, such as a kubelet. It owns the jobs, how a kubelet is detected, and pausing
// loops while another owner has their job. It does not do any job.
package owner

import (
	"context"
	"log/slog"
	"maps"
	"sync"
)

// Job is a task that must have exactly one owner on a host.
type Job string

// The jobs, with the names in `hostler status`.
const (
	Node        Job = "node"
	Lease       Job = "lease"
	Shutdown    Job = "shutdown"
	ImageGC     Job = "imageGC"
	ContainerGC Job = "containerGC"
)

// Jobs returns all jobs.
func Jobs() []Job { return []Job{Node, Lease, Shutdown, ImageGC, ContainerGC} }

// Owner says who does a job on this host.
type Owner struct {
	Name     string `json:"name"` // Hostler, Kubelet or None
	Evidence string `json:"evidence"`
	Absent   bool   `json:"-"` // the owner does not run now, but keeps the job
}

// Names of owners.
const (
	Hostler = "hostler"
	Kubelet = "kubelet"
	None    = "none"
)

// Switch says whether hostler does a job.
type Switch string

// The values of a Switch.
const (
	Auto Switch = "auto" // unless another program on this host does it
	On   Switch = "true"
	Off  Switch = "false"
)

// Scan returns the other owners on this host, by job. known has the owners of the previous scan.
type Scan func(ctx context.Context, known map[Job]Owner) map[Job]Owner

// Owners has the owner of each job on this host. A job with Auto is hostler's unless another owner
// was found. It is safe for concurrent use.
type Owners struct {
	switches map[Job]Switch
	scan     Scan
	log      *slog.Logger

	mu      sync.Mutex
	current map[Job]Owner
	others  map[Job]Owner // result of the last scan
	changed chan struct{} // closed and replaced when current changes
}

// New returns Owners that know no owner before the first Refresh. Until then, no job is hostler's.
// A job without a switch counts as Auto.
func New(switches map[Job]Switch, scan Scan, log *slog.Logger) *Owners {
	return &Owners{switches: switches, scan: scan, log: log, changed: make(chan struct{})}
}

// Refresh scans again, and reports whether an owner changed.
func (o *Owners) Refresh(ctx context.Context) bool {
	o.mu.Lock()
	known := o.current // the map is replaced, never modified
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

// Other returns the other owner of a job in the last scan, even if hostler does the job.
func (o *Owners) Other(j Job) (Owner, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	other, found := o.others[j]
	return other, found
}

// Mine reports whether a job is hostler's, and otherwise its owner. The channel is closed when that
// may have changed.
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

// Beside reports whether a kubelet owns the Node of this host.
func (o *Owners) Beside() bool {
	_, other, _ := o.Mine(Node)
	return other.Name == Kubelet
}

// All returns the owner of every job.
func (o *Owners) All() map[string]Owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	m := make(map[string]Owner, len(o.current))
	for j, owner := range o.current {
		m[string(j)] = owner
	}
	return m
}

// decide returns the owner of each job, from the switches and the other owners that were found.
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
		case found && other.Name == None: // nobody may do the job, whatever its switch is
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

// Loop is paused and resumed.
type Loop interface {
	Pause()
	Wake()
}

// While runs a job while hostler owns it. It pauses the loop while another owner has the job. It
// returns when ctx ends, or when run returns by itself.
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

// untilLost calls run until another owner gets the job. Then it returns nil.
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
