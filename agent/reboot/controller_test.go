package reboot_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/logtest"
	"hostler.io/hostler/shutdown/journal"
)

// identity is of the machine of the tests.
var identity = controlplane.Identity{MachineID: "m"}

const sentinel = "/run/reboot-required"

// machine is a host with a control plane, in a synctest bubble. It outlives restarts of the agent and boots.
type machine struct {
	t      *testing.T
	plane  *controlplanetest.Fake
	client controlplane.Client // of the agent; nil for plane

	mu         sync.Mutex    // guards the fields below
	stored     []byte        // the memory on disk
	unsaved    func() any    // the memory that a fault of the disk keeps from it; nil if there is none
	unread     bool          // the memory on disk cannot be read
	answers    chan struct{} // closed when the disk answers again to reads; nil if it does
	disk       func() error  // fault of the disk; nil if it works
	uncordon   error         // error of Uncordon
	left       bool          // a person has deregistered the host
	unnamed    string        // why the host must not use its Node yet
	held       []reboot.Finding
	pending    string // a shutdown that systemd has scheduled
	pendingAt  time.Time
	pendingErr error
	change     reboot.Change
	boot       int
	group      string
	clock      time.Duration // offset of the wall clock until the next boot
	wanted     []reboot.Finding
	undecided  []reboot.Finding
	policy     reboot.Policy
	drains     func() (time.Duration, error) // duration and error of the next drain
	critical   func() (time.Duration, error) // the same of critical pods; nil for no time
	early      bool                          // the checks after the boot began before the drain was undone
	hangs      bool                          // a drain ends only after its duration
	command    func() error                  // next reboot command; nil reboots the host after five seconds
	running    bool                          // the pods run
	undone     bool                          // the drain was undone
	cordoned   string                        // who cordoned the Node; empty if it is not cordoned
	turn       reboot.Turn
	round      func()          // called at the start of each round
	asks       func()          // called by each request for the lock
	returned   []reboot.LockID // slots of earlier configurations that were given back
	commands   int             // runs of the reboot command
	drained    int             // drains
	lock       reboot.Lock     // nil for the machine itself
	released   int
	refuses    error // error that Release returns
	events     []string
	down       chan struct{} // receives a value when the reboot command has run

	log logtest.Book
	*reboot.Controller
	stop func()
}

func inMachine(t *testing.T, test func(m *machine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &machine{
			t: t, plane: controlplanetest.NewFake(time.Now), running: true, policy: reboot.Policy{ReadyFor: time.Minute}, turn: reboot.Turn{Granted: true},
			drains: func() (time.Duration, error) { return 20 * time.Second, nil }, down: make(chan struct{}, 1),
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		if _, err := m.plane.Register(t.Context(), node, controlplane.RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		m.starts()
		test(m)
		m.stop()
	})
}

func (m *machine) locked(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

func (m *machine) bootID() string { return fmt.Sprint("boot-", m.boot) }

// starts boots the host: the Node is Ready after half a minute.
func (m *machine) starts() {
	boot := 0
	m.locked(func() { m.boot++; boot = m.boot })
	m.edit(func(n *corev1.Node) {
		n.Status.NodeInfo.MachineID = identity.MachineID
		n.Status.NodeInfo.BootID = m.bootID()
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Message: "starting", Reason: "Boot"}}
	})
	m.agent()
	go func() {
		time.Sleep(30 * time.Second)
		m.edit(func(n *corev1.Node) {
			if n.Status.NodeInfo.BootID == fmt.Sprint("boot-", boot) {
				n.Status.Conditions[0].Status = corev1.ConditionTrue
			}
		})
	}()
}

func (m *machine) edit(change func(*corev1.Node)) {
	if err := m.plane.Edit(context.Background(), "n", change); err != nil {
		m.t.Error(err)
	}
}

// agent starts an agent in the current boot.
func (m *machine) agent() {
	m.creates()
	m.runs()
}

// runs runs the controller until stop is called.
func (m *machine) runs() {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error)
	go func() { over <- m.Run(ctx) }()
	m.stop = func() { cancel(); <-over }
	synctest.Wait()
}

// creates makes an agent that does not run yet.
func (m *machine) creates() {
	var lock reboot.Lock = m
	if m.lock != nil {
		lock = m.lock
	}
	var client controlplane.Client = m.plane
	if m.client != nil {
		client = m.client
	}
	m.Controller = reboot.New(reboot.Options{
		Node: "n", Group: m.group, Boot: m.bootID(), Host: m, Lock: lock, Client: client, Machine: identity, Store: m, Flush: m.flush, Change: m.change,
		Now:    func() (now time.Time) { m.locked(func() { now = time.Now().Add(m.clock) }); return now },
		Policy: func() (p reboot.Policy) { m.locked(func() { p = m.policy }); return p },
		Announce: func(_, reason, message string) {
			m.locked(func() { m.events = append(m.events, reason+" "+message) })
		},
		Log: m.log.Logger(),
	})
}

func (m *machine) restart() {
	m.stop()
	m.agent()
}

// passes waits. If the reboot command runs meanwhile, the host reboots five seconds later.
func (m *machine) passes(d time.Duration) {
	end := time.After(d)
	for {
		select {
		case <-m.down:
			time.Sleep(5 * time.Second)
			m.reboots()
		case <-end:
			synctest.Wait()
			return
		}
	}
}

