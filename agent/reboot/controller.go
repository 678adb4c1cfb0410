// Package reboot reboots the host when that is wanted and it is the host's turn.
//
// It owns the reboot that is wanted: since when and why, how far it is and what it waits for, across
// restarts of the agent and boots. Decide is pure. Each step is on disk and on the Node before it is taken.
// Pods are stopped by package maintenance, or by a server where a kubelet runs them; a Lock says whose turn
// it is.
package reboot

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/hint"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/shutdown/journal"
)

const (
	// interval is from one decision to the next if nothing changes. Files are looked at that often.
	interval = 10 * time.Second
	// callTime bounds a call to the control plane or to a lock.
	callTime = 10 * time.Second
	// diskTime bounds a write to the disk.
	diskTime = 2 * time.Second
	// endBound is how long the end of Run waits for the end of a drain.
	endBound = 5 * time.Second
	// mostReason bounds what a person gives as a reason, in bytes.
	mostReason = 100
)

// Host is what the controller needs of the host. Its methods are bounded and safe for concurrent use.
type Host interface {
	// Wanted returns the files and checks that request a reboot, and the checks whose result is not known.
	Wanted() (wanted, undecided []Finding)
	// Drain stops all pods but critical ones, until ctx ends. It calls began before the first stop with the
	// start of the record. began is that of a drain to continue, or zero.
	Drain(ctx context.Context, cause string, began time.Time, note func(time.Time)) (journal.Record, error)
	// Undo starts again what that drain has stopped.
	Undo(ctx context.Context, began time.Time)
	// Cordon cordons the Node unless it is cordoned, and Uncordon uncordons it if Cordon has cordoned it
	// and no person has since.
	Cordon(ctx context.Context) error
	Uncordon(ctx context.Context) error
	// EmptiedByServer reports that the pods are a kubelet's, and a server moves them away.
	EmptiedByServer() bool
	// HasNode reports that the host has a Node on the control plane, or is to have one.
	HasNode() bool
	// NotStarted returns the containers that were to start again after the reboot, and did not yet.
	NotStarted() []string
	// GoingDown reports that the host is shutting down.
	GoingDown() bool
	// Reboot runs the configured command.
	Reboot(ctx context.Context) error
}

// Lock says whose turn it is. One goroutine calls its methods.
type Lock interface {
	// Turn asks for the lock, and returns whether the host has it. node is the Node as it was seen last;
	// nil if it was not seen.
	Turn(ctx context.Context, r *Request, node *corev1.Node) Turn
	// OnNode reports whether the request is to stand on the Node.
	OnNode() bool
	// Release gives the lock back, and ends the request for it.
	Release(ctx context.Context, r *Request) error
}

// Store keeps the Memory: a *statefile.File.
type Store interface {
	Load(into any)
	SaveNow(snapshot func() any)
}

// Options is what a Controller needs.
type Options struct {
	Node   string // its name
	Boot   string // the boot ID of the kernel
	Policy func() Policy
	Host   Host
	Lock   Lock
	Client controlplane.Client
	// Machine is this one: another machine may have a Node of that name.
	Machine controlplane.Identity
	Store   Store
	Flush   func() error // writes to the disk what was stored
	Now     func() time.Time
	// Announce makes an Event.
	Announce func(kind, reason, message string)
	Log      *slog.Logger
}

// Controller reboots the host when that is wanted. Its exported methods are safe for concurrent use.
type Controller struct {
	o    Options
	log  *slog.Logger
	wake loop.Signal

	mu     sync.Mutex // guards what follows
	memory Memory
	found  found // in the last round

	round round // of Run's goroutine
}

// found is what the last round has seen, for the report.
type found struct{ wanted, undecided []Finding }

// New returns a Controller with the Memory that an earlier process stored.
func New(o Options) *Controller {
	c := &Controller{o: o, log: o.Log.With("component", "reboot"), wake: loop.NewSignal()}
	o.Store.Load(&c.memory)
	c.round.node = node{client: o.Client, name: o.Node, machine: o.Machine, seen: make(chan *corev1.Node)}
	return c
}

// Ask is what a person requests.
type Ask struct {
	Reason string `json:"reason"`
	Now    bool   `json:"now"` // without a slot, and outside of windows
}

