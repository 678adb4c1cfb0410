package maintenance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/caller"
	"hostler.io/hostler/internal/hint"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
)

// DrainPlan returns what a manual drain would do now.
func (d *Drainer) DrainPlan(ctx context.Context, req DrainRequest) (DrainPlan, error) {
	p, critical, err := d.o.Guard.PlanManualDrain(ctx, req.All)
	p.Message = d.o.OutOfReach()
	if err != nil { // the drain would still stop the known pods of a runtime that does not answer
		p.Message = strings.TrimSuffix(err.Error()+"; "+p.Message, "; ")
	}
	answer := DrainPlan{Plan: p, Node: d.o.Node, Critical: critical, Bound: metav1.Duration{Duration: p.Bound()}}
	if err := d.mayDrain(ctx); err != nil {
		answer.Refusal = err.Error()
	}
	return answer, nil
}

// mayDrain rejects a drain if a kubelet would start the pods again, or if another drain runs.
func (d *Drainer) mayDrain(ctx context.Context) error {
	d.o.Owners.Refresh(ctx) // a kubelet may have started since the last check
	// A kubelet that does not run starts no pods, even if it owns the Node.
	if mine, other, _ := d.o.Owners.Mine(owner.Node); !mine && other.Name == owner.Kubelet && !other.Absent {
		return &hint.Error{
			Message: "drain: the pods of this host are the kubelet's, which would start them again: " + other.Evidence,
			Hint:    fmt.Sprintf("use `kubectl drain %s --ignore-daemonsets`", d.o.Node),
		}
	}
	return refused(d.o.Guard.Refusal(ctx))
}

// refused adds a hint to the guard's errors.
func refused(err error) error {
	next := ""
	switch {
	case errors.Is(err, shutdown.ErrDelegated):
		next = "stop the pods with the tools of who guards the shutdown, such as `kubectl drain`"
	case errors.Is(err, shutdown.ErrShuttingDown), errors.Is(err, shutdown.ErrDrainsItself):
		next = "`hostler status` shows how far it is"
	case errors.Is(err, shutdown.ErrDraining):
		next = "`hostler status` shows how far it is; Ctrl-C where it was started ends it"
	default:
		return err
	}
	return &hint.Error{Message: err.Error(), Hint: next}
}

// Drain stops pods because a user requested it. It cordons the Node first, and leaves it cordoned,
// like `kubectl drain`.
func (d *Drainer) Drain(ctx context.Context, req DrainRequest, progress func(DrainStep)) (DrainReport, error) {
	report := DrainReport{Node: d.o.Node}
	if err := d.mayDrain(ctx); err != nil {
		return report, err
	}
	if mine, other, _ := d.o.Owners.Mine(owner.Node); !mine {
		report.Message = "not cordoned, there is no Node of hostler's: " + other.Evidence
	} else {
		cordoned, err := d.Cordon(ctx, true)
		if err != nil {
			return report, fmt.Errorf("drain: no pod was stopped: %w", err)
		}
		report.Unschedulable, report.Message = true, cordoned.Message
	}

	who, what, demand := caller.Name(ctx), "all pods but critical ones", shutdown.Demand{Trigger: journal.TriggerManual}
	if req.All {
		what, demand.Trigger = "all pods", journal.TriggerManualAll
	}
	steps := newStepReporter(progress)
	record, err := d.stopPods(ctx, demand, who, fmt.Sprintf("%s asked to stop %s", who, what), steps.take)
	steps.finish(record)
	report.Record = record
	if errors.Is(err, shutdown.ErrCancelled) && ctx.Err() == nil {
		err = &hint.Error{Message: "drain: a shutdown of the host, or the end of the agent, has cut it short", Hint: "`hostler status` shows how far a shutdown is"}
	}
	return report, err
}

