package report

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/wait"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/bounded"
)

// Watch follows the stored Node until ctx ends, so that changes by other clients are noticed
// immediately. It wakes Run, which reads the Node again, because the watched state may be older
// than the last write. It calls heartbeat with results. Only one Watch may run at a time.
func (r *Reporter) Watch(ctx context.Context, watcher controlplane.NodeWatcher, heartbeat func(error)) error {
	backoff, failing := controlplane.Retry(), false
	for {
		started := time.Now()
		err := r.watchOnce(ctx, watcher, func() {
			if failing {
				r.o.Log.Info("watch of the node restored")
			}
			failing = false
			heartbeat(nil)
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		heartbeat(err)
		if !failing {
			r.o.Log.Warn("cannot watch node, changes by others are seen at the next write only", "error", err)
		}
		failing = true
		if time.Since(started) > controlplane.Retry().Cap {
			backoff = controlplane.Retry()
		}
		// A restart of the control plane ends the watches of all hosts at once.
		pause := max(backoff.Step(), bounded.Random(r.o.Update))
		if busy, ok := errors.AsType[*controlplane.BusyError](err); ok {
			// Nobody waits for the watch, so it can pause as long as the control plane asks.
			pause = max(pause, wait.Jitter(min(busy.After, r.o.Rewrite), controlplane.Retry().Jitter))
		}
		if bounded.Sleep(ctx, pause) != nil {
			return ctx.Err()
		}
	}
}

// watchOnce follows the Node until the watch ends, and returns the cause. It calls answered with
// each Node that it sees.
func (r *Reporter) watchOnce(ctx context.Context, watcher controlplane.NodeWatcher, answered func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen, ended := make(chan *corev1.Node), make(chan error, 1)
	go func() { ended <- watcher.WatchNode(ctx, r.options().Name, seen) }()
	for {
		select {
		case node := <-seen:
			answered()
			select {
			case <-r.watched: // not read by Run yet; the new one replaces it
			default:
			}
			r.watched <- node
		case err := <-ended:
			return err
		}
	}
}

// judge handles a Node that the watch saw, nil if it was deleted, and reports whether a round is
// needed. The caller has the turn.
func (r *Reporter) judge(seen *corev1.Node) (news bool) {
	g := &r.registration
	if seen != nil {
		r.reportStored(seen)
	}
	switch {
	case g.known == nil: // if another client creates an awaited Node, a round registers it
		return seen != nil && r.view.waiting() != ""
	case r.isNews(seen):
		g.to(Outdated)
		return true
	case !equality.Semantic.DeepEqual(g.known.Spec.Taints, seen.Spec.Taints):
		// Taints are derived from known values, so the Node need not be read.
		known := *g.known
		known.Spec.Taints = seen.Spec.Taints
		g.known = &known
		r.view.setTaints(seen.Spec.Taints)
		r.reportTaints(seen.Spec.Taints)
	}
	return false
}

// isNews reports whether the watched Node differs from the known one in a field that hostler uses.
func (r *Reporter) isNews(seen *corev1.Node) bool {
	known, wanted := r.registration.known, r.registration.wanted
	return seen == nil || seen.UID != known.UID || controlplane.CheckOwner(seen, wanted) != nil ||
		seen.Spec.Unschedulable != known.Spec.Unschedulable ||
		seen.Annotations[controlplane.AnnotationLeaseDuration] != known.Annotations[controlplane.AnnotationLeaseDuration] ||
		seen.Annotations[controlplane.AnnotationSameMachine] != known.Annotations[controlplane.AnnotationSameMachine] ||
		!equality.Semantic.DeepEqual(decided(seen.Spec.Taints), decided(known.Spec.Taints)) ||
		!slices.Equal(r.drift(seen, wanted), r.drift(known, wanted)) ||
		r.writer.written != nil && overwritten(seen.Status.Conditions, r.writer.written.Conditions, r.reconciles())
}

// decided returns the taints that somebody set on purpose.
func decided(taints []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool { return controlplane.Passing(t.Key) })
}