// Request requests a reboot for a person. If one is wanted already, it gets that reason.
func (c *Controller) Request(who string, a Ask) (Report, error) {
	defer c.onDisk(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.o.Now()
	reason := sanitize.Text(a.Reason, mostReason)
	switch r := c.memory.Request; {
	case !r.active():
		c.memory.Request = c.request(reason, now)
	case r.running():
		return c.report(), &hint.Error{Message: fmt.Sprintf("the host is already at step %s of a reboot", r.Step), Hint: "`hostler status` shows how far it is"}
	default:
		next := *r
		next.Reason, next.Cancelled, next.Attempt.RetryAt = reason, "", time.Time{}
		c.memory.Request = &next
	}
	c.memory.Request.By, c.memory.Request.Now = who, a.Now
	c.memory.Waived, c.memory.WaivedBoot = nil, ""
	c.requested(who)
	c.wake.Send()
	return c.report(), nil
}

// request is a new one. The caller holds mu.
func (c *Controller) request(reason string, now time.Time) *Request {
	return &Request{ID: rand.Text(), Step: controlplane.RebootWanted, Since: now, Wanted: now, Reason: reason, Boot: c.o.Boot}
}

// requested logs a new request, makes an Event of it, and stores it. The caller holds mu.
func (c *Controller) requested(who string) {
	r := c.memory.Request
	c.log.Info("reboot requested", "by", who, "reason", r.Reason, "now", r.Now)
	c.o.Announce(corev1.EventTypeNormal, "RebootRequested", r.Reason)
	c.save()
}

// Cancel ends the reboot for a person. Files and checks that want it now want none in this boot.
func (c *Controller) Cancel(who string) (Report, error) {
	defer c.onDisk(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.memory.Request
	switch {
	case !r.active():
		return c.report(), &hint.Error{Message: "no reboot is wanted", Hint: "`hostler reboot --dry-run` shows what would request one"}
	case r.Step == controlplane.RebootRebooting:
		return c.report(), &hint.Error{Message: "the reboot was already started and cannot be cancelled", Hint: "`hostler status` shows the shutdown"}
	}
	next := *r
	next.Cancelled = who
	c.memory.Request = &next
	c.memory.waive(c.o.Boot, c.found.wanted)
	c.log.Info("reboot cancelled", "by", who, "step", r.Step)
	c.save()
	c.wake.Send()
	return c.report(), nil
}

// Reconfigured has the Controller decide by the new configuration.
func (c *Controller) Reconfigured() { c.wake.Send() }

// Report is what is known of the reboot, as `hostler status -o json` has it.
type Report struct {
	*Request  `json:"request"` // null if none ever was
	Wanting   []Finding        `json:"wanting"`   // the files and checks that want a reboot
	Undecided []Finding        `json:"undecided"` // the checks that do not answer
	Past      []Past           `json:"past"`
	// Longest is how long the longest of them took from the slot to the end; zero if none is known.
	Longest metav1.Duration `json:"longest"`
}

// Report returns what is known now. It does not change.
func (c *Controller) Report() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.report()
}

// report is Report for a caller that holds mu.
func (c *Controller) report() Report {
	r := Report{Wanting: c.found.wanted, Undecided: c.found.undecided, Past: c.memory.Past, Longest: metav1.Duration{Duration: c.memory.longest()}}
	if c.memory.Request != nil {
		copied := *c.memory.Request
		r.Request = &copied
	}
	return r
}

// save stores the memory. The caller holds mu.
func (c *Controller) save() {
	snapshot := c.memory
	c.o.Store.SaveNow(func() any { return snapshot })
}

// edit changes the request, and stores it unless only its message has changed.
func (c *Controller) edit(change func(*Request)) Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := *c.memory.Request
	next := before
	change(&next)
	c.memory.Request = &next
	before.Message = next.Message
	if next != before {
		c.save()
	}
	return next
}

// onDisk waits until the disk has what was stored.
func (c *Controller) onDisk(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, diskTime)
	defer cancel()
	if err := bounded.Call(ctx, c.o.Flush); err != nil {
		c.log.Warn("cannot write the step of the reboot to the disk", "error", err)
	}
}