// reboots shuts the host down and boots it again, which removes the files in /run.
func (m *machine) reboots() {
	m.stop()
	m.locked(func() {
		m.wanted, m.clock = nil, 0
		select {
		case <-m.down:
		default:
		}
	})
	time.Sleep(time.Minute)
	m.starts()
}

func (m *machine) Unread() (unread bool) {
	m.locked(func() { unread = m.unread })
	return unread
}

func (m *machine) Load(into any) {
	var answers chan struct{}
	if m.locked(func() { answers = m.answers }); answers != nil {
		<-answers
	}
	m.locked(func() {
		if m.stored != nil && !m.unread {
			if err := json.Unmarshal(m.stored, into); err != nil {
				m.t.Error(err)
			}
		}
	})
}

func (m *machine) SaveNow(snapshot func() any) {
	m.locked(func() {
		if m.unsaved = snapshot; m.disk == nil {
			m.save()
		}
	})
}

// save writes the memory to the disk. The caller holds mu.
func (m *machine) save() {
	if m.unsaved != nil {
		m.stored, _ = json.Marshal(m.unsaved())
		m.unsaved = nil
	}
}

// flush is the end of a write. A fault may hang until it is repaired, and writes the memory then.
func (m *machine) flush() error {
	var fault func() error
	m.locked(func() { fault = m.disk })
	if fault != nil {
		if err := fault(); err != nil {
			return err
		}
	}
	m.locked(m.save)
	return nil
}

func (m *machine) Wanted() (wanted, undecided []reboot.Finding) {
	var round func()
	m.locked(func() { wanted, undecided, round = m.wanted, m.undecided, m.round })
	if round != nil {
		round()
	}
	return wanted, undecided
}

func (m *machine) Drain(ctx context.Context, _ string, began time.Time, all bool, note func(time.Time) error) (journal.Record, error) {
	step := controlplane.RebootDraining
	if all {
		step = controlplane.RebootRebooting
	}
	m.announced(step)
	var takes time.Duration
	var fails error
	if !all {
		m.locked(func() { takes, fails = m.drains(); m.undone = false })
	}
	if began.IsZero() {
		if err := note(time.Now()); err != nil {
			return journal.Record{}, err
		}
	}
	m.onDisk(step)
	if all {
		return m.drainCritical(ctx)
	}
	m.locked(func() { m.drained++ })
	ended := ctx.Done()
	if m.hangs {
		ended = nil
	}
	select {
	case <-time.After(takes):
	case <-ended:
		return journal.Record{}, ctx.Err()
	}
	if fails != nil {
		return journal.Record{}, fails
	}
	m.locked(func() { m.running = false })
	return journal.Record{Graceful: true}, nil
}

// drainCritical stops the critical pods.
func (m *machine) drainCritical(ctx context.Context) (journal.Record, error) {
	var takes func() (time.Duration, error)
	m.locked(func() { takes = m.critical })
	if takes == nil {
		return journal.Record{Graceful: true}, nil
	}
	d, err := takes()
	if err == nil {
		err = bounded.Sleep(ctx, d)
	}
	return journal.Record{Graceful: err == nil}, err
}

func (m *machine) Undo(ctx context.Context, _ time.Time) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.locked(func() { m.running, m.undone = true, true })
	return nil
}

func (m *machine) Cordon(context.Context) error {
	m.locked(func() {
		if m.cordoned == "" {
			m.cordoned = "hostler"
		}
	})
	return nil
}

func (m *machine) Uncordon(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cordoned == "hostler" && m.uncordon == nil {
		m.cordoned = ""
	}
	return m.uncordon
}

func (m *machine) EmptiedByServer() bool { return false }
func (m *machine) GoingDown() bool       { return false }

func (m *machine) HasNode() bool { return !m.Left() && m.NodeBlocked() == "" }

func (m *machine) NodeBlocked() (why string) {
	m.locked(func() { why = m.unnamed })
	return why
}

func (m *machine) Left() (left bool) {
	m.locked(func() { left = m.left })
	return left
}

func (m *machine) Held() (held []reboot.Finding) {
	m.locked(func() { held = m.held })
	return held
}

func (m *machine) ShutdownPending(_ context.Context, until time.Time) (pending string, err error) {
	m.locked(func() {
		if until.IsZero() || !m.pendingAt.After(until) {
			pending, err = m.pending, m.pendingErr
		}
	})
	return pending, err
}

// onDisk checks that a step is on the disk before the host carries it out.
func (m *machine) onDisk(step controlplane.RebootStep) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var memory reboot.Memory
	if err := json.Unmarshal(m.stored, &memory); err != nil || memory.Request == nil || memory.Request.Step != step {
		m.t.Errorf("the host takes step %s, and its disk has %+v, %v", step, memory.Request, err)
	}
}

func (m *machine) NotStarted() []string {
	verifies := m.Report().Step == controlplane.RebootVerifying
	m.locked(func() { m.early = m.early || verifies && !m.running })
	return nil
}

func (m *machine) Unknown() string { return "" }

