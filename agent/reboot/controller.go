// Package reboot reboots the host when a reboot is requested and the host has its turn.
//
// It owns the reboot request across restarts of the agent and boots: start, reason, step, and what the host
// waits for. Decide is pure. Each step is written to the disk and to the Node before it is carried out: a step
// that cannot be stored is not started.
// Package maintenance stops the pods. If a kubelet runs them, a server evicts them instead. A Lock decides
// whose turn it is.
package reboot

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/shutdown/journal"
)

const (
	// interval is the time between decisions if nothing changes. Files are checked at this interval.
	interval = 10 * time.Second
	// callTime bounds a call to the control plane.
	callTime = 10 * time.Second
	// endBound is how long Run, when it ends, waits for the end of a drain.
	endBound = 5 * time.Second
	// mostReason bounds the reason that a person gives, in bytes.
	mostReason = 100
)

// Host is the controller's view of the host. Its methods are bounded and safe for concurrent use.
type Host interface {
	// Wanted returns the files and checks that request a reboot, and those whose result is not known.
	Wanted() (wanted, undecided []Finding)
	// Held returns why a reboot now would harm, although no file or check holds it up: hostler cannot stop the
	// pods, or cannot start them again.
	Held() []Finding
	// Drain stops all pods except critical ones, or all, until ctx ends. It calls note with the start of the
	// record before the first stop. If note returns an error, Drain stops nothing and returns that error. began is
	// the start of an interrupted drain to continue, or zero. If Drain returns no error, its record is on the
	// disk.
	Drain(ctx context.Context, cause string, began time.Time, all bool, note func(time.Time) error) (journal.Record, error)
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
	// NodeBlocked says why the host must not use the Node yet that it is to have; empty if it may, or is to have none.
	NodeBlocked() string
	// Left reports whether a person has deregistered the host.
	Left() bool
	// NotStarted returns the containers that should be running again after the reboot, and are not.
	NotStarted() []string
	// Unknown says why it is not known which containers these are; empty if it is.
	Unknown() string
	// GoingDown reports whether the host is shutting down.
	GoingDown() bool
	// ShutdownPending describes a shutdown that is in progress, or scheduled until then; empty if there is none. It
	// asks systemd. A zero time means any time.
	ShutdownPending(ctx context.Context, until time.Time) (string, error)
	// Reboot runs the configured command.
	Reboot(ctx context.Context) error
}

// Lock decides whose turn it is. Its methods bound their calls, and are called from one goroutine.
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
	// Unread reports whether Load could not read a Memory that may be intact.
	Unread() bool
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
	// Change describes what may have changed since a reboot began.
	Change Change
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

// Change describes a configuration that may not be the one with which a reboot began.
type Change struct {
	ID LockID // of Options.Lock
	// Open returns a lock of an earlier configuration, to give it back. If it is nil, there was none.
	Open func(LockID) (Lock, error)
	// Disabled reports that hostler must not reboot the host any more. The Controller then only ends what is
	// left of a reboot.
	Disabled bool
}

// Controller carries out reboots of this host. Its exported methods are safe for concurrent use.
type Controller struct {
	o    Options
	log  *slog.Logger
	wake loop.Signal

	mu         sync.Mutex // guards the fields below
	memory     Memory
	unread     bool      // the stored memory could not be read yet
	found      found     // findings of the last round
	unanswered time.Time // since when the request for a slot has no answer, by the monotonic clock; zero if it has one
	stray      string    // ID of a request on the Node that the host does not have; empty for none
	unstored   error     // why the memory is not on the disk; nil if it is
	command    command   // progress of `reboot.command`

	disk    *bounded.Serial // waits until the stored memory is on the disk
	loading *bounded.Serial // reads the stored memory
	round   round           // owned by Run's goroutine

	withdrawn withdrawal // the last one, which is not logged again; owned by Run's goroutine
}

// found has the findings of one round.
type found struct{ wanted, undecided, held []Finding }

// New returns a Controller that continues with the stored Memory.
func New(o Options) *Controller {
	c := &Controller{o: o, log: o.Log.With("component", "reboot"), wake: loop.NewSignal(), disk: bounded.NewSerial(o.Flush)}
	c.found.undecided = []Finding{{Source: all, Message: "files and checks have not run since the agent started", Pending: true}}
	c.loading = bounded.NewSerial(c.load)
	_ = c.load()
	c.round.node = node{client: o.Client, name: o.Node, machine: o.Machine, seen: make(chan *corev1.Node)}
	return c
}

// Held returns why a reboot in turn would wait now, apart from files and checks.
func (c *Controller) Held() []Finding { return c.o.Host.Held() }

// Reconfigured makes the Controller decide again, with the new configuration or state of the host.
func (c *Controller) Reconfigured() { c.wake.Send() }

// Report is the state of the reboot in `hostler status -o json`.
type Report struct {
	*Request `json:"request"` // null before the first request
	Wanting  []Finding        `json:"wanting"` // files and checks that request a reboot
	// Ignored are the files and checks whose request a person has cancelled in this boot.
	Ignored   []Finding `json:"ignored,omitempty"`
	Undecided []Finding `json:"undecided"` // files and checks without a known result
	Past      []Past    `json:"past"`
	// Held says why a reboot in turn waits, apart from files and checks. A request with Now overrides that.
	Held []Finding `json:"held,omitempty"`
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
	r := Report{Undecided: c.found.undecided, Held: c.found.held, Past: c.memory.Past, Longest: metav1.Duration{Duration: c.memory.longest()}}
	r.Wanting, r.Ignored = c.memory.unwaived(c.o.Boot, c.found.wanted)
	if c.unknown() {
		r.Problem = unreadMemory + ", so no reboot begins or continues; " + unreadFix
	}
	if c.memory.Request != nil {
		copied := *c.memory.Request
		r.Request = &copied
		unanswered := time.Duration(0)
		if !c.unanswered.IsZero() {
			unanswered = time.Since(c.unanswered)
		}
		r.Problem = problem(copied, c.o.Now(), unanswered)
		if c.unstored != nil {
			r.Problem = "cannot store its step: " + c.unstored.Error()
		}
	}
	return r
}
