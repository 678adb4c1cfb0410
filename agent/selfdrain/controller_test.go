package selfdrain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/selfdrain"
	"hostler.io/hostler/shutdown/journal"
)

// disk stores the memory of a Controller.
type disk struct {
	mu       sync.Mutex
	text     []byte
	writes   int
	unstable bool // the file cannot be read
}

func (d *disk) Unread() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.unstable
}

func (d *disk) breaks(unstable bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unstable = unstable
}

func (d *disk) Load(into any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.text != nil && !d.unstable {
		if err := json.Unmarshal(d.text, into); err != nil {
			panic(err)
		}
	}
}

func (d *disk) SaveNow(snapshot func() any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text, err := json.Marshal(snapshot())
	if err != nil {
		panic(err)
	}
	d.text, d.writes = text, d.writes+1
}

// host runs a Controller in a bubble. Its drains take a minute.
type host struct {
	disk
	t     *testing.T
	began time.Time // of the bubble

	world  sync.Mutex    // guards the fields below
	step   time.Duration // error of the wall clock
	policy selfdrain.Policy
	jobs   selfdrain.Jobs

	taints     []corev1.Taint // of the Node
	unread     error          // error of a read of the Node
	meanwhile  func()         // called before the answer to a read arrives
	refusal    error          // error of a drain
	full       error          // error of the disk
	incomplete bool           // a drain leaves a pod running
	unknown    string         // why the jobs are not known
	steps      []string

	*selfdrain.Controller
	stop func()
}

func inHost(t *testing.T, test func(h *host)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &host{
			t: t, began: time.Now(), jobs: selfdrain.Jobs{Node: true, Lease: true},
			policy: selfdrain.Policy{OnTaint: true, OnLost: true, Toleration: toleration},
		}
		h.boots()
		test(h)
		h.stop()
	})
}

func (h *host) locked() (unlock func()) {
	h.world.Lock()
	return h.world.Unlock
}

// Taints changes the taints of the Node, which the agent sees.
func (h *host) Taints(taints []corev1.Taint) {
	h.set(func() { h.taints = taints })
	h.Controller.Taints(taints)
}

// set changes the state of the host.
func (h *host) set(change func()) {
	defer h.locked()()
	change()
}