// announced checks that a step is on the Node before the host carries it out.
func (m *machine) announced(step controlplane.RebootStep) {
	node, err := m.plane.Node(context.Background(), "n")
	if errors.Is(err, controlplane.ErrUnavailable) {
		return
	}
	if err != nil {
		m.t.Fatal(err)
	}
	on, err := controlplane.RebootOf(node.Annotations)
	if now := m.Report(); err != nil || !now.Now && (on == nil || on.Step != step || on.ID != now.ID) {
		m.t.Errorf("the host takes step %s, and its Node has %+v, %v", step, on, err)
	}
}

func (m *machine) Reboot(context.Context) error {
	m.announced(controlplane.RebootRebooting)
	m.onDisk(controlplane.RebootRebooting)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.commands++
	if m.command != nil {
		return m.command()
	}
	if m.running {
		m.t.Error("the host reboots while pods run")
	}
	select {
	case m.down <- struct{}{}:
	default: // an earlier agent has already run the command
	}
	return nil
}

// did returns how many drains and runs of the command have begun.
func (m *machine) did() (drains, commands int) {
	m.locked(func() { drains, commands = m.drained, m.commands })
	return drains, commands
}

func (m *machine) Turn(_ context.Context, r *reboot.Request, node *corev1.Node) (turn reboot.Turn) {
	var asks func()
	m.locked(func() { turn, asks = m.turn, m.asks })
	if asks != nil {
		asks()
	}
	if node == nil {
		return reboot.Turn{Message: "no Node"}
	}
	if text := node.Annotations[controlplane.AnnotationReboot]; !strings.Contains(text, r.ID) {
		return reboot.Turn{Message: "no request on the Node"}
	}
	return turn
}

func (m *machine) OnNode() bool { return true }

func (m *machine) Release(context.Context, *reboot.Request) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuses == nil {
		m.released++
	}
	return m.refuses
}

// want checks the state of the reboot.
func (m *machine) want(step controlplane.RebootStep, message string) {
	m.t.Helper()
	r := m.Report()
	if r.Request == nil || r.Step != step || !strings.Contains(r.Message, message) {
		m.t.Fatalf("report = %+v, want step %s with %q", r.Request, step, message)
	}
	node, err := m.plane.Node(m.t.Context(), "n")
	if err != nil {
		m.t.Fatal(err)
	}
	if on, err := controlplane.RebootOf(node.Annotations); err != nil || on == nil || on.Step != step || on.ID != r.ID {
		m.t.Fatalf("annotation = %+v, %v, want step %s of %s", on, err, step, r.ID)
	}
}

func (m *machine) asked() {
	m.locked(func() { m.wanted = []reboot.Finding{{Source: sentinel, Message: "linux-image"}} })
	m.passes(15 * time.Second)
}

// clean checks that the host has undone everything that a reboot changes.
func (m *machine) clean() {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.running || m.cordoned == "hostler" || m.released == 0 {
		m.t.Errorf("pods run: %t, cordoned by %q, slot given back %d times; want nothing left of the reboot", m.running, m.cordoned, m.released)
	}
}

func TestARebootInTurn(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.turn = reboot.Turn{Lost: true, Message: "all slots are held: b"}
		m.asked()
		m.want(controlplane.RebootWaiting, "all slots are held: b")
		m.locked(func() { m.turn = reboot.Turn{Granted: true} })
		m.passes(12 * time.Second)
		m.want(controlplane.RebootDraining, "")
		m.passes(2 * time.Minute)
		m.want(controlplane.RebootVerifying, "the Node")
		m.passes(2 * time.Minute)
		m.want(controlplane.RebootDone, "")
		m.clean()
		if r := m.Report(); len(r.Past) != 1 || r.Longest.Duration < 2*time.Minute || r.Past[0].ByOther {
			t.Errorf("past = %+v, want one reboot with its time", r.Past)
		}
		if m.early {
			t.Error("the checks after the boot began before the drain was undone, want them to wait for its containers")
		}
	})
}

// A runtime hangs, so that the cancelled drain ends late.
func TestACancelledDrainIsUndoneWhateverFollows(t *testing.T) {
	for name, follows := range map[string]func(m *machine){
		"a new request": func(m *machine) {
			m.locked(func() { m.turn = reboot.Turn{Message: "all slots are held: b"} })
			if _, err := m.Request("ann", reboot.Ask{Reason: "b"}); err != nil {
				m.t.Error(err)
			}
		},
		"the end of the agent": func(m *machine) { m.restart() },
	} {
		t.Run(name, func(t *testing.T) {
			inMachine(t, func(m *machine) {
				m.hangs = true
				if _, err := m.Request("ann", reboot.Ask{Reason: "a"}); err != nil {
					t.Error(err)
				}
				m.passes(5 * time.Second)
				m.want(controlplane.RebootDraining, "")
				if _, err := m.Cancel("ann"); err != nil {
					t.Error(err)
				}
				m.passes(time.Second)
				follows(m)
				m.passes(time.Minute)
				m.locked(func() {
					if !m.undone || m.released == 0 {
						t.Errorf("undone: %t, slot given back %d times; want the cancelled drain undone", m.undone, m.released)
					}
				})
			})
		})
	}
}

func TestAnAgentThatIsKilledAtAnyStepGoesOn(t *testing.T) {
	for second := range 200 {
		inMachine(t, func(m *machine) {
			m.locked(func() { m.wanted = []reboot.Finding{{Source: sentinel}} })
			m.passes(time.Duration(second) * time.Second)
			m.restart()
			m.passes(10 * time.Minute)
			m.want(controlplane.RebootDone, "")
			m.clean()
			if m.boot != 2 {
				m.t.Errorf("boots = %d after a kill in second %d, want one reboot", m.boot, second)
			}
		})
	}
}

