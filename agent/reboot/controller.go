// Package reboot reboots the host when a reboot is requested and the host has its turn.
//
// It owns the reboot request across restarts of the agent and boots: start, reason, step, and what the host
// waits for. Decide is pure. Each step is written to the disk and to the Node before it is carried out.
// Package maintenance stops the pods. If a kubelet runs them, a server evicts them instead. A Lock decides
// whose turn it is.
package reboot

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
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
	// interval is the time between decisions if nothing changes. Files are checked at this interval.
	interval = 10 * time.Second
	// callTime bounds a call to the control plane or to a lock.
	callTime = 10 * time.Second
	// diskTime bounds a write to the disk.
	diskTime = 2 * time.Second
	// endBound is how long Run, when it ends, waits for the end of a drain.
	endBound = 5 * time.Second
	// mostReason bounds the reason that a person gives, in bytes.
	mostReason = 100
)

// Host is the controller's view of the host. Its methods are bounded and safe for concurrent use.
type Host interface {
	// Wanted returns the files and checks that request a reboot, and those whose result is not known.
	Wanted() (wanted, undecided []Finding)
	// Drain stops all pods except critical ones, until ctx ends. It calls note with the start of the record
	// before the first stop. began is the start of an interrupted drain to continue, or zero.
	Drain(ctx context.Context, cause string, began time.Time, note func(time.Time)) (journal.Record, error)
	// Undo starts the containers again that the drain with this start has stopped. It is idempotent. After an
	// error, it may not have done so.
	Undo(ctx context.Context, began time.Time) error
	// Cordon cordons the Node unless it is cordoned. Uncordon uncordons it if Cordon has cordoned it, and
	// no person has cordoned it since.
	Cordon(ctx context.Context) error
	Uncordon(ctx context.Context) error
	// EmptiedByServer reports whether a kubelet runs the pods, so that a server must evict them.
	EmptiedByServer() bool
	// HasNode reports whether the host has a Node on the control plane, or is configured to have one.
	HasNode() bool
	// NotStarted returns the containers that should be running again after the reboot, and are not.
	NotStarted() []string
	// GoingDown reports whether the host is shutting down.
	GoingDown() bool
	// Reboot runs the configured command.
	Reboot(ctx context.Context) error
}

// Lock decides whose turn it is. Its methods are called from one goroutine.
type Lock interface {
	// Turn requests the lock, and returns whether the host has it. node is the last known state of the
	// Node; nil if it is not known.
	Turn(ctx context.Context, r *Request, node *corev1.Node) Turn
	// OnNode reports whether the request must be written on the Node.
	OnNode() bool
	// Release gives the lock back, or withdraws the request for it.
	Release(ctx context.Context, r *Request) error
}

// Store persists the Memory. It is a *statefile.File.
type Store interface {
	Load(into any)
	SaveNow(snapshot func() any)
}

// Options are the dependencies of a Controller.
type Options struct {
	Node   string // name of the Node
	Group  string // reboot group that the Node must be in before the host requests a slot; empty for any
	Boot   string // the boot ID of the kernel
	Policy func() Policy
	Host   Host
	Lock   Lock
	Client controlplane.Client
	// Machine identifies this machine, since another one may own the Node of that name.
	Machine controlplane.Identity
	Store   Store
	Flush   func() error // waits until the stored memory is on the disk
	Now     func() time.Time
	// Announce publishes an Event.
	Announce func(kind, reason, message string)
	Log      *slog.Logger
}

// Controller carries out reboots of this host. Its exported methods are safe for concurrent use.
type Controller struct {
	o    Options
	log  *slog.Logger
	wake loop.Signal

	mu         sync.Mutex // guards the fields below
	memory     Memory
	found      found     // findings of the last round
	unanswered time.Time // since when the request for a slot has no answer, by the monotonic clock; zero if it has one

	round round // owned by Run's goroutine
}

// found has the findings of one round.
type found struct{ wanted, undecided []Finding }

// New returns a Controller that continues with the stored Memory.
func New(o Options) *Controller {
	c := &Controller{o: o, log: o.Log.With("component", "reboot"), wake: loop.NewSignal()}
	c.found.undecided = []Finding{{Source: "reboot.sentinels, reboot.checks", Message: "files and checks have not run since the agent started", Pending: true}}
	o.Store.Load(&c.memory)
	c.round.node = node{client: o.Client, name: o.Node, machine: o.Machine, seen: make(chan *corev1.Node)}
	return c
}

