package reboot_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
)

// TestWhatCannotBeStoredIsNotBegun breaks the disk before each step, in each way. The fake of the host checks that a
// step is on the disk when it is carried out.
func TestWhatCannotBeStoredIsNotBegun(t *testing.T) {
	full := errors.New("write /var/lib/hostler/reboot.state: no space left on device")
	faults := map[string]func() error{
		"a full disk":          func() error { return full },
		"a disk that is late":  func() error { time.Sleep(6 * time.Second); return full },
		"a disk that hangs":    func() error { time.Sleep(time.Hour); return nil },
		"a disk that is slow":  func() error { time.Sleep(4 * time.Second); return nil },
		"a disk that recovers": nil, // after half a minute
	}
	for step, reach := range map[controlplane.RebootStep]func(m *machine, breaks func()){
		controlplane.RebootWaiting: func(m *machine, breaks func()) { breaks(); m.asked() },
		controlplane.RebootGranted: func(m *machine, breaks func()) {
			m.turn = reboot.Turn{Message: "held"}
			m.asked()
			breaks()
			m.locked(func() { m.turn = reboot.Turn{Granted: true} })
			m.passes(15 * time.Second)
		},
		controlplane.RebootDraining: func(m *machine, breaks func()) {
			m.asks = func() {
				if m.Report().Step == controlplane.RebootGranted {
					m.locked(func() { m.asks = nil })
					breaks()
				}
			}
			m.asked()
		},
		controlplane.RebootRebooting: func(m *machine, breaks func()) {
			m.asked()
			m.want(controlplane.RebootDraining, "")
			breaks()
			m.passes(20 * time.Second)
		},
	} {
		for name, fault := range faults {
			t.Run(fmt.Sprintf("%s with %s", step, name), func(t *testing.T) {
				inMachine(t, func(m *machine) {
					slow, recovers := name == "a disk that is slow", fault == nil
					if recovers {
						fault = func() error { return full }
					}
					reach(m, func() { m.locked(func() { m.disk = fault }) })
					if slow || recovers {
						m.passes(30 * time.Second)
					} else {
						m.passes(2 * time.Minute)
						r := m.Report()
						if r.Step != controlplane.RebootWanted || !strings.Contains(r.Message, "cannot store step "+string(step)+": ") {
							t.Errorf("report = %+v, want that step %s is not stored", r.Request, step)
						}
						if !strings.HasPrefix(r.Problem, "cannot store its step: ") {
							t.Errorf("problem = %q, want the fault of the disk", r.Problem)
						}
						if drains, commands := m.did(); commands > 0 || drains > 0 && step != controlplane.RebootRebooting {
							t.Errorf("%d drains and %d runs of the command, want that step %s is not begun", drains, commands, step)
						}
						m.locked(func() {
							if !m.running || m.cordoned != "" || step != controlplane.RebootWaiting && m.released == 0 {
								t.Errorf("pods run: %t, cordoned by %q, slot given back %d times; want nothing left of the attempt", m.running, m.cordoned, m.released)
							}
						})
					}
					m.locked(func() { m.disk = nil })
					m.passes(time.Hour + 10*time.Minute) // a call that hangs ends within an hour
					m.want(controlplane.RebootDone, "")
					m.clean()
					if m.boot != 2 {
						t.Errorf("boots = %d, want one reboot", m.boot)
					}
				})
			})
		}
	}
}

// A host whose disk is read-only after the boot keeps its slot, so that no other host makes the same mistake.
func TestAHostThatCannotStoreTheEndKeepsItsSlot(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.asked()
		m.passes(30 * time.Second)
		m.locked(func() { m.disk = func() error { return errors.New("read-only file system") } })
		m.passes(10 * time.Minute)
		m.want(controlplane.RebootVerifying, "cannot store step Done: read-only file system")
		if m.released > 0 {
			t.Error("the slot was given back, want that the host keeps it")
		}
		if _, err := m.Cancel("anna"); err != nil {
			t.Fatal(err)
		}
		m.passes(15 * time.Second)
		m.want(controlplane.RebootDone, "the checks after the reboot were ended by anna")
		m.clean()
	})
}