func TestADrainThatFailsIsUndoneAndTriedAgain(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.drains = func() (time.Duration, error) { return time.Second, errors.New("pods still run: shop/db") }
		m.asked()
		m.want(controlplane.RebootWanted, "pods still run: shop/db; the next attempt is at")
		m.clean()
		m.locked(func() { m.drains = func() (time.Duration, error) { return time.Second, nil } })
		m.passes(4 * time.Minute)
		m.want(controlplane.RebootWanted, "")
		m.passes(10 * time.Minute)
		m.want(controlplane.RebootDone, "")
	})
}

// slowLock answers as late as `hostler server` may.
type slowLock struct{ *machine }

func (l slowLock) Turn(ctx context.Context, r *reboot.Request, node *corev1.Node) reboot.Turn {
	if err := bounded.Sleep(ctx, 25*time.Second); err != nil {
		return reboot.Turn{Message: err.Error(), Unanswered: true}
	}
	return l.machine.Turn(ctx, r, node)
}

func (l slowLock) Release(ctx context.Context, r *reboot.Request) error {
	if err := bounded.Sleep(ctx, 25*time.Second); err != nil {
		return err
	}
	return l.machine.Release(ctx, r)
}

func TestALockHasTheTimeThatItNeeds(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.stop()
		m.lock = slowLock{m}
		m.agent()
		m.asked()
		m.passes(20 * time.Minute)
		m.want(controlplane.RebootDone, "")
		m.clean()
	})
}

func TestALockThatDoesNotAnswerIsGivenBackLater(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.drains = func() (time.Duration, error) { return time.Second, errors.New("pods still run") }
		m.refuses = errors.New("no route to host")
		m.asked()
		m.want(controlplane.RebootWanted, "pods still run")
		m.locked(func() { m.refuses = nil })
		m.passes(time.Minute) // the next attempt is due much later
		m.want(controlplane.RebootWanted, "pods still run")
		m.clean()
	})
}

// TestAControlPlaneThatDoesNotAnswerIsNamed has a host that has no network after its reboot, and one whose
// credentials are rejected since.
func TestAControlPlaneThatDoesNotAnswerIsNamed(t *testing.T) {
	for message, err := range map[string]error{
		"the control plane does not answer: ":   controlplane.ErrUnavailable,
		"the control plane refuses this host: ": fmt.Errorf("%w: %w user n", controlplane.ErrUnavailable, controlplane.ErrUnauthorized),
	} {
		inMachine(t, func(m *machine) {
			if _, err := m.Request("anna", reboot.Ask{Reason: "kernel", Now: true}); err != nil {
				t.Fatal(err)
			}
			m.passes(26 * time.Second)
			m.plane.Inject(controlplanetest.Any, controlplanetest.Fault{Err: err})
			m.restart() // the new agent has not read the Node yet
			m.passes(12 * time.Second)
			if r := m.Report(); r.Step != controlplane.RebootVerifying || !strings.HasPrefix(r.Message, message) {
				t.Errorf("request = %+v, want that it waits for the control plane, with %q", r.Request, message)
			}
			m.plane.Heal()
			m.passes(5 * time.Minute)
			if r := m.Report(); r.Step != controlplane.RebootDone {
				t.Errorf("request = %+v, want that it is over", r.Request)
			}
		})
	}
}

func TestNothingIsKnownBeforeTheFirstRound(t *testing.T) {
	inMachine(t, func(m *machine) {
		c := reboot.New(reboot.Options{Store: m, Log: slog.New(slog.DiscardHandler)})
		if r := c.Report(); len(r.Undecided) != 1 || !r.Undecided[0].Pending {
			t.Errorf("report before Run = %+v, want that the checks have not run", r)
		}
		m.passes(time.Minute)
		if r := m.Report(); len(r.Undecided) > 0 {
			t.Errorf("report = %+v, want no check", r)
		}
	})
}

func TestEachFileIsAReasonForTheReboot(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.locked(func() {
			m.wanted = []reboot.Finding{{Source: "a"}, {Source: "b", Message: "libc6"}}
			m.turn = reboot.Turn{Message: "all slots are held"}
		})
		m.passes(15 * time.Second)
		if r := m.Report(); r.Request == nil || r.Reason != "a, libc6 (b)" {
			t.Errorf("request = %+v, want both reasons", r.Request)
		}
		m.passes(time.Minute)
	})
}

func TestAFileIsReportedAsIgnoredAfterACancel(t *testing.T) {
	inMachine(t, func(m *machine) {
		file := reboot.Finding{Source: sentinel, Message: "linux-image"}
		m.locked(func() { m.wanted, m.undecided = []reboot.Finding{file}, []reboot.Finding{{Source: "busy"}} })
		m.passes(15 * time.Second)
		if r := m.Report(); len(r.Wanting) != 1 || len(r.Ignored) > 0 {
			t.Errorf("report = %+v, want that the file requests a reboot", r)
		}
		if _, err := m.Cancel("anna"); err != nil {
			t.Fatal(err)
		}
		m.passes(15 * time.Second)
		if r := m.Report(); len(r.Wanting) > 0 || len(r.Ignored) != 1 || r.Ignored[0] != file || r.Step != controlplane.RebootDone {
			t.Errorf("report = %+v, want that the file is ignored", r)
		}
		m.reboots()
		m.locked(func() { m.wanted = []reboot.Finding{file} })
		m.passes(time.Minute)
		if r := m.Report(); len(r.Wanting) != 1 || len(r.Ignored) > 0 {
			t.Errorf("report after the boot = %+v, want that the file requests a reboot", r)
		}
	})
}

