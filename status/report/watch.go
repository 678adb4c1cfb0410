package report

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/status"
)

// Watch follows the stored Node, so that what somebody else changes is taken in as
// it happens, until ctx ends. What it hears is a reason to read the Node, and no
// more: it may be older than what was written since. beat is told how it goes.
func (r *Reporter) Watch(ctx context.Context, watcher controlplane.NodeWatcher, beat func(error)) error {
	backoff, failing := controlplane.Retry(), false
	for {
		started := time.Now()
		err := r.watchOnce(ctx, watcher, func() {
			if failing {
				r.o.Log.Info("changes to the node by others are seen as they happen again")
			}
			failing = false
			beat(nil)
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		beat(err)
		if !failing {
			r.o.Log.Warn("changes to the node by others are seen with the next write only, until it can be watched again", "error", err)
		}
		failing = true
		if time.Since(started) > controlplane.Retry().Cap {
			backoff = controlplane.Retry()
		}
		// A control plane that restarts ends every host's watch at once.
		pause := max(backoff.Step(), rand.N(r.o.Update))
		if busy, ok := errors.AsType[*controlplane.BusyError](err); ok {
			// Nobody waits for the watch, so that it can wait as long as it is asked to.
			pause = max(pause, wait.Jitter(min(busy.After, r.o.Rewrite), controlplane.Retry().Jitter))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watchOnce follows the Node until the watch ends, and says why. It calls heard
// for each word.
func (r *Reporter) watchOnce(ctx context.Context, watcher controlplane.NodeWatcher, heard func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen, ended := make(chan *corev1.Node), make(chan error, 1)
	go func() { ended <- watcher.WatchNode(ctx, r.options().Name, seen) }()
	for {
		select {
		case node := <-seen:
			heard()
			r.notice(node)
		case err := <-ended:
			return err
		}
	}
}

// notice has the Node read if what is seen of it is news.
func (r *Reporter) notice(seen *corev1.Node) {
	r.mu.Lock()
	known, wanted, said, waits := r.known, r.wanted, r.said, r.standing.Waits != ""
	r.mu.Unlock()
	switch {
	case known == nil && (seen == nil || !waits): // registering finds out
	case known == nil: // somebody has created it
		r.Changed()
	case r.news(known, seen, wanted) || r.undone(seen.Status.Conditions, said):
		r.hint.Store(true)
		r.Changed()
	case !equality.Semantic.DeepEqual(known.Spec.Taints, seen.Spec.Taints):
		r.follow(seen)
	}
}

// follow takes in taints that follow from what is known, as they are seen.
func (r *Reporter) follow(seen *corev1.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || r.known.UID != seen.UID {
		return // it has left meanwhile
	}
	known := *r.known // which others may hold
	known.Spec.Taints = seen.Spec.Taints
	r.known, r.node.Spec.Taints = &known, seen.Spec.Taints
}

// decided are the taints that somebody has decided on.
func decided(taints []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool { return controlplane.Passing(t.Key) })
}

// news tells whether what is seen differs from what is known in anything that
// hostler goes by.
func (r *Reporter) news(known, seen, wanted *corev1.Node) bool {
	return seen == nil || seen.UID != known.UID || controlplane.CheckOwner(seen, wanted) != nil ||
		seen.Spec.Unschedulable != known.Spec.Unschedulable ||
		seen.Annotations[controlplane.AnnotationLeaseDuration] != known.Annotations[controlplane.AnnotationLeaseDuration] ||
		!equality.Semantic.DeepEqual(decided(seen.Spec.Taints), decided(known.Spec.Taints)) ||
		!slices.Equal(r.drift(seen, wanted), r.drift(known, wanted))
}

// lost tells whether the control plane has set Unknown one of the conditions that it
// was told: its node lifecycle controller does so with a Node that it has not heard of,
// and leaves it to the Node to say otherwise. A Lease that is renewed again does not.
func lost(stored, told []corev1.NodeCondition) bool { return len(overruled(stored, told)) > 0 }

// undone tells whether the conditions that the control plane was told have to be told
// again. Where a host has its Node for itself nobody has a say in them but by mistake,
// or because a backup of the store was restored.
func (r *Reporter) undone(stored, told []corev1.NodeCondition) bool {
	return lost(stored, told) || r.reconciles() && slices.ContainsFunc(told, func(t corev1.NodeCondition) bool {
		return !slices.ContainsFunc(stored, func(s corev1.NodeCondition) bool {
			return s.Type == t.Type && s.Status == t.Status && s.Reason == t.Reason
		})
	})
}

// overruled are the conditions that it has set so.
func overruled(stored, told []corev1.NodeCondition) []corev1.NodeCondition {
	var list []corev1.NodeCondition
	for _, s := range stored {
		if s.Status == corev1.ConditionUnknown && slices.ContainsFunc(told, func(t corev1.NodeCondition) bool {
			return s.Type == t.Type && (s.Status != t.Status || s.Reason != t.Reason)
		}) {
			list = append(list, s)
		}
	}
	return list
}

// noteLoss notes whether the control plane has taken the host for lost, or forgotten how
// it is, since it was told.
func (r *Reporter) noteLoss(stored *corev1.Node) {
	before := r.lost
	r.lost = r.written != nil && r.undone(stored.Status.Conditions, r.written.Conditions)
	if !r.lost || before {
		return
	}
	if r.overruled = overruled(stored.Status.Conditions, r.written.Conditions); len(r.overruled) > 0 {
		r.o.Log.Info("the control plane took the host for lost: its status is written again", "node", stored.Name)
		return
	}
	r.o.Log.Info("the control plane has another status than it was told: it is written again", "node", stored.Name)
}

// takeBack has conditions that the control plane has set Unknown change anew with the
// write that follows, though the host was so throughout: what is stored changes then,
// as with kubelet, and whoever reads it counts from there.
func (r *Reporter) takeBack(node *corev1.Node) {
	now := metav1.NewTime(r.o.Now())
	var transitions []status.Transition
	for _, stored := range r.overruled {
		i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == stored.Type && c.Status != stored.Status })
		if i >= 0 {
			node.Status.Conditions[i].LastTransitionTime = now
			transitions = append(transitions, status.Transition{Old: &stored, New: node.Status.Conditions[i]})
		}
	}
	r.overruled = nil
	if len(transitions) == 0 {
		return
	}
	r.conditions, r.memory = node.Status.Conditions, r.memory.Follow(node.Status.Conditions)
	r.tell(node.Name, transitions)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.node.Status.Conditions = slices.Clone(node.Status.Conditions)
}

// newsAgain is how long a label must have been left alone to make it news that
// somebody changed it.
const newsAgain = time.Hour

// mendDue tells whether a label, an annotation or a taint that somebody else has changed
// is to be set again: at once for the first time, and then once in a report interval,
// for whoever changes it may do so again at once.
func (r *Reporter) mendDue() bool {
	return slices.ContainsFunc(r.drifted, func(key string) bool {
		last, before := r.mended[key]
		return !before || time.Since(last) >= r.o.Rewrite
	})
}

// tellMended notes that what had drifted was set again.
func (r *Reporter) tellMended() {
	var told []string
	for _, key := range r.drifted {
		if last, before := r.mended[key]; !before || time.Since(last) > newsAgain {
			told = append(told, key)
		}
		if r.mended == nil {
			r.mended = map[string]time.Time{}
		}
		r.mended[key] = time.Now()
	}
	if len(told) == 0 {
		return
	}
	keys := strings.Join(told, ", ")
	r.o.Log.Warn("set again what somebody else changed on the node", "keys", keys)
	r.event(corev1.EventTypeNormal, "NodeRestored", "set again what somebody else changed: "+keys)
}

// reread takes in what somebody else has made of the Node.
func (r *Reporter) reread(ctx context.Context, node *corev1.Node) error {
	stored, err := r.o.Client.Node(ctx, node.Name)
	if errors.Is(err, controlplane.ErrNotFound) || err == nil && stored.UID != r.known.UID {
		r.gone(node.Name)
		return nil
	}
	if err != nil {
		return err
	}
	r.contact(nil)
	if other, taken := errors.AsType[*controlplane.IdentityError](controlplane.CheckOwner(stored, node)); taken {
		r.taken(other)
		return nil
	}
	return r.learn(ctx, stored, node)
}
