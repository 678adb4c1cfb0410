package report

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/status"
)

// enrolment is what is known of the Node on the control plane. Who has the
// reporter's turn owns it.
type enrolment struct {
	// registered is whether the Node was registered since it was last found missing, or
	// another machine's.
	registered bool
	entered    bool         // it was, by this process: what it has lost since it may not take from the living
	asked      *corev1.Node // with the labels and annotations that were registered last
	addressed  bool         // the stored Node has addresses
	drifted    []string     // labels, annotations and taints that somebody else has changed
	lost       bool         // the control plane has other conditions than were written, such as Unknown
	// overruled are these, as stored, until they are taken back.
	overruled []corev1.NodeCondition
	mended    map[string]time.Time
	replaced  *corev1.Node // of another machine, whose place this one has taken; nil once that is told
	watching  bool         // it is not known yet whether the other machine lives that has the name
}

// Standing is how it stands with the Node on the control plane, beside what the
// Node says itself.
type Standing struct {
	Waits string  // why nothing is written there although nothing failed; empty if it is
	Drift []Drift // what of the Node is not as configured, and not hostler's to mend
}

// Drift is one thing that a person has to mend.
type Drift struct{ Message, Mend string }

// Standing is how it stands with the Node on the control plane.
func (r *Reporter) Standing() Standing {
	clones := clonesDrift(r.options().Name, r.clones())
	r.mu.Lock()
	defer r.mu.Unlock()
	return Standing{Waits: r.standing.Waits, Drift: slices.Concat(r.lacking, r.left, clones)}
}

// errAwaited ends a round in which there is no Node that could be written.
var errAwaited = errors.New("the node is waited for")

// write registers the Node where that is due, and writes its status where that
// is worth it. It tells whether anything was written.
func (r *Reporter) write(ctx context.Context, node *corev1.Node) (bool, error) {
	if !r.remembered && starting(node) {
		// What the fleet knows of this boot is better than what this start knows.
		return false, fmt.Errorf("learn what was reported before: %w", r.forgotten)
	}
	outage := r.failed()
	if err := r.enroll(ctx, node); err != nil {
		if errors.Is(err, errAwaited) {
			return false, nil
		}
		return false, err
	}
	if !r.due(node) {
		return false, nil
	}
	r.takeBack(node)
	r.foreign.note(node.Status.Conditions)
	stored, err := r.send(ctx, node)
	if errors.Is(err, controlplane.ErrNotFound) {
		if r.written != nil {
			r.Changed() // registered again at once, unless it was gone at once
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
	r.written, r.writtenAt, r.remembered = node.Status.DeepCopy(), time.Now(), true
	if outage { // nor may a fleet that comes back go on in step
		r.writtenAt = r.writtenAt.Add(-rand.N(r.o.Rewrite / 2))
	}
	r.mu.Lock()
	r.said = r.written.Conditions
	r.mu.Unlock()
	if err := r.retire(ctx, stored, node); err != nil {
		r.written = nil // and all of it is tried again
		return false, err
	}
	return true, r.learn(ctx, stored, node)
}

// due tells whether the status is worth a write.
func (r *Reporter) due(node *corev1.Node) bool {
	since := time.Since(r.writtenAt)
	return r.lastWord != nil || r.cordons.pending() || r.written == nil || since >= r.o.Rewrite ||
		r.lost && since >= r.o.Update || // no faster, for whoever did it may do it again
		status.Changed(r.written, &node.Status)
}

// failed tells whether the control plane was out of reach before.
func (r *Reporter) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lastError != nil
}

// starting tells whether the Node knows no more than that the agent has started.
func starting(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Reason == status.ReasonStarting })
}