// TestACancelCountsForWhatIsNotKnownYet restarts the agent: a check is not known until it has run, and nothing is known
// before the first round.
func TestACancelCountsForWhatIsNotKnownYet(t *testing.T) {
	for name, cancel := range map[string]func(m *machine) error{
		"a check that has not run": func(m *machine) error {
			m.restart()
			_, err := m.Cancel("anna")
			return err
		},
		"no check or file before the first round": func(m *machine) error {
			m.stop()
			m.creates()
			_, err := m.Cancel("anna")
			m.agent()
			return err
		},
		"checks whose folder hangs at the start": func(m *machine) error {
			m.locked(func() { m.undecided = []reboot.Finding{{Source: "reboot.checks", Pending: true}} })
			m.restart()
			_, err := m.Cancel("anna")
			m.passes(15 * time.Second)
			m.locked(func() { m.undecided = []reboot.Finding{{Source: "needrestart", Pending: true}} })
			return err
		},
	} {
		inMachine(t, func(m *machine) {
			m.turn = reboot.Turn{Message: "all slots are held: b"}
			check := reboot.Finding{Source: "needrestart"}
			m.locked(func() { m.wanted = []reboot.Finding{check} })
			m.passes(15 * time.Second)
			m.locked(func() { m.wanted, m.undecided = nil, []reboot.Finding{{Source: check.Source, Pending: true}} })
			if err := cancel(m); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			m.passes(15 * time.Second)
			m.locked(func() { m.wanted, m.undecided = []reboot.Finding{check}, nil })
			m.passes(time.Minute)
			if r := m.Report(); r.Step != controlplane.RebootDone || len(r.Ignored) != 1 {
				t.Errorf("%s: report = %+v, want that the check is ignored after the cancel", name, r)
			}
		})
	}
}

func TestADrainThatIsCancelledLeadsToNoReboot(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.asked()
		m.want(controlplane.RebootDraining, "")
		if _, err := m.Cancel("anna"); err != nil {
			t.Fatal(err)
		}
		m.passes(time.Hour) // the sentinel file still exists
		m.want(controlplane.RebootDone, "cancelled by anna")
		m.clean()
		if _, err := m.Request("anna", reboot.Ask{Reason: "now it suits"}); err != nil {
			t.Fatal(err)
		}
		m.passes(time.Hour)
		if m.boot != 2 {
			t.Errorf("boots = %d, want the reboot that was requested then", m.boot)
		}
	})
}

func TestACordonOfAPersonStays(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.cordoned = "anna"
		m.asked()
		m.passes(10 * time.Minute)
		m.want(controlplane.RebootDone, "")
		if m.cordoned != "anna" || m.boot != 2 {
			t.Errorf("cordoned by %q after %d boots, want anna's cordon after the reboot", m.cordoned, m.boot)
		}
	})
}

func TestACommandThatFailsOrDoesNothing(t *testing.T) {
	for name, command := range map[string]func() error{
		"the reboot failed: Access denied": func() error { return errors.New("Access denied") },
		"does not go down":                 func() error { return nil },
	} {
		inMachine(t, func(m *machine) {
			m.command = command
			m.asked()
			m.passes(16 * time.Minute)
			if r := m.Report(); r.Step == controlplane.RebootDone || !strings.Contains(r.Attempt.Failure, name) {
				t.Errorf("report = %+v, want %q", r.Request, name)
			}
			m.locked(func() { m.command = nil })
			m.passes(5 * time.Hour)
			m.want(controlplane.RebootDone, "")
			m.clean()
		})
	}
}

func TestAControlPlaneThatDoesNotAnswerHoldsTheRebootUp(t *testing.T) {
	for name, c := range map[string]struct {
		fails controlplanetest.Method
		says  string
	}{
		"a write":                           {controlplanetest.Annotate, "cannot write step Granted on the Node"},
		"a read, with the step on the Node": {controlplanetest.Node, "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			inMachine(t, func(m *machine) {
				m.turn = reboot.Turn{Lost: true}
				m.asked()
				m.plane.Inject(c.fails, controlplanetest.Fault{Err: controlplane.ErrUnavailable})
				m.locked(func() { m.turn = reboot.Turn{Granted: true} })
				m.passes(time.Hour)
				if r := m.Report(); r.Step != controlplane.RebootGranted || !strings.Contains(r.Message, c.says) {
					t.Errorf("report = %+v, want that it waits for the control plane", r.Request)
				}
				m.plane.Heal()
				m.passes(10 * time.Minute)
				m.want(controlplane.RebootDone, "")
			})
		})
	}
}