func TestARequestThatCannotBeStoredIsRefused(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.locked(func() { m.disk = func() error { return errors.New("read-only file system") } })
		r, err := m.Request("anna", reboot.Ask{Reason: "kernel", Now: true})
		if err == nil || !strings.Contains(err.Error(), "cannot store the request: read-only file system") || r.Request != nil {
			t.Errorf("Request() = %+v, %v, want that it is refused", r.Request, err)
		}
		m.locked(func() { m.disk = nil })
		m.passes(time.Minute)
		if r := m.Report(); r.Request != nil {
			t.Errorf("request = %+v, want none", r.Request)
		}
	})
}

// TestWhatAPersonSaysDuringARoundCounts has a round that waits for a lock server, at each step before the pods are
// stopped, and a person who says something meanwhile. The round's decision is from before.
func TestWhatAPersonSaysDuringARoundCounts(t *testing.T) {
	for at, turn := range map[controlplane.RebootStep]reboot.Turn{
		controlplane.RebootWaiting: {Message: "all slots are held: b"},
		controlplane.RebootGranted: {Granted: true},
	} {
		for name, c := range map[string]struct {
			says func(m *machine) error
			want func(r reboot.Report) bool
			done bool
		}{
			"a reason": {
				says: func(m *machine) error { _, err := m.Request("anna", reboot.Ask{Reason: "firmware"}); return err },
				want: func(r reboot.Report) bool {
					return r.Reason == "firmware" && r.By == "anna" && r.Step != controlplane.RebootDone
				},
			},
			"that it is urgent": {
				says: func(m *machine) error { _, err := m.Request("anna", reboot.Ask{Reason: "fire", Now: true}); return err },
				want: func(r reboot.Report) bool {
					return r.Now && r.Reason == "fire" && r.Step == controlplane.RebootDraining
				},
			},
			"that it is cancelled": {
				says: func(m *machine) error { _, err := m.Cancel("anna"); return err },
				want: func(r reboot.Report) bool { return r.Cancelled == "anna" && r.Step == controlplane.RebootDone },
			},
		} {
			if at == controlplane.RebootGranted && name != "that it is cancelled" {
				continue // refused: the host already has its turn
			}
			t.Run(fmt.Sprintf("%s at %s", name, at), func(t *testing.T) {
				inMachine(t, func(m *machine) {
					asked, answer, once := make(chan struct{}), make(chan struct{}), false
					m.locked(func() {
						m.turn, m.wanted = turn, []reboot.Finding{{Source: sentinel}}
						m.asks = func() {
							if m.Report().Step == at && !once {
								once = true
								asked <- struct{}{}
								<-answer
							}
						}
					})
					<-asked
					m.locked(func() { m.wanted = nil }) // without the person, the next decision is that nothing wants a reboot
					if err := c.says(m); err != nil {
						t.Fatal(err)
					}
					close(answer)
					m.passes(15 * time.Second)
					if r := m.Report(); !c.want(r) {
						t.Errorf("report = %+v, want that the person is heard", r.Request)
					}
					m.passes(10 * time.Minute)
				})
			})
		}
	}
}

// TestARequestWhileNothingWantsARebootAnyMore removes the file while the round waits for the lock: the round decides
// that nothing wants a reboot any more, from a request that is not the person's.
func TestARequestWhileNothingWantsARebootAnyMore(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.turn = reboot.Turn{Message: "all slots are held: b"}
		m.asked()
		m.want(controlplane.RebootWaiting, "all slots are held: b")
		asked, answer := make(chan struct{}), make(chan struct{})
		m.locked(func() {
			m.wanted = nil
			m.asks = func() {
				m.locked(func() { m.asks = nil })
				asked <- struct{}{}
				<-answer
			}
		})
		<-asked
		if _, err := m.Request("anna", reboot.Ask{Reason: "firmware"}); err != nil {
			t.Fatal(err)
		}
		close(answer)
		m.passes(15 * time.Second)
		m.want(controlplane.RebootWaiting, "all slots are held: b")
	})
}