// enroll has the Node on the control plane, with the labels, annotations and taints
// that it is to have. It reads the Node only where somebody else has changed it.
func (r *Reporter) enroll(ctx context.Context, node *corev1.Node) error {
	if r.hint.Swap(false) && r.registered {
		if err := r.reread(ctx, node); err != nil {
			r.hint.Store(true)
			return err
		}
	}
	if r.registered && r.sameMarks(r.asked, node) && !r.mendDue() {
		return nil
	}
	takeover := r.o.Takeover && !r.entered
	stored, err := r.o.Client.Register(ctx, node, controlplane.RegisterOptions{
		Takeover: takeover, Lost: r.entered, AdoptOnly: r.o.AdoptOnly, Watch: r.o.Watch,
		Replaces: func(before *corev1.Node) { r.replaced = before },
	})
	r.o.Watch.Asked(err)
	if r.o.AdoptOnly && errors.Is(err, controlplane.ErrNotFound) {
		r.contact(nil)
		r.await(node.Name)
		return errAwaited
	}
	if err := r.watchOther(err); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	r.contact(nil)
	first := !r.registered || stored.UID != r.known.UID || r.replaced != nil
	r.registered, r.entered, r.asked = true, true, marks(node)
	if !first {
		r.tellMended()
		return r.learn(ctx, stored, node)
	}
	r.written = nil
	r.wait("")
	r.o.Log.Info("node registered", "node", stored.Name, "uid", stored.UID, "controlPlane", r.o.Client.Type())
	r.event(corev1.EventTypeNormal, "Registered", "Node registered by hostler")
	r.tellReplaced(stored, takeover)
	r.takeIn(stored, node)
	return nil
}

// marks are what of a Node is registered and kept.
func marks(node *corev1.Node) *corev1.Node {
	return &corev1.Node{ObjectMeta: *node.ObjectMeta.DeepCopy(), Spec: corev1.NodeSpec{Taints: slices.Clone(node.Spec.Taints)}}
}

func (r *Reporter) sameMarks(a, b *corev1.Node) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		(!r.reconciles() || equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints))
}

// await notes that there is no Node, and that hostler is not to create it.
func (r *Reporter) await(name string) {
	if r.registered {
		r.gone(name)
	}
	if r.standing.Waits == "" {
		r.o.Log.Info("there is no node on the control plane, and hostler is not to create it: waiting until somebody else has", "node", name, "controlPlane", r.o.Client.Type())
	}
	r.wait("no Node " + name + " there yet: node.register is false, so that somebody else has to create it")
}

// rest notes why nothing is written although nothing failed; empty if it is.
func (r *Reporter) rest(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.standing.Waits = why
}

// wait notes why the Node is waited for, and with it the Lease; empty if they are
// not.
func (r *Reporter) wait(why string) {
	r.rest(why)
	if r.o.Waits != nil {
		r.o.Waits(why)
	}
}

// gone notes that the Node is no longer on the control plane, or another has its
// name.
func (r *Reporter) gone(name string) {
	r.drop()
	next := "it is registered again"
	switch {
	case r.o.AdoptOnly:
		next = "it is waited for until somebody creates it again"
	case r.o.Waits != nil: // a Lease without a Node keeps nobody alive, and a cluster deletes it at once
		r.o.Waits("the Node is gone, and has to be registered again first")
	}
	r.o.Log.Warn("the node is gone from the control plane, and "+next, "node", name)
	r.event(corev1.EventTypeWarning, "NodeGone", "the Node was taken off the control plane; "+next)
}

// taken notes that another machine has taken the Node over, whose it is until that one
// is dead: registering tells. The Lease need not rest, for its keeper goes by the same.
func (r *Reporter) taken(by *controlplane.IdentityError) {
	r.drop()
	r.o.Log.Warn("another machine has taken the node over", "node", by.Name, "theirs", by.Theirs.String(), "ours", by.Ours.String())
}

// leaveToOwner forgets the Node that is not hostler's: whoever has it meanwhile
// changes it. Its Lease, where that is hostler's, waits for nobody.
func (r *Reporter) leaveToOwner() {
	if r.registered {
		r.drop()
	}
	if r.o.Waits != nil {
		r.o.Waits("")
	}
}

// drop forgets what was known of the stored Node.
func (r *Reporter) drop() {
	r.registered, r.written, r.drifted, r.lost, r.overruled = false, nil, nil, false, nil
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.said, r.standing, r.lacking, r.left = nil, nil, Standing{}, nil, nil
}