// TestAPersonInAHurryWaitsForNoControlPlane has a control plane that does not answer before the reboot.
func TestAPersonInAHurryWaitsForNoControlPlane(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.plane.Inject(controlplanetest.Annotate, controlplanetest.Fault{Err: controlplane.ErrUnavailable})
		if _, err := m.Request("anna", reboot.Ask{Reason: "etcd is gone", Now: true}); err != nil {
			t.Fatal(err)
		}
		m.passes(10 * time.Minute)
		if r := m.Report(); m.boot != 2 || r.Step != controlplane.RebootVerifying {
			t.Errorf("boots = %d, report = %+v, want the host rebooted and waiting for the control plane", m.boot, r.Request)
		}
		m.plane.Heal()
		m.passes(time.Minute)
		m.want(controlplane.RebootDone, "")
	})
}

// TestAnAttemptInAHurryThatFailsIsFollowedByAPause has a drain that fails at once.
func TestAnAttemptInAHurryThatFailsIsFollowedByAPause(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.drains = func() (time.Duration, error) { return 0, errors.New("another drain is under way") }
		if _, err := m.Request("anna", reboot.Ask{Reason: "now", Now: true}); err != nil {
			t.Fatal(err)
		}
		m.passes(4 * time.Minute)
		m.want(controlplane.RebootWanted, "another drain is under way; the next attempt is at")
		if failed := m.Report().Attempt.Failed; failed != 1 {
			t.Errorf("%d attempts failed, want one", failed)
		}
		m.locked(func() { m.drains = func() (time.Duration, error) { return time.Second, nil } })
		if _, err := m.Request("anna", reboot.Ask{Reason: "now", Now: true}); err != nil { // no pause before the attempt
			t.Fatal(err)
		}
		m.passes(4 * time.Minute)
		m.want(controlplane.RebootDone, "")
	})
}

func TestHurryKeepsTheReasonOfTheRequestThatWaits(t *testing.T) {
	inMachine(t, func(m *machine) {
		for _, ask := range []reboot.Ask{{Now: true}, {Reason: " ", Now: true}, {}} {
			if r, err := m.Request("anna", ask); err == nil || r.Request != nil {
				t.Errorf("Request(%+v) = %+v, %v, want an error because no request waits", ask, r, err)
			}
		}
		m.locked(func() { m.turn = reboot.Turn{Message: "all slots are held"} })
		if _, err := m.Request("anna", reboot.Ask{Reason: "new firmware"}); err != nil {
			t.Fatal(err)
		}
		m.passes(time.Minute)
		m.want(controlplane.RebootWaiting, "all slots are held")
		if r, err := m.Request("bob", reboot.Ask{}); err == nil || r.By != "anna" || r.Reason != "new firmware" {
			t.Errorf("Request() without Now = %+v, %v, want an error", r.Request, err)
		}
		if r, err := m.Request("bob", reboot.Ask{Now: true}); err != nil || r.By != "bob" || r.Reason != "new firmware" || !r.Now {
			t.Errorf("Request() = %+v, %v, want the reason of the request that waits", r.Request, err)
		}
		m.passes(5 * time.Second)
		m.want(controlplane.RebootDraining, "")
		if _, err := m.Request("bob", reboot.Ask{Now: true}); err == nil || !strings.Contains(err.Error(), "already at step Draining") {
			t.Errorf("Request() while the reboot runs = %v, want the step", err)
		}
		m.passes(4 * time.Minute)
		m.want(controlplane.RebootDone, "")
	})
}

// TestAClockThatIsSetAtTheBootMakesNoLongReboot has a clock that is wrong by an hour until the boot. If a past
// reboot seems to have taken an hour, the next reboot cannot start in a shorter window.
func TestAClockThatIsSetAtTheBootMakesNoLongReboot(t *testing.T) {
	for _, wrong := range []time.Duration{-time.Hour, time.Hour} {
		inMachine(t, func(m *machine) {
			m.locked(func() { m.clock = wrong })
			m.asked()
			m.passes(2 * time.Minute)
			m.want(controlplane.RebootVerifying, "")
			m.passes(5 * time.Minute)
			m.want(controlplane.RebootDone, "")
			if r := m.Report(); r.Problem != "" || r.Longest.Duration < time.Minute || r.Longest.Duration > 10*time.Minute {
				t.Errorf("longest = %v, problem %q, with a clock that was wrong by %v; want some minutes", r.Longest.Duration, r.Problem, wrong)
			}
		})
	}
}

// TestAClockThatIsSetBackDelaysNoReboot sets it back by some hours after a drain that failed, and while a slot of an
// earlier configuration cannot be given back. Each wait is as long as without that.
func TestAClockThatIsSetBackDelaysNoReboot(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.locked(func() {
			m.clock = 3 * time.Hour
			m.drains = func() (time.Duration, error) { return time.Second, errors.New("no") }
		})
		m.asked()
		m.passes(time.Minute)
		m.want(controlplane.RebootWanted, "the drain failed: no")
		m.locked(func() { m.clock, m.drains = 0, func() (time.Duration, error) { return time.Second, nil } })
		m.passes(10 * time.Minute)
		m.want(controlplane.RebootDone, "")
	})
	inMachine(t, func(m *machine) {
		m.stop()
		m.change.ID, m.clock, m.turn = reboot.LockID{FleetLock: "https://old"}, 3*time.Hour, reboot.Turn{Message: "held by b"}
		m.agent()
		m.asked()
		m.passes(time.Minute)
		m.stop()
		m.change = reboot.Change{ID: reboot.LockID{FleetLock: "https://new"}, Open: func(id reboot.LockID) (reboot.Lock, error) { return formerLock{id: id, m: m}, nil }}
		m.refuses, m.turn = errors.New("no route to host"), reboot.Turn{Granted: true}
		m.agent()
		m.passes(time.Minute)
		m.want(controlplane.RebootWanted, "is not given back yet")
		m.locked(func() { m.clock = 0 })
		m.passes(time.Hour + 10*time.Minute)
		m.locked(func() { m.refuses = nil })
		m.passes(time.Minute)
		m.want(controlplane.RebootDone, "")
	})
}