// TestAHostWithoutItsNodeDoesNotReboot takes the Node away while the pods are being stopped, or right before the
// command. The answer of the lock stays: it is what a watch that is late would show.
func TestAHostWithoutItsNodeDoesNotReboot(t *testing.T) {
	takes := map[string]func(m *machine){
		"the host has left": func(m *machine) { m.locked(func() { m.left = true }); m.Reconfigured() },
		"the host has no Node": func(m *machine) {
			if err := m.plane.Leave(m.t.Context(), "n", identity); err != nil {
				m.t.Fatal(err)
			}
		},
		"the Node belongs to another machine": func(m *machine) {
			m.edit(func(n *corev1.Node) { n.Status.NodeInfo.MachineID = "another" })
		},
	}
	for why, take := range takes {
		for name, reach := range map[string]func(m *machine){
			"while pods are stopped": func(m *machine) { m.asked(); m.want(controlplane.RebootDraining, "") },
			"before the command": func(m *machine) {
				m.asked()
				m.plane.Inject(controlplanetest.Annotate, controlplanetest.Fault{Err: controlplane.ErrUnavailable})
				m.passes(20 * time.Second)
				if r := m.Report(); r.Step != controlplane.RebootRebooting {
					m.t.Fatalf("report = %+v, want step Rebooting", r.Request)
				}
			},
		} {
			t.Run(why+" "+name, func(t *testing.T) {
				inMachine(t, func(m *machine) {
					m.passes(time.Minute) // until the Node is Ready
					reach(m)
					take(m)
					m.plane.Heal()
					m.passes(12 * time.Second)
					r := m.Report()
					if r.Step != controlplane.RebootWanted || !strings.HasPrefix(r.Message, why) {
						t.Errorf("report = %+v, want that the attempt ends: %s", r.Request, why)
					}
					m.passes(time.Hour)
					m.clean()
					if _, commands := m.did(); commands > 0 || m.boot != 1 {
						t.Errorf("the command ran %d times, %d boots; want no reboot without a slot", commands, m.boot)
					}
				})
			})
		}
	}
}

// TestACancelAfterTheCommand has a command that returns at once, and no shutdown.
func TestACancelAfterTheCommand(t *testing.T) {
	inMachine(t, func(m *machine) {
		runs, ends := make(chan struct{}), make(chan struct{})
		m.command = func() error {
			m.mu.Unlock()
			close(runs)
			<-ends
			m.mu.Lock()
			return nil
		}
		m.asked()
		m.passes(20 * time.Second)
		<-runs
		if _, err := m.Cancel("anna"); err == nil || !strings.Contains(err.Error(), "`reboot.command` is running") {
			t.Errorf("Cancel() while the command runs = %v, want that it is refused", err)
		}
		close(ends)
		synctest.Wait()
		m.want(controlplane.RebootRebooting, "`reboot.command` has returned; if the host does not go down, the attempt ends at")
		m.locked(func() { m.pending = "a reboot is scheduled for 12:00" })
		if _, err := m.Cancel("anna"); err == nil || !strings.Contains(err.Error(), "a reboot is scheduled for 12:00") {
			t.Errorf("Cancel() while a shutdown is scheduled = %v, want that it is refused", err)
		}
		m.locked(func() { m.pending = "" })
		if _, err := m.Cancel("anna"); err != nil {
			t.Fatal(err)
		}
		m.passes(15 * time.Second)
		m.want(controlplane.RebootDone, "cancelled by anna")
		m.clean()
	})
}