// boots starts an agent.
func (h *host) boots() {
	h.Controller = selfdrain.New(selfdrain.Options{
		Policy: func() selfdrain.Policy { defer h.locked()(); return h.policy },
		Jobs:   func() selfdrain.Jobs { defer h.locked()(); return h.jobs },
		Store:  h, Flush: h.fault, Drainer: h, Boot: boot, Of: of,
		Read: func(context.Context) ([]corev1.Taint, error) {
			unlock := h.locked()
			taints, err, meanwhile := h.taints, h.unread, h.meanwhile
			unlock()
			if meanwhile != nil {
				meanwhile()
			}
			return taints, err
		},
		Now: func() selfdrain.Instant {
			defer h.locked()()
			return selfdrain.Instant{Boot: time.Since(h.began), Wall: time.Now().Add(h.step)}
		},
		Fix:      func(selfdrain.Cause) string { return "fix it" },
		Unknown:  func() string { defer h.locked()(); return h.unknown },
		Announce: func(_, reason, message string) { h.note("%s (%s)", reason, message) },
		Log:      slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- h.Run(ctx) }()
	h.stop = func() { cancel(); <-done }
	synctest.Wait()
}

func (h *host) restart() {
	h.stop()
	h.boots()
}

// note is called by the Controller's goroutines, one at a time.
func (h *host) note(format string, args ...any) {
	text, _, _ := strings.Cut(fmt.Sprintf(format, args...), " (drains at")
	defer h.locked()()
	h.steps = append(h.steps, fmt.Sprintf("%v %s", time.Since(h.began).Round(time.Second), text))
}

func (h *host) DrainForCause(ctx context.Context, o maintenance.Order, began func(time.Time) error) (journal.Record, error) {
	unlock := h.locked()
	refusal, incomplete := h.refusal, h.incomplete
	unlock()
	if refusal != nil {
		return journal.Record{}, refusal
	}
	what := "drain"
	if !o.Began.IsZero() {
		what = "continue"
	}
	at := time.Now()
	if err := began(at); err != nil {
		return journal.Record{}, err
	}
	h.note("%s for %s", what, o.Cause)
	select {
	case <-time.After(time.Minute):
		h.note("drained")
		return journal.Record{StartedAt: at, Graceful: !incomplete}, nil
	case <-ctx.Done():
		return journal.Record{StartedAt: at}, ctx.Err()
	}
}

func (h *host) Undo(context.Context, maintenance.Order) (bool, error) {
	h.note("undo")
	return true, h.fault()
}

// fault is the error of the disk.
func (h *host) fault() error {
	defer h.locked()()
	return h.full
}

// after waits for d.
func (h *host) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// renews lets renewals of the Lease succeed for d.
func (h *host) renews(d time.Duration) {
	for ; d > 0; d -= 10 * time.Second {
		h.Renewal(nil, 40*time.Second)
		h.after(10 * time.Second)
	}
}

// fails lets renewals fail for d.
func (h *host) fails(d time.Duration) {
	for ; d > 0; d -= 10 * time.Second {
		h.Renewal(errors.New("no route to host"), 40*time.Second)
		h.after(10 * time.Second)
	}
}

func (h *host) want(want ...string) {
	h.t.Helper()
	defer h.locked()()
	if !slices.Equal(h.steps, want) {
		h.t.Errorf("steps:\n\t%s\nwant\n\t%s", strings.Join(h.steps, "\n\t"), strings.Join(want, "\n\t"))
	}
	h.steps = nil
}

var person = noExecute("a", time.Time{})

func TestATaintDrainsTheHost(t *testing.T) {
	inHost(t, func(h *host) {
		h.Taints(nil)
		h.after(time.Minute)
		h.Taints([]corev1.Taint{person})
		h.set(func() { h.step = 2 * time.Hour }) // the wall clock is changed
		h.after(time.Minute)
		up := h.Upcoming()
		if len(up) != 1 || up[0].State != selfdrain.Scheduled || up[0].DrainsAt.Sub(time.Now().Add(h.step)) != 4*time.Minute || up[0].Hint != "fix it" {
			h.t.Errorf("Upcoming() = %+v, want a drain in four minutes", up)
		}
		h.set(func() { h.step = -2 * time.Hour })
		h.after(4*time.Minute + time.Second)
		if up := h.Upcoming(); len(up) != 1 || up[0].State != selfdrain.Draining {
			h.t.Errorf("Upcoming() = %+v, want the drain in progress", up)
		}
		h.after(time.Hour)
		if up := h.Upcoming(); len(up) != 1 || up[0].State != selfdrain.Drained {
			h.t.Errorf("Upcoming() = %+v, want it over", up)
		}
		h.want("1m0s DrainScheduled", "6m0s drain for taint a:NoExecute", "7m0s drained")

		h.restart()
		h.Taints([]corev1.Taint{person})
		h.after(time.Hour)
		h.want() // once
		h.Taints([]corev1.Taint{person, noExecute("b", time.Time{})})
		h.after(6 * time.Minute)
		h.want("2h6m1s DrainScheduled", "2h11m1s drain for taint b:NoExecute", "2h12m1s drained")
	})
}

// A memory that cannot be read is not empty: the host may have been drained already.
func TestNothingIsDrainedWhileTheMemoryCannotBeRead(t *testing.T) {
	inHost(t, func(h *host) {
		h.Taints([]corev1.Taint{person})
		h.after(time.Hour)
		h.want("0s DrainScheduled", "5m0s drain for taint a:NoExecute", "6m0s drained")
		h.stop()
		h.breaks(true)
		h.boots()
		writes := h.writes
		b := noExecute("b", time.Time{})
		h.Taints([]corev1.Taint{person, b})
		h.renews(time.Hour)
		h.want()
		if up := h.Upcoming(); len(up) != 2 || up[0].State != selfdrain.Scheduled || !strings.Contains(up[0].Message, "self-drain.state in `state.directory` cannot be read") {
			h.t.Errorf("Upcoming() = %+v, want two drains, and why they do not begin", up)
		}
		if h.writes != writes {
			h.t.Errorf("the memory was written %d times, want that it is kept", h.writes-writes)
		}
		h.breaks(false)
		h.renews(10 * time.Minute)
		h.want("2h0m30s DrainScheduled", "2h5m30s drain for taint b:NoExecute", "2h6m30s drained")
		h.fails(time.Minute)
		h.want("2h10m30s DrainScheduled")
		h.renews(10 * time.Second)
		h.want("2h11m0s DrainWithdrawn (lease not renewed: ended before it began)")
	})
}

func TestADrainIsUndoneOnceTheMemoryCanBeRead(t *testing.T) {
	inHost(t, func(h *host) {
		h.Taints([]corev1.Taint{person})
		h.after(5*time.Minute + 30*time.Second)
		h.stop()
		h.breaks(true)
		h.boots()
		h.Taints(nil)
		h.after(time.Hour)
		h.want("0s DrainScheduled", "5m0s drain for taint a:NoExecute")
		h.breaks(false)
		h.after(time.Minute)
		h.want("1h6m30s undo", "1h6m30s DrainWithdrawn (taint a:NoExecute: ended during the drain)")
	})
}

func TestNothingIsDrainedWhileTheJobsAreUnknown(t *testing.T) {
	inHost(t, func(h *host) {
		h.set(func() { h.unknown = "node.json cannot be read" })
		h.Taints([]corev1.Taint{person})
		h.after(time.Hour - time.Second)
		h.want()
		if up := h.Upcoming(); len(up) != 1 || up[0].Message != "node.json cannot be read" {
			h.t.Errorf("Upcoming() = %+v, want why the drain does not begin", up)
		}
		h.set(func() { h.unknown = "" })
		h.after(time.Minute)
		h.want("1h0m0s drain for taint a:NoExecute")
	})
}

// TestADrainThatCannotBeStoredIsNotBegun has a disk that is full when the drain is due, and again when it is undone.
func TestADrainThatCannotBeStoredIsNotBegun(t *testing.T) {
	inHost(t, func(h *host) {
		full := errors.New("no space left on device")
		h.Taints([]corev1.Taint{person})
		h.set(func() { h.full = full })
		h.after(8 * time.Minute)
		h.want("0s DrainScheduled")
		if up := h.Upcoming(); len(up) != 1 || up[0].State != selfdrain.Scheduled || up[0].Message != "cannot store the start of the drain: no space left on device" {
			h.t.Errorf("Upcoming() = %+v, want why the drain does not begin", up)
		}
		h.set(func() { h.full = nil })
		h.after(30 * time.Second)
		h.want("8m10s drain for taint a:NoExecute")
		if up := h.Upcoming(); len(up) != 1 || up[0].Message != "" {
			h.t.Errorf("Upcoming() = %+v, want no trouble any more", up)
		}
		h.set(func() { h.full = full })
		h.Taints(nil)
		h.after(15 * time.Second)
		h.want("8m30s undo", "8m30s undo", "8m40s undo")
		h.set(func() { h.full = nil })
		h.after(time.Hour)
		h.want("8m50s undo", "8m50s DrainWithdrawn (taint a:NoExecute: ended during the drain)")
	})
}

func TestATaintThatIsRemovedInTimeDrainsNothing(t *testing.T) {
	inHost(t, func(h *host) {
		h.Taints([]corev1.Taint{person})
		h.after(4 * time.Minute)
		h.Taints(nil)
		h.after(time.Hour)
		h.want("0s DrainScheduled", "4m0s DrainWithdrawn (taint a:NoExecute: ended before it began)")
	})
}

func TestATaintThatIsRemovedDuringTheDrainUndoesIt(t *testing.T) {
	inHost(t, func(h *host) {
		h.Taints([]corev1.Taint{person})
		h.after(5*time.Minute + 30*time.Second)
		h.Taints(nil)
		h.after(time.Hour)
		h.want("0s DrainScheduled", "5m0s drain for taint a:NoExecute", "5m30s undo", "5m30s DrainWithdrawn (taint a:NoExecute: ended during the drain)")
		h.restart()
		h.Taints(nil)
		h.after(time.Hour)
		h.want()
	})
}

func TestARestartOfTheAgentChangesNoDueTime(t *testing.T) {
	inHost(t, func(h *host) {
		h.Taints([]corev1.Taint{person})
		h.after(3 * time.Minute)
		h.set(func() { h.step = time.Hour })
		h.restart()
		h.after(time.Second)
		h.Taints([]corev1.Taint{person})
		h.after(time.Minute)
		h.want("0s DrainScheduled", "3m0s DrainScheduled")
		h.stop()
		h.after(2 * time.Minute)                                    // due while no agent is running
		h.set(func() { h.unread = errors.New("no route to host") }) // the taint may have been removed
		h.boots()
		h.after(time.Hour)
		h.want()
		h.set(func() { h.unread = nil })
		h.after(10 * time.Second)
		h.want("1h6m11s drain for taint a:NoExecute")
		h.restart() // during the drain
		h.Taints([]corev1.Taint{person})
		h.after(time.Hour)
		h.want("1h6m11s continue for taint a:NoExecute", "1h7m11s drained")
	})
}

// TestAClockThatIsAheadDrainsNobodyEarly has a wall clock that is ten hours ahead at the start of the agent. Restarts of the
// agent postpone nothing.
func TestAClockThatIsAheadDrainsNobodyEarly(t *testing.T) {
	inHost(t, func(h *host) {
		h.stop()
		h.set(func() { h.step = 10 * time.Hour })
		taints := []corev1.Taint{noExecute("a", h.began)}
		for range 5 {
			h.boots()
			h.Taints(taints)
			h.after(59 * time.Second)
			h.stop()
		}
		h.boots()
		h.after(time.Hour)
		h.want("0s DrainScheduled", "59s DrainScheduled", "1m58s DrainScheduled", "2m57s DrainScheduled", "3m56s DrainScheduled",
			"4m55s DrainScheduled", "5m0s drain for taint a:NoExecute", "6m0s drained")
	})
}

func TestADrainIsUndoneAfterItWasDisabledWhileNoAgentRan(t *testing.T) {
	inHost(t, func(h *host) {
		h.Taints([]corev1.Taint{person})
		h.after(5*time.Minute + 30*time.Second)
		h.stop()
		h.policy = selfdrain.Policy{}
		h.boots()
		h.after(time.Hour)
		h.want("0s DrainScheduled", "5m0s drain for taint a:NoExecute", "5m30s undo", "5m30s DrainWithdrawn (taint a:NoExecute: ended during the drain)")
	})
}

func TestADrainWhoseCauseEndedWhileNoAgentRanIsUndone(t *testing.T) {
	inHost(t, func(h *host) {
		h.Taints([]corev1.Taint{person})
		h.after(5*time.Minute + 30*time.Second)
		h.stop()
		h.set(func() { h.taints = nil })
		h.boots()
		h.Taints(nil)
		h.after(time.Hour)
		h.want("0s DrainScheduled", "5m0s drain for taint a:NoExecute", "5m30s undo", "5m30s DrainWithdrawn (taint a:NoExecute: ended during the drain)")
	})
}

func TestALostLeaseDrainsTheHost(t *testing.T) {
	inHost(t, func(h *host) {
		h.renews(time.Hour)
		h.fails(time.Minute) // the last renewal was 10 s before
		h.want("1h0m30s DrainScheduled")
		h.restart()
		h.fails(10 * time.Minute)
		h.want("1h1m0s DrainScheduled", "1h5m30s drain for lease not renewed", "1h6m30s drained")
		h.renews(time.Minute)
		h.want()
		h.fails(time.Minute) // one more minute
		h.want("1h12m30s DrainScheduled")
		if h.writes > 12 {
			h.t.Errorf("%d writes of the state, want none with a renewal that is followed by another", h.writes)
		}
	})
}

func TestALeaseThatIsRenewedInTimeDrainsNothing(t *testing.T) {
	inHost(t, func(h *host) {
		h.renews(time.Minute)
		h.fails(5 * time.Minute)
		h.renews(time.Hour)
		h.want("1m30s DrainScheduled", "6m0s DrainWithdrawn (lease not renewed: ended before it began)")
	})
}

func TestOnlyAHostThatHasALeaseLosesIt(t *testing.T) {
	for name, lives := range map[string]func(h *host){
		"never had one":            func(h *host) { h.fails(time.Hour) },
		"has another owner of it":  func(h *host) { h.renews(time.Minute); h.set(func() { h.jobs.Lease = false }); h.fails(time.Hour) },
		"was deregistered":         func(h *host) { h.renews(time.Minute); h.set(func() { h.jobs.Left = true }); h.after(time.Hour) },
		"has no Node":              func(h *host) { h.renews(time.Minute); h.Waits(true); h.after(time.Hour) },
		"is not to drain for that": func(h *host) { h.set(func() { h.policy.OnLost = false }); h.renews(time.Minute); h.fails(time.Hour) },
	} {
		inHost(t, func(h *host) {
			lives(h)
			defer h.locked()()
			if h.steps != nil {
				t.Errorf("a host that %s: %q, want nothing", name, h.steps)
			}
			h.steps = nil
		})
	}
}

func TestAHostThatReturnsToItsLeaseCountsFromThere(t *testing.T) {
	inHost(t, func(h *host) {
		h.renews(time.Minute)
		h.set(func() { h.jobs.Lease = false })
		h.after(time.Hour)
		h.set(func() { h.jobs.Lease = true })
		h.fails(6 * time.Minute)
		h.want("1h1m40s DrainScheduled", "1h6m40s drain for lease not renewed")
	})
}

func TestAHostThatStartsWithoutItsControlPlaneCountsFromThere(t *testing.T) {
	inHost(t, func(h *host) {
		h.renews(time.Minute)
		h.stop()
		h.after(time.Hour)
		h.boots()
		h.fails(6 * time.Minute)
		h.want("1h1m40s DrainScheduled", "1h6m40s drain for lease not renewed")
	})
}

func TestALeaseThatNobodyTriesToRenewIsLostToo(t *testing.T) {
	inHost(t, func(h *host) {
		h.renews(time.Minute)
		h.after(6 * time.Minute)
		h.want("1m30s DrainScheduled", "6m30s drain for lease not renewed")
	})
}

func TestARefusedDrainIsTriedAgain(t *testing.T) {
	inHost(t, func(h *host) {
		h.set(func() { h.refusal = errors.New("the host is already shutting down") })
		h.Taints([]corev1.Taint{person})
		h.after(10 * time.Minute)
		h.want("0s DrainScheduled")
		h.set(func() { h.refusal = nil })
		h.after(2 * time.Minute)
		h.want("10m10s drain for taint a:NoExecute", "11m10s drained")
	})
}

func TestADrainThatLeavesPodsRunningIsTriedAFewTimes(t *testing.T) {
	inHost(t, func(h *host) {
		h.set(func() { h.incomplete = true })
		h.Taints([]corev1.Taint{person})
		h.after(24 * time.Hour)
		h.want("0s DrainScheduled", "5m0s drain for taint a:NoExecute", "6m0s drained",
			"7m0s continue for taint a:NoExecute", "8m0s drained", "10m0s continue for taint a:NoExecute", "11m0s drained",
			"15m0s continue for taint a:NoExecute", "16m0s drained", "24m0s continue for taint a:NoExecute", "25m0s drained",
			"41m0s continue for taint a:NoExecute", "42m0s drained")
	})
}

func TestAReloadEndsADrain(t *testing.T) {
	inHost(t, func(h *host) {
		h.Taints([]corev1.Taint{person})
		h.after(5*time.Minute + 30*time.Second)
		h.set(func() { h.policy = selfdrain.Policy{Toleration: toleration} })
		h.Reconfigured()
		h.after(time.Hour)
		h.want("0s DrainScheduled", "5m0s drain for taint a:NoExecute", "5m30s undo", "5m30s DrainWithdrawn (taint a:NoExecute: ended during the drain)")
		if string(h.text) != `{"boot":""}` {
			t.Errorf("state = %s, want nothing that a later start could believe", h.text)
		}
	})
}

func TestWithoutAPolicyNothingIsWritten(t *testing.T) {
	inHost(t, func(h *host) {
		h.stop()
		h.text, h.writes, h.policy = nil, 0, selfdrain.Policy{Toleration: toleration}
		h.boots()
		h.Taints([]corev1.Taint{person})
		h.renews(time.Minute)
		h.fails(time.Hour)
		h.want()
		if h.writes > 0 {
			t.Errorf("%d writes, want none", h.writes)
		}
	})
}

func TestTheNodeOfAKubeletIsLeftAlone(t *testing.T) {
	inHost(t, func(h *host) {
		h.set(func() { h.jobs = selfdrain.Jobs{} })
		h.Taints([]corev1.Taint{person})
		h.after(time.Hour)
		h.want()
	})
}

// The time of the drain is the last renewal that an agent knows of, plus the Lease duration and the
// toleration. That is true for any sequence of events.
func TestHistoriesOfALease(t *testing.T) {
	for seed := range uint64(300) {
		inHost(t, func(h *host) {
			r := rand.New(rand.NewPCG(seed, 2))
			h.renews(10 * time.Second)
			contact, known, now := 0*time.Second, false, func() time.Duration { return time.Since(h.began) }
			drained, started := false, time.Duration(0)
			for range 60 {
				switch what := r.IntN(8); what {
				case 0, 1:
					h.Renewal(nil, 40*time.Second)
					contact, known, drained = now(), false, false
				case 2:
					h.stop()
					time.Sleep(time.Duration(r.Int64N(int64(2 * time.Minute))))
					h.boots()
					started = now()
					if !known { // the next agent does not know the start
						contact = now()
					}
				case 3:
					h.set(func() { h.step = time.Duration(r.IntN(3)-1) * time.Hour })
				default:
					h.Renewal(errors.New("no route to host"), 40*time.Second)
					known = true
				}
				h.after(time.Duration(r.Int64N(int64(time.Minute))))
				if now() >= contact+40*time.Second {
					known = true
				}
				unlock := h.locked()
				began := slices.ContainsFunc(h.steps, func(s string) bool {
					return strings.Contains(s, " drain for ") || strings.Contains(s, " continue for ")
				})
				steps := strings.Join(h.steps, "\n\t")
				h.steps = nil
				unlock()
				due := contact + 40*time.Second + toleration
				switch {
				case began && now() < due-time.Second:
					h.t.Errorf("seed %d: drained at %v, want from %v on:\n\t%s", seed, now(), due, steps)
				case !began && !drained && now() > max(due, started)+selfdrain.HearBound+time.Second:
					h.t.Errorf("seed %d: not drained at %v, want from %v on", seed, now(), due)
				}
				drained = drained || began
			}
		})
	}
}

// TestATaintIsReadAgainBeforeTheDrain has a taint whose removal the agent has not seen.
func TestATaintIsReadAgainBeforeTheDrain(t *testing.T) {
	inHost(t, func(h *host) {
		h.Taints([]corev1.Taint{person})
		h.after(time.Minute)
		h.set(func() { h.taints, h.unread = nil, errors.New("no route to host") })
		h.after(toleration)
		h.want("0s DrainScheduled")
		if list := h.Upcoming(); len(list) != 1 || list[0].State != selfdrain.Scheduled || !strings.Contains(list[0].Message, "no route to host") {
			t.Errorf("Upcoming() = %+v, want why the drain does not begin", list)
		}
		h.set(func() { h.unread = nil })
		h.after(time.Minute)
		h.want()
		if list := h.Upcoming(); len(list) != 0 {
			t.Errorf("Upcoming() = %+v, want none", list)
		}
	})
}

// TestAnAnswerIsNotNewerThanAReport has a taint whose removal the agent sees before the answer to an earlier read arrives.
func TestAnAnswerIsNotNewerThanAReport(t *testing.T) {
	inHost(t, func(h *host) {
		h.Taints([]corev1.Taint{person})
		h.after(time.Minute)
		h.set(func() { h.meanwhile = func() { h.set(func() { h.meanwhile = nil }); h.Taints(nil) } })
		h.after(toleration)
		h.want("0s DrainScheduled")
		if list := h.Upcoming(); len(list) != 0 {
			t.Errorf("Upcoming() = %+v, want none", list)
		}
	})
}
