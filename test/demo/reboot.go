package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status"
	"hostler.io/hostler/systemd/systemdtest"
)

// slack is the delay that a busy machine may add.
const slack = 2 * time.Second

// moment is an entry of the timeline.
type moment struct {
	at   time.Time
	text string
}

// showShutdown requests a reboot from logind and shows what happens.
func (h *host) showShutdown(ctx context.Context) error {
	if err := errors.Join(h.show(ctx, "ps"), h.show(ctx, "shutdown", "plan")); err != nil {
		return err
	}
	if err := h.checkLock(ctx, true); err != nil {
		return err
	}
	listening, stopListening := context.WithCancel(ctx)
	defer stopListening()
	announced, err := h.login.Announced(listening)
	if err != nil {
		return err
	}

	h.out.printf("Now logind is asked for a reboot, over D-Bus as `systemctl reboot` does.")
	asked := time.Now()
	if err := h.login.Reboot(ctx); err != nil {
		return err
	}
	draining, notReady, err := h.catchDraining(ctx)
	if err != nil {
		return err
	}
	if err := h.show(ctx, "status"); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, gracePeriod+10*time.Second)
	defer cancel()
	reboot, err := h.login.Manager.AwaitStart(waiting, "reboot.target", asked)
	if err != nil {
		return fmt.Errorf("expected: logind goes on with the reboot; %w", err)
	}
	s, err := h.awaitStatus(ctx, 5*time.Second, "the shutdown guard in state Released", func(s api.Status) (bool, string) {
		return s.Shutdown.State == shutdown.Released && s.Shutdown.Current != nil, s.Shutdown.State.String()
	})
	if err != nil {
		return err
	}
	var prepared time.Time
	select {
	case prepared = <-announced:
	default:
	}
	exits, err := h.exits(ctx)
	if err != nil {
		return err
	}

	h.timeline(asked, prepared, draining, notReady, reboot, exits, s.Shutdown.Current)
	h.out.checks()
	ready := condition(draining.Node, corev1.NodeReady)
	h.out.check(!prepared.IsZero(), "logind sent PrepareForShutdown", "it sent nothing")
	h.out.check(ready.Reason == status.ReasonDraining, "while draining the Node is not ready: "+ready.Message, "the reason is %q", ready.Reason)
	h.checkStops(exits, s.Shutdown.Current)
	h.checkRelease(asked, reboot, exits)
	if err := h.checkLock(ctx, false); err != nil {
		return err
	}
	return h.show(ctx, "status")
}

// catchDraining returns the status at a moment when pods are being stopped and the Node shows it,
// and when that was first seen.
func (h *host) catchDraining(ctx context.Context) (api.Status, time.Time, error) {
	s, err := h.awaitStatus(ctx, gracePeriod, "the Node not ready while the guard drains", func(s api.Status) (bool, string) {
		ready := condition(s.Node, corev1.NodeReady)
		return s.Shutdown.State == shutdown.Draining && ready.Status == corev1.ConditionFalse,
			fmt.Sprintf("shutdown %s, Ready=%s %s", s.Shutdown.State, ready.Status, ready.Reason)
	})
	return s, time.Now(), err
}

// exits returns how each pod's container ended, from containerd.
func (h *host) exits(ctx context.Context) (map[string]*cri.ContainerStatus, error) {
	exits := map[string]*cri.ContainerStatus{}
	for _, a := range h.workload.pods {
		c, err := h.containerd.Container(ctx, a.container())
		if err != nil {
			return nil, err
		}
		exits[a.title()] = c
	}
	return exits, nil
}

func finished(c *cri.ContainerStatus) time.Time {
	if c.State != cri.ContainerState_CONTAINER_EXITED {
		return time.Now() // not ended yet
	}
	return time.Unix(0, c.FinishedAt)
}

// lastExit returns when the last container ended.
func lastExit(exits map[string]*cri.ContainerStatus) (last time.Time) {
	for _, c := range exits {
		if at := finished(c); at.After(last) {
			last = at
		}
	}
	return last
}

// timeline prints what happened and when, from logind, containerd, the service manager and the
// agent's journal.
func (h *host) timeline(asked, prepared time.Time, draining api.Status, notReady time.Time, reboot systemdtest.StartedUnit, exits map[string]*cri.ContainerStatus, record *journal.Record) {
	ready := condition(draining.Node, corev1.NodeReady)
	moments := []moment{
		{asked, "logind is asked for a reboot"},
		{prepared, "logind announces it: PrepareForShutdown(true)"},
		{notReady, fmt.Sprintf("hostler status says Ready=%s, %s", ready.Status, ready.Reason)},
		{reboot.Time, fmt.Sprintf("the lock is released: logind starts %s", reboot.Name)},
		{asked.Add(gracePeriod), "here the configured period would have ended"},
	}
	for _, p := range record.Pods {
		title := p.Namespace + "/" + p.Name
		moments = append(moments, moment{p.StartedAt, fmt.Sprintf("%s: asked to stop, phase %s, %s at the most", title, p.Phase, p.Grace.Duration)})
		if c := exits[title]; c != nil {
			moments = append(moments, moment{finished(c), fmt.Sprintf("%s: ended with code %d: %s", title, c.ExitCode, p.Outcome)})
		}
	}
	moments = slices.DeleteFunc(moments, func(m moment) bool { return m.at.IsZero() })
	slices.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	lines := make([]string, len(moments))
	for i, m := range moments {
		lines[i] = fmt.Sprintf("%+9.3fs  %s", m.at.Sub(asked).Seconds(), m.text)
	}
	h.out.lines(lines...)
}