// TestAMemoryThatCannotBeReadEndsNoReboot restarts the agent while it drains, and its disk is out of order. The watch
// shows the request on the Node, which is not over.
func TestAMemoryThatCannotBeReadEndsNoReboot(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.asked()
		m.want(controlplane.RebootDraining, "")
		m.locked(func() { m.unread = true })
		m.restart()
		node, err := m.plane.Node(m.t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		m.Stored(node)
		m.passes(time.Minute)
		if r := m.Report(); !strings.Contains(r.Problem, "reboot.state") {
			t.Errorf("problem %q, want that its state cannot be read", r.Problem)
		}
		if _, err := m.Cancel("root"); err == nil || !strings.Contains(err.Error(), "not known") {
			t.Errorf("Cancel() = %v, want that it is not known if there is a reboot", err)
		}
		node, err = m.plane.Node(m.t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		if on, err := controlplane.RebootOf(node.Annotations); err != nil || on.Step != controlplane.RebootDraining || m.released > 0 {
			t.Errorf("annotation = %+v, %v, want that the host changes nothing of the reboot", on, err)
		}
		m.locked(func() { m.unread = false })
		m.passes(10 * time.Minute)
		m.want(controlplane.RebootDone, "")
		if r := m.Report(); r.Problem != "" {
			t.Errorf("problem %q of a reboot that is over", r.Problem)
		}
		m.clean()
	})
}

// TestAReadThatHangsDoesNotHangTheAgent has a disk that does not answer after the start of the agent. What it returns
// at last is not lost.
func TestAReadThatHangsDoesNotHangTheAgent(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.asked()
		m.want(controlplane.RebootDraining, "")
		m.stop()
		m.locked(func() { m.unread = true })
		m.creates()
		answers := make(chan struct{})
		m.locked(func() { m.answers = answers })
		m.runs()
		time.Sleep(time.Hour)
		stopped := make(chan struct{})
		go func() { m.stop(); close(stopped) }()
		select {
		case <-stopped:
		case <-time.After(time.Hour):
			t.Error("Run() does not end while a read hangs")
		}
		m.locked(func() { m.unread, m.answers = false, nil })
		close(answers)
		<-stopped
		m.runs()
		m.passes(10 * time.Minute)
		m.want(controlplane.RebootDone, "")
		m.clean()
	})
}

// TestAHostThatHasNoNameYetKeepsItsSlot has a host that gets its name long after the boot. Its agent is restarted then.
func TestAHostThatHasNoNameYetKeepsItsSlot(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.asked()
		m.passes(45 * time.Second)
		m.locked(func() { m.unnamed = "the host has no name" })
		m.passes(5 * time.Minute)
		if r := m.Report(); r.Step != controlplane.RebootVerifying || r.Message != "the host has no name" || m.released > 0 {
			t.Errorf("report = %+v, slot given back %d times; want that the host keeps it until it has a name", r.Request, m.released)
		}
		m.locked(func() { m.unnamed = "" })
		m.restart()
		m.passes(5 * time.Minute)
		m.want(controlplane.RebootDone, "")
		m.clean()
	})
}

// TestAHostRequestsNoSlotOfAnotherGroup has a Node whose label a person forgot.
func TestAHostRequestsNoSlotOfAnotherGroup(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.stop()
		m.group = "db"
		m.agent()
		m.asked()
		m.want(controlplane.RebootWanted, "the Node is in group default, and `reboot.group` is db")
		m.edit(func(n *corev1.Node) { n.Labels = map[string]string{controlplane.LabelRebootGroup: "db"} })
		m.passes(10 * time.Minute)
		m.want(controlplane.RebootDone, "")
	})
}

