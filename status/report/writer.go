package report

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/status"
)

// statusWriter is the last written status, and what happened to it since. turn guards it.
type statusWriter struct {
	written   *corev1.NodeStatus // nil if nothing was written since the Node was registered
	writtenAt time.Time
	// overwritten is whether the control plane has other conditions than were written. overruled
	// are those that it set Unknown, until they are written again.
	overwritten bool
	overruled   []corev1.NodeCondition
	added       added // written to a kubelet's Node
	pause       pause
}

// reset forgets what was written to a deleted Node.
func (w *statusWriter) reset() {
	w.written, w.overwritten, w.overruled = nil, false, nil
}

// due reports whether the status is worth a write.
func (w *statusWriter) due(next *corev1.NodeStatus, p Policy) bool {
	since := time.Since(w.writtenAt)
	return w.written == nil || since >= p.Rewrite ||
		w.overwritten && since >= p.Update || // not earlier, because the other client may do it again
		status.Changed(w.written, next)
}

// pause is the time until which the control plane requested to receive no writes. A shutdown's
// report ignores it.
type pause struct {
	until time.Time
	err   error
}

// pauseAfter returns the pause that the control plane requested with err, of at most limit, which
// is the interval of regular reports.
func pauseAfter(err error, limit time.Duration) pause {
	busy, asks := errors.AsType[*controlplane.BusyError](err)
	if !asks {
		return pause{}
	}
	return pause{until: time.Now().Add(wait.Jitter(min(busy.After, limit), controlplane.Retry().Jitter)), err: err}
}

// write registers the Node if necessary, and writes its status if it is worth a write. It returns
// whether it wrote anything.
func (r *Reporter) write(ctx context.Context, node *corev1.Node) (bool, error) {
	if !r.observation.remembered && starting(node) {
		// The stored status of this boot has more information than that of an agent that is
		// starting.
		return false, fmt.Errorf("read what was reported before: %w", r.observation.forgotten)
	}
	failure := r.view.failure()
	if errors.Is(failure, controlplane.ErrUnavailable) && r.registration.state == Registered { // the host may have been marked as lost meanwhile
		r.registration.to(Outdated)
	}
	if err := r.enroll(ctx, node); err != nil {
		if errors.Is(err, errAwaited) {
			return false, nil
		}
		return false, err
	}
	w := &r.writer
	if r.final.undelivered == nil && !r.cordons.pending() && !w.due(&node.Status, r.o.Policy) {
		return false, nil
	}
	r.correctOverruled(node)
	r.published.note(node.Status.Conditions)
	stored, err := r.send(ctx, node)
	if errors.Is(err, controlplane.ErrNotFound) {
		if w.written != nil {
			r.Changed() // register it again at once, but not repeatedly
		}
		r.gone(node.Name)
		return false, err
	}
	if other, taken := errors.AsType[*controlplane.IdentityError](err); taken {
		r.taken(other)
	}
	if err != nil {
		return false, err
	}
	w.written, w.writtenAt, r.observation.remembered = node.Status.DeepCopy(), time.Now(), true
	if failure != nil { // spreads the writes of a fleet that returns after an outage
		w.writtenAt = w.writtenAt.Add(-bounded.Random(r.o.Rewrite / 2))
	}
	if err := r.retire(ctx, stored, node); err != nil {
		w.written = nil // so that the next round writes everything again
		return false, err
	}
	return true, r.applyAndSettle(ctx, stored, node)
}

// starting reports whether the Node has only the status of an agent that is starting.
func starting(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Reason == status.ReasonStarting })
}

// send writes the status. If the final status of an earlier boot was not sent, it writes that
// first.
func (r *Reporter) send(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	if r.final.undelivered != nil {
		before := node.DeepCopy()
		before.Status = *r.final.undelivered
		_, err := r.o.Client.UpdateStatus(ctx, r.outgoing(before))
		switch {
		case errors.Is(err, controlplane.ErrForbidden), errors.Is(err, controlplane.ErrInvalid):
			r.o.Log.Warn("control plane rejected the final status of the last shutdown", "node", node.Name, "error", err)
		case err != nil:
			return nil, err
		default:
			r.o.Log.Info("wrote final status of the last shutdown", "node", node.Name)
		}
		r.final.undelivered = nil
	}
	return r.o.Client.UpdateStatus(ctx, r.outgoing(node))
}

// outgoing removes the addresses if a cloud controller manager sets them and has done so.
func (r *Reporter) outgoing(node *corev1.Node) *corev1.Node {
	if !r.options().ExternalCloud || !r.registration.addressed {
		return node
	}
	out := *node
	out.Status.Addresses = nil
	return &out
}

// overwritten reports whether the written conditions must be written again. The node lifecycle
// controller of a cluster sets them Unknown while a Node is unreachable, and does not reset them
// when only the Lease is renewed again. On other control planes they change only by mistake, or
// when a backup is restored.
func overwritten(stored, written []corev1.NodeCondition, exclusive bool) bool {
	return len(overruled(stored, written)) > 0 || exclusive && slices.ContainsFunc(written, func(w corev1.NodeCondition) bool {
		return !slices.ContainsFunc(stored, func(s corev1.NodeCondition) bool {
			return s.Type == w.Type && s.Status == w.Status && s.Reason == w.Reason
		})
	})
}

// overruled returns the conditions that the control plane has set Unknown.
func overruled(stored, written []corev1.NodeCondition) []corev1.NodeCondition {
	var list []corev1.NodeCondition
	for _, s := range stored {
		if s.Status == corev1.ConditionUnknown && slices.ContainsFunc(written, func(w corev1.NodeCondition) bool {
			return s.Type == w.Type && (s.Status != w.Status || s.Reason != w.Reason)
		}) {
			list = append(list, s)
		}
	}
	return list
}

// noteOverwritten records whether, since the last write, the control plane has marked the host as
// lost, or has other conditions. Before the first write, the host may have been lost earlier.
func (r *Reporter) noteOverwritten(stored, node *corev1.Node) {
	w := &r.writer
	if w.written == nil {
		w.overwritten, w.overruled = false, overruled(stored.Status.Conditions, node.Status.Conditions)
		return
	}
	before := w.overwritten
	w.overwritten = overwritten(stored.Status.Conditions, w.written.Conditions, r.reconciles())
	if !w.overwritten || before {
		return
	}
	if w.overruled = overruled(stored.Status.Conditions, w.written.Conditions); len(w.overruled) > 0 {
		r.o.Log.Info("control plane marked the host as lost, writing status again", "node", stored.Name)
		return
	}
	r.o.Log.Info("node status was changed by another client, writing it again", "node", stored.Name)
}

// correctOverruled gives conditions that the control plane has set Unknown a new transition time in
// the next write, although the host did not change. The stored conditions do change, and readers
// use their times; kubelet does the same.
func (r *Reporter) correctOverruled(node *corev1.Node) {
	now := metav1.NewTime(r.o.Now())
	var transitions []status.Transition
	for _, stored := range r.writer.overruled {
		i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == stored.Type && c.Status != stored.Status })
		if i >= 0 {
			node.Status.Conditions[i].LastTransitionTime = now
			transitions = append(transitions, status.Transition{Old: &stored, New: node.Status.Conditions[i]})
		}
	}
	r.writer.overruled = nil
	if len(transitions) == 0 {
		return
	}
	r.observation.conditions, r.observation.memory = node.Status.Conditions, r.observation.memory.Follow(node.Status.Conditions)
	if r.writer.written != nil { // otherwise the first check has reported them
		r.reportTransitions(node.Name, transitions)
	}
	r.view.setConditions(node.Status.Conditions)
}