// Ask is a person's request for a reboot.
type Ask struct {
	Reason string `json:"reason"` // with Now, empty for the reason of the request that waits
	Now    bool   `json:"now"`    // reboot without a slot and outside of windows
}

// Request requests a reboot for a person. If a reboot already waits, the new reason replaces the old one.
func (c *Controller) Request(who string, a Ask) (Report, error) {
	defer c.onDisk(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.o.Now()
	reason := sanitize.Text(strings.TrimSpace(a.Reason), mostReason)
	waits := c.memory.Request.active() && !c.memory.Request.running()
	if reason == "" && a.Now && waits {
		reason = c.memory.Request.Reason
	}
	switch r := c.memory.Request; {
	case reason == "" && (waits || !r.active()):
		return c.report(), &hint.Error{Message: "the reason of the reboot is missing", Hint: "say why the host is to reboot: --reason TEXT", Status: http.StatusBadRequest}
	case !r.active():
		c.memory.Request = c.request(reason, now)
		if r != nil { // not undone yet
			c.memory.Request.Attempt = Attempt{Drain: r.Attempt.Drain, Locked: r.Attempt.Locked}
		}
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

// request returns a new request. The caller holds mu.
func (c *Controller) request(reason string, now time.Time) *Request {
	return &Request{ID: rand.Text(), Step: controlplane.RebootWanted, Since: now, Wanted: now, Reason: reason, Boot: c.o.Boot}
}

// requested logs a new request, publishes an Event, and stores the request. The caller holds mu.
func (c *Controller) requested(who string) {
	r := c.memory.Request
	c.log.Info("reboot requested", "by", who, "reason", r.Reason, "now", r.Now)
	c.o.Announce(corev1.EventTypeNormal, "RebootRequested", r.Reason)
	c.save()
}

// Cancel cancels the reboot for a person. The files and checks that request it now are ignored until the next
// boot.
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

// Reconfigured makes the Controller decide again, with the new configuration.
func (c *Controller) Reconfigured() { c.wake.Send() }

// Report is the state of the reboot in `hostler status -o json`.
type Report struct {
	*Request `json:"request"` // null before the first request
	Wanting  []Finding        `json:"wanting"` // files and checks that request a reboot
	// Ignored are the files and checks whose request a person has cancelled in this boot.
	Ignored   []Finding `json:"ignored,omitempty"`
	Undecided []Finding `json:"undecided"` // files and checks without a known result
	Past      []Past    `json:"past"`
	// Problem says why a person should check the reboot; absent if there is no reason.
	Problem string `json:"problem,omitempty"`
	// Longest is the longest time of a past reboot, from the slot to the end; zero if none is known.
	Longest metav1.Duration `json:"longest"`
}

// Broken returns the files and checks that cannot request a reboot, because they cannot run or fail.
func (r Report) Broken() []Finding {
	return without(r.Undecided, func(f Finding) bool { return f.Pending })
}

// Report returns the current state, as a copy.
func (c *Controller) Report() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.report()
}

// report is Report for a caller that holds mu.
func (c *Controller) report() Report {
	r := Report{Undecided: c.found.undecided, Past: c.memory.Past, Longest: metav1.Duration{Duration: c.memory.longest()}}
	r.Wanting, r.Ignored = c.memory.unwaived(c.o.Boot, c.found.wanted)
	if c.memory.Request != nil {
		copied := *c.memory.Request
		r.Request = &copied
		unanswered := time.Duration(0)
		if !c.unanswered.IsZero() {
			unanswered = time.Since(c.unanswered)
		}
		r.Problem = problem(copied, c.o.Now(), unanswered)
	}
	return r
}

// save stores the memory. The caller holds mu.
func (c *Controller) save() {
	snapshot := c.memory
	c.o.Store.SaveNow(func() any { return snapshot })
}

// edit changes the request, and stores it with the rest of the memory unless only its message has changed. It calls
// change with mu held.
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

// onDisk waits until the stored memory is on the disk.
func (c *Controller) onDisk(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, diskTime)
	defer cancel()
	if err := bounded.Call(ctx, c.o.Flush); err != nil {
		c.log.Warn("cannot write the step of the reboot to the disk", "error", err)
	}
}
