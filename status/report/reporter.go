package report

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
)

// WriteTimeout bounds one write to the control plane.
const WriteTimeout = 10 * time.Second

// slowAnswer is how long the control plane may take to answer before the state of a shutdown is
// also written to the disk.
const slowAnswer = 20 * time.Millisecond

// Reporter keeps the Node up to date on the control plane. It measures the host, registers the
// Node, writes its status on change and regularly, and records an Event of each condition's
// transition. It is safe for concurrent use.
type Reporter struct {
	o Options

	watched     chan *corev1.Node // has the last Node that the watch saw; nil if it was deleted
	nextWatched time.Time         // when the next of them is judged; owned by Run's goroutine

	view
	cordons *cordons

	turn         *turn // guards the fields below
	published    *published
	observation  observation
	registration registration
	writer       statusWriter
	final        final
}

// New returns a reporter that has reported nothing yet. It reads an operator's stored requests.
func New(o Options) *Reporter {
	cordons := newCordons(o.Notes, o.Log)
	o.Log = o.Log.With("component", "status")
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Changed == nil {
		o.Changed = loop.NewSignal()
	}
	never := func() bool { return false }
	if o.Beside == nil {
		o.Beside = never
	}
	if o.Rebooting == nil {
		o.Rebooting = never
	}
	r := &Reporter{
		o: o, cordons: cordons, published: newPublished(o.Store, o.Log),
		watched: make(chan *corev1.Node, 1), turn: newTurn(),
	}
	if d := r.Left(); d != nil {
		r.view.wait(d.String())
	}
	return r
}

// options returns the effective configuration, with an operator's cordon.
func (r *Reporter) options() status.Options {
	o := r.o.Node()
	o.Unschedulable = r.cordons.wanted(o.Unschedulable)
	return o
}

// Changed requests a check of the host now.
func (r *Reporter) Changed() { r.o.Changed.Send() }

// Run measures and writes until ctx ends. It calls heartbeat with the result of each round.
func (r *Reporter) Run(ctx context.Context, heartbeat func(error)) error {
	tick := time.NewTicker(r.o.Update)
	defer tick.Stop()
	failing := false
	for {
		err := r.once(ctx, nil)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errPreempted) {
			err = nil // the report of the shutdown returns its own error
		}
		heartbeat(err)
		switch {
		case err != nil && !failing:
			r.o.Log.Warn("cannot write node status, retrying", "error", err)
		case err == nil && failing:
			r.o.Log.Info("node status writable again")
		}
		switch {
		case err != nil: // so that a fleet does not return all at once
			tick.Reset(r.o.Update/2 + bounded.Random(r.o.Update/2))
		case failing:
			tick.Reset(r.o.Update)
		}
		failing = err != nil
		if err := r.pause(ctx, tick.C); err != nil {
			return err
		}
	}
}

// watchInterval and watchBurst limit how many Nodes of the watch are judged, because the control plane
// sets its pace. The last one replaces those before.
const (
	watchInterval = time.Second
	watchBurst    = 10
)

// pause waits until the next round is due. Meanwhile it judges Nodes that the watch saw.
func (r *Reporter) pause(ctx context.Context, tick <-chan time.Time) error {
	for {
		watched := r.watched
		var due <-chan time.Time
		if delay := time.Until(r.nextWatched); delay > 0 {
			watched, due = nil, time.After(delay)
		}
		select {
		case <-tick:
			return nil
		case <-r.o.Changed:
			return nil
		case <-due:
		case seen := <-watched:
			if oldest := time.Now().Add(-watchBurst * watchInterval); r.nextWatched.Before(oldest) {
				r.nextWatched = oldest
			}
			r.nextWatched = r.nextWatched.Add(watchInterval)
			_, release, err := r.turn.take(ctx, false)
			if err != nil {
				return err
			}
			news := r.judge(seen)
			release()
			if news {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ReportShutdown immediately writes the status of the shutdown guard, and returns when it is
// stored. It interrupts a round in progress, and comes before waiting ones. If the control plane
// does not receive the status, it is stored for the next boot. It implements shutdown.Reporter.
func (r *Reporter) ReportShutdown(ctx context.Context, s shutdown.Status) error {
	return r.once(ctx, &s)
}

// once measures the host and writes what is worth a write.
func (r *Reporter) once(ctx context.Context, guarded *shutdown.Status) error {
	work, release, err := r.turn.take(ctx, guarded != nil)
	if err != nil {
		return fmt.Errorf("report the node's status: %w", err)
	}
	defer release()
	return preempted(work, r.round(work, guarded))
}

// round is once for a caller that has the turn.
func (r *Reporter) round(ctx context.Context, guarded *shutdown.Status) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("report the node's status: %w", err)
	}
	r.final.load(r.o)
	mine, beside := r.o.Mine() && r.Left() == nil, r.besideKubelet()
	if (mine || beside) && !r.observation.remembered {
		r.remember(ctx, beside)
	}
	options := r.options()
	facts := r.o.Facts.Now(ctx, guarded)
	if err := ctx.Err(); err != nil { // a measurement that was cancelled says nothing about the host
		return fmt.Errorf("report the node's status: %w", err)
	}
	node := r.observe(facts, options, beside)
	r.view.see(node, facts, options.ExternalCloud && r.registration.known != nil)
	r.registration.wanted = &corev1.Node{
		ObjectMeta: *node.ObjectMeta.DeepCopy(), Spec: corev1.NodeSpec{Taints: slices.Clone(node.Spec.Taints)},
		Status: corev1.NodeStatus{NodeInfo: node.Status.NodeInfo},
	}
	if !mine {
		r.leaveToOwner()
	}
	if !beside {
		r.writer.added = added{}
	}
	if mine && facts.Draining.Active {
		r.final.keep(r.o, node.Status)
	}
	if guarded != nil {
		defer r.flushIfSlow()()
	} else if time.Now().Before(r.writer.pause.until) {
		return r.writer.pause.err
	}
	write := r.write
	switch {
	case beside:
		write = r.add
	case !mine:
		return nil
	}
	writing, cancel := context.WithTimeout(ctx, WriteTimeout)
	defer cancel()
	wrote, err := write(writing, node)
	if (wrote || err != nil) && !errors.Is(context.Cause(ctx), errPreempted) {
		r.o.Observe(err)
		r.view.contact(err)
		r.writer.pause = pauseAfter(err, r.o.Rewrite)
	}
	if err == nil && mine && r.view.waiting() == "" {
		r.final.forget(r.o)
	}
	return err
}

// event records an Event of the Node.
func (r *Reporter) event(kind, reason, message string) {
	r.o.Recorder.Record(controlplane.NodeReference(r.options().Name), kind, reason, message)
}

// flushIfSlow writes the state to disk while a request to the control plane is in progress, because
// the request may use all remaining time. Nobody waits for it: ShutdownReporter flushes at the end.
// If the control plane answers quickly, that is the only flush. The caller calls stop after the
// answer.
func (r *Reporter) flushIfSlow() (stop func() bool) {
	return time.AfterFunc(slowAnswer, func() {
		if r.o.Flush != nil {
			_ = r.o.Flush() // Folder.Health reports the error
		}
	}).Stop
}