// send writes the status, after the last word of an earlier boot if there is
// one that was not delivered.
func (r *Reporter) send(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	if r.lastWord != nil {
		before := node.DeepCopy()
		before.Status = *r.lastWord
		_, err := r.o.Client.UpdateStatus(ctx, r.outgoing(before))
		switch {
		case errors.Is(err, controlplane.ErrForbidden), errors.Is(err, controlplane.ErrInvalid):
			r.o.Log.Warn("what the last shutdown left to tell is refused", "node", node.Name, "error", err)
		case err != nil:
			return nil, err
		default:
			r.o.Log.Info("what the last shutdown left to tell is delivered", "node", node.Name)
		}
		r.lastWord = nil
	}
	return r.o.Client.UpdateStatus(ctx, r.outgoing(node))
}

// outgoing leaves the addresses to a cloud controller manager, once there are any.
func (r *Reporter) outgoing(node *corev1.Node) *corev1.Node {
	if !r.options().ExternalCloud || !r.addressed {
		return node
	}
	out := *node
	out.Status.Addresses = nil
	return &out
}

// learn takes in what is stored after a write or a read, and brings a person's
// decision and the stored cordon together.
func (r *Reporter) learn(ctx context.Context, stored, node *corev1.Node) error {
	r.noteCordon(stored)
	stored, err := r.settle(ctx, stored)
	r.takeIn(stored, node)
	return err
}

// takeIn takes in what is stored.
func (r *Reporter) takeIn(stored, node *corev1.Node) {
	if r.known == nil || r.known.UID != stored.UID { // whoever made it another one
		r.o.Named(stored.UID)
	}
	if r.o.Asked != nil {
		r.o.Asked(stored.Annotations[controlplane.AnnotationLeaseDuration])
	}
	r.drifted = r.drift(stored, node)
	r.addressed = len(stored.Status.Addresses) > 0
	r.noteLoss(stored)
	r.adopt(stored)
	r.noteTaints(stored)
	r.noteRemains(stored)
}

// noteCordon makes an Event of a cordon that somebody else has changed.
func (r *Reporter) noteCordon(stored *corev1.Node) {
	r.mu.Lock()
	changed := r.known != nil && r.known.Spec.Unschedulable != stored.Spec.Unschedulable
	r.mu.Unlock()
	if !changed || r.cordons.pending() {
		return
	}
	reason, did := "NodeSchedulable", "uncordoned"
	if stored.Spec.Unschedulable {
		reason, did = "NodeNotSchedulable", "cordoned"
	}
	r.event(corev1.EventTypeNormal, reason, did+" on the control plane")
}

// event tells something of the Node.
func (r *Reporter) event(kind, reason, message string) {
	r.o.Recorder.Record(controlplane.NodeReference(r.options().Name), kind, reason, message)
}

// adopt takes over the control plane's metadata and spec.
func (r *Reporter) adopt(stored *corev1.Node) {
	external := r.options().ExternalCloud
	r.mu.Lock()
	defer r.mu.Unlock()
	r.node.ObjectMeta, r.node.Spec = stored.ObjectMeta, stored.Spec
	r.node.ManagedFields = nil
	if external && len(stored.Status.Addresses) > 0 {
		r.node.Status.Addresses = stored.Status.Addresses
	}
	r.known = &corev1.Node{ObjectMeta: r.node.ObjectMeta, Spec: stored.Spec}
}

// see keeps what the host looks like, for `hostler status`.
func (r *Reporter) see(node *corev1.Node, facts status.Facts, options status.Options) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := node.DeepCopy()
	r.wanted = &corev1.Node{ObjectMeta: seen.ObjectMeta, Spec: corev1.NodeSpec{Taints: seen.Spec.Taints}, Status: corev1.NodeStatus{NodeInfo: seen.Status.NodeInfo}}
	if r.node != nil {
		seen.ObjectMeta, seen.Spec = r.node.ObjectMeta, r.node.Spec
	}
	if options.ExternalCloud && r.known != nil { // whose they are is stored there
		seen.Status.Addresses = r.node.Status.Addresses
	}
	r.node, r.lastFacts = seen, facts
}