// TestARebootThatDoesNotEndIsAProblem has a reboot that is not verified, one whose attempts fail, and one whose
// request for a slot gets no answer. Each problem ends when its cause ends.
func TestARebootThatDoesNotEndIsAProblem(t *testing.T) {
	for name, c := range map[string]struct {
		before, wrong, right func(m *machine)
		fine                 time.Duration // time until the report has a problem
		want                 string
	}{
		"verifying": {
			before: func(m *machine) { m.asked(); m.passes(2 * time.Minute) },
			wrong:  func(m *machine) { m.undecided = []reboot.Finding{{Source: "disks", Message: "a disk is missing"}} },
			right:  func(m *machine) { m.undecided = nil },
			fine:   50 * time.Minute,
			want:   "it takes longer than 1h0m0s, and is at step Verifying: check disks: a disk is missing",
		},
		"attempts that fail": {
			wrong: func(m *machine) {
				m.drains = func() (time.Duration, error) { return time.Second, errors.New("pods still run: shop/db") }
			},
			right:  func(m *machine) { m.drains = func() (time.Duration, error) { return time.Second, nil } },
			before: func(*machine) {},
			fine:   4 * time.Minute,
			want:   "2 attempts failed, the last one: the drain failed: pods still run: shop/db",
		},
		"no answer": {
			wrong:  func(m *machine) { m.turn = reboot.Turn{Lost: true, Unanswered: true, Message: "no server"} },
			right:  func(m *machine) { m.turn = reboot.Turn{Granted: true} },
			before: func(*machine) {},
			fine:   9 * time.Minute,
			want:   "no answer to the request for a slot: no server",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inMachine(t, func(m *machine) {
				c.before(m)
				m.locked(func() { c.wrong(m) })
				if m.Report().Request == nil {
					m.asked()
				}
				m.passes(c.fine)
				if got := m.Report().Problem; got != "" {
					t.Errorf("problem = %q after %v, want none yet", got, c.fine)
				}
				m.passes(10 * time.Minute)
				if got := m.Report().Problem; got != c.want {
					t.Errorf("problem = %q, want %q", got, c.want)
				}
				m.locked(func() { c.right(m) })
				m.passes(time.Hour)
				m.want(controlplane.RebootDone, "")
				if got := m.Report().Problem; got != "" {
					t.Errorf("problem = %q after the end, want none", got)
				}
			})
		})
	}
}

func TestARebootBySomebodyElseCounts(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.turn = reboot.Turn{Lost: true}
		m.asked()
		m.reboots()
		m.passes(time.Minute)
		m.want(controlplane.RebootDone, "rebooted by something else")
		m.clean()
		if r := m.Report(); len(r.Past) != 1 || !r.Past[0].ByOther {
			t.Errorf("past = %+v, want the other's reboot", r.Past)
		}
	})
}

// TestARequestRightAfterABootIsANewOne has a person who requests a reboot before the first round after a boot has
// noticed that the boot has ended the request that waited.
func TestARequestRightAfterABootIsANewOne(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.turn = reboot.Turn{Lost: true}
		m.asked()
		m.passes(time.Minute)
		before, request := m.Report().ID, sync.OnceFunc(func() {
			if _, err := m.Request("bob", reboot.Ask{Reason: "another kernel"}); err != nil {
				t.Error(err)
			}
		})
		m.locked(func() { m.round = request })
		m.reboots()
		m.passes(time.Minute)
		m.want(controlplane.RebootWaiting, "")
		if r := m.Report(); r.ID == before || r.By != "bob" || r.Reason != "another kernel" {
			t.Errorf("request = %+v, want a new one of bob", r.Request)
		}
		m.locked(func() { m.turn = reboot.Turn{Granted: true} })
		m.passes(10 * time.Minute)
		if m.want(controlplane.RebootDone, ""); m.boot != 3 {
			t.Errorf("boots = %d, want that the host has rebooted for the request", m.boot)
		}
	})
}

// TestRandomHistories kills agents, power-cycles hosts, takes slots away, and makes drains, commands and the
// control plane fail. Persons cancel and request reboots. No host may go down while pods run. In the end, everything
// that a reboot changes is undone.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(100) {
		inMachine(t, func(m *machine) {
			r := rand.New(rand.NewPCG(seed, 1))
			drains := rand.New(rand.NewPCG(seed, 2))
			m.locked(func() {
				m.drains = func() (time.Duration, error) {
					if drains.IntN(3) == 0 {
						return time.Duration(drains.IntN(30)) * time.Second, errors.New("pods still run")
					}
					return time.Duration(drains.IntN(60)) * time.Second, nil
				}
			})
			m.critical = func() (time.Duration, error) { return time.Duration(drains.IntN(60)) * time.Second, nil }
			for range 30 {
				m.passes(time.Duration(r.IntN(120)) * time.Second)
				switch r.IntN(11) {
				case 0:
					m.restart()
				case 1:
					m.reboots()
				case 2:
					m.locked(func() { m.wanted = []reboot.Finding{{Source: sentinel, New: true}} })
				case 3:
					m.locked(func() { m.turn = reboot.Turn{Lost: true, Message: "held"} })
				case 4:
					m.locked(func() { m.turn = reboot.Turn{Granted: true} })
				case 5:
					_, _ = m.Cancel("anna")
				case 6:
					_, _ = m.Request("anna", reboot.Ask{Reason: "test", Now: r.IntN(3) == 0})
				case 7:
					m.plane.Inject(controlplanetest.Annotate, controlplanetest.Fault{Err: controlplane.ErrUnavailable})
				case 8:
					m.plane.Heal()
				case 9:
					m.locked(func() { m.disk = func() error { return errors.New("no space left on device") } })
				case 10:
					m.locked(func() { m.disk = nil; m.save() })
				}
			}
			m.plane.Heal()
			m.locked(func() { m.disk = nil; m.save() })
			m.locked(func() {
				m.turn, m.undecided = reboot.Turn{Granted: true}, nil
				m.drains = func() (time.Duration, error) { return time.Second, nil }
			})
			m.passes(10 * time.Hour)
			if got := m.Report(); got.Request != nil && got.Step != controlplane.RebootDone {
				m.t.Fatalf("seed %d: report = %+v, want it over", seed, got.Request)
			}
			m.locked(func() {
				if m.cordoned != "" || !m.running {
					m.t.Errorf("seed %d: cordoned by %q, pods run: %t", seed, m.cordoned, m.running)
				}
			})
		})
	}
}