// TestACommandThatFailsMayHaveBegunAShutdown has a command that reports an error, and a host that goes down a while later.
func TestACommandThatFailsMayHaveBegunAShutdown(t *testing.T) {
	for name, c := range map[string]struct {
		pending string
		at      time.Duration // from now; zero for one in progress
		unknown error
		step    controlplane.RebootStep
		message string
	}{
		"a shutdown":            {"systemd is shutting the host down", 0, nil, controlplane.RebootRebooting, "if the host does not go down"},
		"one in a minute":       {"a reboot is scheduled", time.Minute, nil, controlplane.RebootRebooting, "if the host does not go down"},
		"no answer of systemd":  {"", 0, errors.New("no answer"), controlplane.RebootRebooting, "if the host does not go down"},
		"no shutdown":           {"", 0, nil, controlplane.RebootWanted, "the reboot failed: connection timed out"},
		"another one, at night": {"a reboot is scheduled", 4 * time.Hour, nil, controlplane.RebootWanted, "the reboot failed: connection timed out"},
	} {
		t.Run(name, func(t *testing.T) {
			inMachine(t, func(m *machine) {
				m.command = func() error {
					m.pending, m.pendingAt, m.pendingErr = c.pending, time.Now().Add(c.at), c.unknown
					return errors.New("connection timed out")
				}
				m.asked()
				m.passes(40 * time.Second)
				m.want(c.step, c.message)
			})
		})
	}
}

// formerLock is a lock of an earlier configuration.
type formerLock struct {
	reboot.Alone
	id reboot.LockID
	m  *machine
}

func (l formerLock) Release(context.Context, *reboot.Request) error {
	l.m.locked(func() {
		if l.m.refuses == nil {
			l.m.returned = append(l.m.returned, l.id)
		}
	})
	return l.m.refuses
}

// TestASlotIsGivenBackToTheLockThatGaveIt changes the configuration at each step. The agent must be restarted for
// that.
func TestASlotIsGivenBackToTheLockThatGaveIt(t *testing.T) {
	old, next := reboot.LockID{FleetLock: "https://a", Group: "g", Host: "n"}, reboot.LockID{Group: "default"}
	moved := old
	moved.PasswordFile = "/password"
	for name, c := range map[string]struct {
		change reboot.Change
		after  time.Duration // from the request
		lost   bool          // the host waits for a slot
		boots  int
	}{
		"another lock while it waits":      {reboot.Change{ID: next}, 20 * time.Second, true, 2},
		"another lock while it drains":     {reboot.Change{ID: next}, 20 * time.Second, false, 2},
		"another lock before it is Ready":  {reboot.Change{ID: next}, 130 * time.Second, false, 2},
		"a password file while it waits":   {reboot.Change{ID: moved}, 20 * time.Second, true, 2},
		"a password file while it drains":  {reboot.Change{ID: moved}, 20 * time.Second, false, 2},
		"reboots disabled while it waits":  {reboot.Change{ID: old, Disabled: true}, 20 * time.Second, true, 1},
		"reboots disabled while it drains": {reboot.Change{ID: next, Disabled: true}, 20 * time.Second, false, 1},
		"reboots disabled after the boot":  {reboot.Change{ID: next, Disabled: true}, 130 * time.Second, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inMachine(t, func(m *machine) {
				m.stop()
				m.change.ID = old
				m.agent()
				if c.lost {
					m.turn = reboot.Turn{Message: "held"}
				}
				m.asked()
				m.passes(c.after - 15*time.Second)
				m.stop()
				m.change = c.change
				m.change.Open = func(id reboot.LockID) (reboot.Lock, error) { return formerLock{id: id, m: m}, nil }
				m.refuses = errors.New("no route to host")
				m.agent()
				m.passes(30 * time.Second)
				m.locked(func() { m.refuses, m.turn = nil, reboot.Turn{Granted: true} })
				m.passes(20 * time.Minute)
				m.want(controlplane.RebootDone, "")
				m.locked(func() { m.released += len(m.returned) })
				m.clean()
				if former := c.change.ID.FleetLock != old.FleetLock; former && (len(m.returned) == 0 || m.returned[0] != old) || !former && len(m.returned) > 0 {
					t.Errorf("slots given back to an earlier lock = %+v, want its own: %t", m.returned, former)
				}
				if m.boot != c.boots {
					t.Errorf("boots = %d, want %d", m.boot, c.boots)
				}
			})
		})
	}
}