// stopPods executes a drain, and records it and its Events. It calls progress with the record at
// every step.
func (d *Drainer) stopPods(ctx context.Context, demand shutdown.Demand, who, announcement string, progress func(*journal.Record)) (journal.Record, error) {
	node := controlplane.NodeReference(d.o.Node)
	begin := sync.OnceFunc(func() { // called at the first step, because the guard may reject the drain
		d.o.Log.Info("drain", "by", who, "all", demand.All || !demand.Trigger.SkipsCritical())
		d.o.Recorder.Record(node, corev1.EventTypeNormal, "DrainStarted", announcement)
	})
	record, err := d.o.Guard.DrainOnDemand(ctx, demand, func(r *journal.Record) {
		begin()
		d.o.Drained.Take(r, time.Now())
		d.o.Journal.PutDrained(r)
		progress(r)
	})
	d.o.Drained.Take(&record, time.Now())
	if away := d.o.OutOfReach(); away != "" && err == nil { // the pods of these runtimes still run
		record.Graceful, record.Error = false, strings.TrimPrefix(record.Error+"; "+away, "; ")
	}
	final := record // a copy: the journal's record must not change any more
	record.Earlier = d.o.Journal.PutDrained(&final)
	if r := d.o.Journal.Drained(); r != nil && r.StartedAt.Equal(record.StartedAt) && !r.UndoneAt.IsZero() {
		if _, err := d.Undo(context.WithoutCancel(ctx), Order{Began: record.StartedAt}); err != nil { // start what a runtime has stopped since, too
			d.o.Log.Warn("undone drain not stored", "error", err)
		}
	}
	switch {
	case err != nil && record.StartedAt.IsZero():
		return record, refused(err)
	case err != nil:
		d.o.Log.Warn("drain ended early", "by", who, "error", err)
		d.o.Recorder.Record(node, corev1.EventTypeWarning, "DrainEndedEarly", record.Tally())
		return record, err
	}
	d.o.Log.Info("drained", "by", who, "graceful", record.Graceful, "pods", PodsToStop(record), "killed", record.Killed())
	kind, reason := corev1.EventTypeNormal, "DrainFinished"
	if !record.Graceful {
		kind, reason = corev1.EventTypeWarning, "DrainIncomplete"
	}
	d.o.Recorder.Record(node, kind, reason, fmt.Sprintf("%s in %s", record.Tally(), record.FinishedAt.Sub(record.StartedAt).Round(time.Millisecond)))
	return record, nil
}

// stepReporter reports each finished pod of a drain. A slow progress function does not delay the
// drain.
type stepReporter struct {
	progress func(DrainStep)
	latest   chan *journal.Record // holds the newest state of the drain
	ended    chan struct{}
	reported map[string]journal.Outcome // by runtime and ID
	done     int                        // the reported pods that count in Total
	waiting  bool                       // Waiting was reported
}

func newStepReporter(progress func(DrainStep)) *stepReporter {
	t := &stepReporter{progress: progress, latest: make(chan *journal.Record, 1), ended: make(chan struct{}), reported: map[string]journal.Outcome{}}
	go func() {
		defer close(t.ended)
		for r := range t.latest {
			t.report(r)
		}
	}()
	return t
}

// take gets the drain's record at every step, from one goroutine. It does not block: a newer record
// replaces an unread one.
func (t *stepReporter) take(r *journal.Record) {
	select {
	case <-t.latest:
	default:
	}
	t.latest <- r // does not block: there is no other sender
}

// finish reports the rest, and returns when everything is reported.
func (t *stepReporter) finish(r journal.Record) {
	t.take(&r)
	close(t.latest)
	<-t.ended
}

func (t *stepReporter) report(r *journal.Record) {
	total := PodsToStop(*r)
	for _, p := range r.Pods {
		id := p.Runtime + "/" + p.ID
		before := t.reported[id]
		if p.Outcome == "" || before != "" && (before == p.Outcome || p.Outcome != journal.Left) {
			continue // already reported; a pod that runs again after its stop is reported again
		}
		if p.Outcome == journal.Skipped && !r.CancelledAt.IsZero() {
			continue // the drain was cancelled before it reached this pod
		}
		t.reported[id] = p.Outcome
		if p.Outcome != journal.Skipped && before == "" {
			t.done++
		}
		t.progress(DrainStep{PodRecord: p, Done: t.done, Total: total})
	}
	if r.Watching && !t.waiting {
		t.waiting = true
		t.progress(DrainStep{Waiting: fmt.Sprintf("checking for %v that nothing starts a stopped container again", shutdown.ReturnWatch), Done: t.done, Total: total})
	}
}
