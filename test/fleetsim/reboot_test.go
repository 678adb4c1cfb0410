package fleetsim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store/memory"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/loop"
	record "hostler.io/hostler/shutdown/journal"
)

// The commands of a host. They wait for the driver as requests to the store do.
const (
	commandDrain  memory.Call = "Drain"
	commandReboot memory.Call = "Reboot"
	commandFlush  memory.Call = "Flush"
	commandCordon memory.Call = "Cordon"
	commandUndo   memory.Call = "Undo"
)

// commandTime is how long a reboot command may take, as in package reboot.
const commandTime = time.Minute

// rebooter is the host that the reboot controller of an agent sees.
type rebooter struct {
	a *agent
	// Until then, a reboot would harm, and containers do not run again after the last one.
	held, starting time.Time
}

// addReboots adds the controller that reboots the host.
func (a *agent) addReboots() {
	random, memory := a.h.w.plan.draw("after boot", a.h.name, a.h.boot), file{a, "reboot"}
	after := func() time.Time {
		return a.h.booted.Add(time.Duration(random.IntN(4)/3) * between(random, 10*time.Second, 90*time.Second))
	}
	r := rebooter{a, after(), after()} // both in every fourth boot
	machine := a.h.machine()
	a.reboot = reboot.New(reboot.Options{
		Node: a.h.name, Boot: machine.BootID, Policy: func() reboot.Policy { return reboot.Policy{ReadyFor: 20 * time.Second} },
		Host: r, Lock: reboot.Server{}, Client: a.client, Machine: controlplane.Identity{MachineID: machine.MachineID, SystemUUID: machine.SystemUUID},
		Store: memory, Flush: a.flusher("reboot"), Now: time.Now, Announce: func(string, string, string) {}, Log: a.h.w.journal.logger(a.h.name),
	})
	a.add("reboot", func(ctx context.Context, _ *loop.Loop) error { return a.reboot.Run(ctx) })
}

// Wanted implements reboot.Host.
func (r rebooter) Wanted() (wanted, undecided []reboot.Finding) {
	if r.a.h.wants() {
		wanted = []reboot.Finding{{Source: "/run/reboot-required", New: true}} // a boot removes it
	}
	return wanted, nil
}

// Held implements reboot.Host.
func (r rebooter) Held() (all []reboot.Finding) {
	if time.Now().Before(r.held) {
		all = append(all, reboot.Finding{Source: "runtime containerd", Message: "it is not ready"})
	}
	return all
}

// Drain implements reboot.Host.
func (r rebooter) Drain(ctx context.Context, _ string, began time.Time, all bool, note func(time.Time) error) (record.Record, error) {
	if began.IsZero() {
		began = time.Now()
	}
	if err := note(began); err != nil {
		return record.Record{}, err
	}
	return r.a.stopPods(ctx, commandDrain, all, func() error {
		r.a.h.w.truth.drains(r.a.h, all)
		return nil
	})
}

// stopPods runs a drain. Pods that still run are no error.
func (a *agent) stopPods(ctx context.Context, c memory.Call, critical bool, begins func() error) (record.Record, error) {
	err := a.command(ctx, c, begins)
	left := errors.Is(err, errLeft)
	if err == nil || left {
		err = bounded.Sleep(ctx, a.h.drainTime(critical))
	}
	return record.Record{Graceful: err == nil && !left}, err
}

// drainTime is how long pods take to end. Some take long, so that much happens meanwhile; critical pods do not.
func (h *host) drainTime(critical bool) time.Duration {
	took := time.Duration(3+h.boot%7) * time.Second
	if r := h.w.plan.draw("drain", h.name, h.boot); !critical && r.IntN(3) == 0 {
		took += between(r, 20*time.Second, 50*time.Second)
	}
	return took
}

// request returns the request on the disk; nil if there is none.
func (d *disk) request() *reboot.Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	var m reboot.Memory
	_ = json.Unmarshal(d.files["reboot"], &m) // empty before the first one
	return m.Request
}

// Undo implements reboot.Host.
func (r rebooter) Undo(ctx context.Context, _ time.Time) error {
	return r.a.command(ctx, commandUndo, func() error { return nil })
}

// Cordon implements reboot.Host.
func (r rebooter) Cordon(ctx context.Context) error {
	if r.EmptiedByServer() {
		return nil
	}
	return r.a.cordoner.CordonToReboot(ctx)
}

// Uncordon implements reboot.Host.
func (r rebooter) Uncordon(ctx context.Context) error {
	if r.EmptiedByServer() {
		return nil
	}
	return r.a.cordoner.UncordonAfterReboot(ctx)
}

// EmptiedByServer implements reboot.Host.
func (r rebooter) EmptiedByServer() bool { return r.a.h.w.plan.Kubelets }

// NodeBlocked implements reboot.Host.
func (r rebooter) NodeBlocked() string { return "" }

// HasNode implements reboot.Host.
func (r rebooter) HasNode() bool { return r.a.reporter.Left() == nil }

// Left implements reboot.Host.
func (r rebooter) Left() bool { return r.a.reporter.Left() != nil }

// ShutdownPending implements reboot.Host.
func (r rebooter) ShutdownPending(context.Context, time.Time) (string, error) {
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	if !r.a.commanded.IsZero() {
		return "the host is shutting down", nil
	}
	return "", nil
}

// NotStarted implements reboot.Host.
func (r rebooter) NotStarted() (names []string) {
	if time.Now().Before(r.starting) {
		names = append(names, "web")
	}
	return names
}

// Unknown implements reboot.Host.
func (rebooter) Unknown() string { return "" }

// GoingDown implements reboot.Host.
func (r rebooter) GoingDown() bool {
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	return !r.a.commanded.IsZero() && time.Since(r.a.commanded) >= r.a.h.w.plan.noticeTime(r.a.h)
}

// noticeTime is how long an agent may take to receive the signal of a shutdown that has started: systemd knows it before.
func (p plan) noticeTime(h *host) time.Duration {
	return time.Duration(p.draw("notice", h.name, h.boot).IntN(4)/3) * time.Second
}

// Reboot implements reboot.Host.
func (r rebooter) Reboot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	return r.a.command(ctx, commandReboot, func() error {
		r.a.mu.Lock()
		r.a.commanded = time.Now()
		r.a.mu.Unlock()
		r.a.h.reboots(r.a.reboot.Report().Request)
		return nil
	})
}

// stays records that a reboot command ends, and the host does not go down.
func (w *world) stays(h *host, how fate) {
	if how == ignored {
		h.power.ignored = time.Now()
	}
	w.meets(whenStays, h.name, false)
}

// reboots shuts the host down, and starts it again a while later. Only the driver's goroutine calls it.
func (h *host) reboots(r *reboot.Request) {
	w := h.w
	w.truth.commanded(h, r)
	down := time.Duration(2+h.boot%4) * time.Second
	up := down + time.Duration(w.plan.draw("boot", h.name, h.boot).IntN(60)+10)*time.Second
	passed, boot := time.Since(w.start), h.boot
	h.power.commanded = boot
	w.at(passed+down, h.name+" is down for its reboot", func() {
		if h.boot == boot {
			h.dies()
			h.power.off = true
			w.meets(whenDown, h.name, false)
		}
	})
	w.at(passed+up, h.name+" has booted again", func() {
		if h.boot == boot && w.active[fmt.Sprint(hostDies, "/", h.name, "/")] == 0 {
			h.bootsAgain()
		}
	})
}