// checkStops checks how each pod was stopped: its time, its end, and the order of phases.
func (h *host) checkStops(exits map[string]*cri.ContainerStatus, record *journal.Record) {
	var lastRegular, firstCritical time.Time
	stops := map[string]journal.PodRecord{}
	for _, p := range record.Pods {
		stops[p.Namespace+"/"+p.Name] = p
	}
	for _, a := range h.workload.pods {
		exit, stop := exits[a.title()], stops[a.title()]
		took := finished(exit).Sub(stop.StartedAt)
		// The journal and containerd each read the clock separately.
		within := func(want time.Duration) bool { return took > want-50*time.Millisecond && took < want+slack }
		seen := fmt.Sprintf("it took %s, ended with code %d, and the journal says %q", took, exit.ExitCode, stop.Outcome)
		if a.takes > 0 {
			h.out.check(exit.ExitCode == 0 && stop.Outcome == journal.Stopped && within(a.takes),
				fmt.Sprintf("%s got the %s it needed of its %s", a.title(), a.takes, stop.Grace.Duration), "%s", seen)
		} else {
			h.out.check(exit.ExitCode == 137 && stop.Outcome == journal.Killed && within(a.grace),
				fmt.Sprintf("%s ignored SIGTERM and was killed after its %s", a.title(), a.grace), "%s", seen)
		}
		switch {
		case a.critical && (firstCritical.IsZero() || stop.StartedAt.Before(firstCritical)):
			firstCritical = stop.StartedAt
		case !a.critical && finished(exit).After(lastRegular):
			lastRegular = finished(exit)
		}
	}
	h.out.check(!firstCritical.Before(lastRegular), "critical pods were left alone until the last regular one had ended",
		"the first critical one was stopped %s before that", lastRegular.Sub(firstCritical))
	h.out.check(len(record.Pods) == len(h.workload.pods), "the journal has every pod", "it has %d of %d", len(record.Pods), len(h.workload.pods))
}

// checkRelease checks that the shutdown continued when the last container had ended.
func (h *host) checkRelease(asked time.Time, reboot systemdtest.StartedUnit, exits map[string]*cri.ContainerStatus) {
	after, early := reboot.Time.Sub(lastExit(exits)), gracePeriod-reboot.Time.Sub(asked)
	h.out.check(after >= 0 && after < slack && early > 3*time.Second,
		fmt.Sprintf("the reboot went on %s after the last container was gone, %s before the period's end", after.Round(time.Millisecond), early.Round(100*time.Millisecond)),
		"it went on %s after the last container was gone and %s before the period's end", after, early)
}

// checkLock compares logind's locks with the expected ones, and how long logind waits for them.
func (h *host) checkLock(ctx context.Context, held bool) error {
	locks, err := h.login.Inhibitors(ctx)
	if err != nil {
		return err
	}
	var lines []string
	for _, l := range locks {
		lines = append(lines, fmt.Sprintf("  %s: %s lock on %s, pid %d: %s", l.Who, l.Mode, l.What, l.PID, l.Why))
	}
	stored := h.manager.Stored()
	if !held {
		h.out.check(len(locks) == 0 && len(stored) == 0, "no lock is left, neither with logind nor with the service manager", "there are %s and %v", strings.Join(lines, "; "), stored)
		return nil
	}
	delay, err := h.login.InhibitDelayMax(ctx)
	if err != nil {
		return err
	}
	h.out.printf("Asked for its inhibitor locks, logind lists:")
	h.out.lines(lines...)
	h.out.checks()
	h.out.check(len(locks) == 1 && locks[0].Who == "hostler" && locks[0].Mode == "delay" && locks[0].What == "shutdown", "hostler holds a delay lock on shutdown", "logind lists: %s", strings.Join(lines, "; "))
	h.out.check(len(stored) == 1, "a copy of it is in the service manager's keeping, should the agent crash", "it keeps %v", stored)
	h.out.check(delay >= gracePeriod, fmt.Sprintf("logind will wait %s for it; its own default would be 5s", delay), "it will wait %s", delay)
	return nil
}
