package report

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"hostler.io/hostler/controlplane"
)

// registration is what is known of the Node on the control plane. turn guards it.
type registration struct {
	state     State
	observe   func(from, to State) // called after each transition; may be nil
	entered   bool                 // registered by this process: if it loses the Node later, it must not take it over from a live machine
	known     *corev1.Node         // last stored Node, without status; nil if it is not registered
	wanted    *corev1.Node         // last Node built from the host, without fields that change there by themselves
	applied   *corev1.Node         // with the labels, annotations and taints that were last registered
	addressed bool                 // the stored Node has addresses
	drifted   []string             // labels, annotations and taints that another client has changed
	restored  map[string]time.Time // when each was last restored
	replaced  *corev1.Node         // replaced Node of another machine; nil once that was reported
}

// to changes the state, see Transitions.
func (g *registration) to(next State) {
	if before := g.state; next != before && g.observe != nil {
		g.observe(before, next)
	}
	g.state = next
}

// registered reports whether the Node was registered, and has not been found missing or taken over
// since.
func (g *registration) registered() bool { return g.state == Registered || g.state == Outdated }

// drop forgets the stored Node.
func (g *registration) drop() {
	g.to(Unregistered)
	g.known, g.drifted = nil, nil
}

// errAwaited ends a round because there is no Node to write.
var errAwaited = errors.New("the Node does not exist yet")

// restoreDue reports whether to restore a label, an annotation or a taint that another client has
// changed. The first time that is immediately, later once in a report interval, because the client
// may change it again at once.
func (g *registration) restoreDue(interval time.Duration) bool {
	return slices.ContainsFunc(g.drifted, func(key string) bool {
		last, before := g.restored[key]
		return !before || time.Since(last) >= interval
	})
}

// newsAgain is how long a label must have been unchanged so that another change is worth an Event.
const newsAgain = time.Hour

// noteRestored records that all changed settings were restored, and returns those worth an Event.
func (g *registration) noteRestored() (news []string) {
	for _, key := range g.drifted {
		if last, before := g.restored[key]; !before || time.Since(last) > newsAgain {
			news = append(news, key)
		}
		if g.restored == nil {
			g.restored = map[string]time.Time{}
		}
		g.restored[key] = time.Now()
	}
	return news
}

// marks returns the parts of a Node that are registered and compared later.
func marks(node *corev1.Node) *corev1.Node {
	return &corev1.Node{ObjectMeta: *node.ObjectMeta.DeepCopy(), Spec: corev1.NodeSpec{Taints: slices.Clone(node.Spec.Taints)}}
}

func (r *Reporter) sameMarks(a, b *corev1.Node) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		(!r.reconciles() || equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints))
}

// enroll ensures that the Node is on the control plane, with its labels, annotations and taints. It
// reads the Node only if another client has changed it.
func (r *Reporter) enroll(ctx context.Context, node *corev1.Node) error {
	g := &r.registration
	if g.state == Outdated {
		if err := r.reread(ctx, node); err != nil {
			return err
		}
	}
	if g.registered() && r.sameMarks(g.applied, node) && !g.restoreDue(r.o.Rewrite) {
		return nil
	}
	return r.register(ctx, node)
}

// register registers the Node, or restores what another client has changed.
func (r *Reporter) register(ctx context.Context, node *corev1.Node) error {
	g := &r.registration
	takeover := r.o.Takeover && !g.entered
	stored, err := r.o.Client.Register(ctx, node, controlplane.RegisterOptions{
		Takeover: takeover, Lost: g.entered, AdoptOnly: r.o.AdoptOnly != "", Watch: r.o.Watch,
		Replaces: func(before *corev1.Node) { g.replaced = before },
	})
	r.o.Watch.NoteAnswer(err)
	other, taken := errors.AsType[*controlplane.IdentityError](err)
	switch {
	case r.o.AdoptOnly != "" && errors.Is(err, controlplane.ErrNotFound):
		r.await(node.Name)
		return errAwaited
	case taken && other.Watching():
		r.watchOther(other)
		return errAwaited
	case err != nil:
		if g.state == Watching {
			g.to(Unregistered)
			r.view.wait("")
		}
		return err
	}
	r.view.contact(nil)
	first := !g.registered() || stored.UID != g.known.UID || g.replaced != nil
	g.entered, g.applied = true, marks(node)
	g.to(Registered)
	if !first {
		r.reportRestored(g.noteRestored())
		return r.applyAndSettle(ctx, stored, node)
	}
	r.writer.written = nil
	r.wait("")
	r.o.Log.Info("node registered", "node", stored.Name, "uid", stored.UID, "controlPlane", r.o.Client.Type())
	r.event(corev1.EventTypeNormal, "Registered", "Node registered by hostler")
	r.reportReplaced(stored, takeover)
	r.apply(stored, node)
	return nil
}

func (r *Reporter) reportRestored(news []string) {
	if len(news) == 0 {
		return
	}
	keys := strings.Join(news, ", ")
	r.o.Log.Warn("restored settings that another client changed on the node", "keys", keys)
	r.event(corev1.EventTypeNormal, "NodeRestored", "restored settings that another client changed: "+keys)
}

// watchOther records that the Node belongs to another machine that may be alive.
func (r *Reporter) watchOther(other *controlplane.IdentityError) {
	if r.registration.registered() {
		r.taken(other)
	}
	if r.registration.state != Watching {
		r.o.Log.Info("node belongs to another machine, watching whether its lease is renewed", "node", other.Name,
			"theirs", other.Theirs.String(), "ours", other.Ours.String(), "until", other.Until)
		time.AfterFunc(time.Until(other.Until), r.Changed)
	}
	r.registration.to(Watching)
	r.view.contact(nil)
	r.view.wait(other.Error())
}

// await records that there is no Node, and that hostler may not create it.
func (r *Reporter) await(name string) {
	if r.registration.registered() {
		r.gone(name)
	}
	if r.registration.state != Awaited {
		r.o.Log.Info("node does not exist, waiting until it is created", "reason", r.o.AdoptOnly, "node", name, "controlPlane", r.o.Client.Type())
	}
	r.registration.to(Awaited)
	r.view.contact(nil)
	r.wait("no Node " + name + " exists yet: " + r.o.AdoptOnly)
}

// wait records why the Node, and with it the Lease, must wait; "" if it need not.
func (r *Reporter) wait(why string) {
	r.view.wait(why)
	if r.o.Waits != nil {
		r.o.Waits(why)
	}
}

// gone records that the Node was deleted on the control plane, or replaced by another of that name.
func (r *Reporter) gone(name string) {
	r.drop()
	next := "hostler registers it again"
	switch {
	case r.o.AdoptOnly != "":
		next = "hostler waits until it is created again"
	case r.o.Waits != nil: // a Lease without a Node protects nobody, and a cluster deletes it at once
		r.o.Waits("the Node was deleted and has to be registered first")
	}
	r.o.Log.Warn("node was deleted on the control plane, "+next, "node", name)
	r.event(corev1.EventTypeWarning, "NodeGone", "the Node was deleted on the control plane; "+next)
}

// taken records that another machine has taken over the Node. That machine stays the owner until
// its Lease has expired, which registration checks. The LeaseKeeper uses the same rule.
func (r *Reporter) taken(by *controlplane.IdentityError) {
	r.drop()
	r.o.Log.Warn("another machine took over the node", "node", by.Name, "theirs", by.Theirs.String(), "ours", by.Ours.String())
}

// leaveToOwner forgets a Node that does not belong to hostler. If the Lease belongs to hostler, it
// is renewed independently.
func (r *Reporter) leaveToOwner() {
	if r.registration.registered() {
		r.drop()
	}
	if r.o.Waits != nil {
		r.o.Waits("")
	}
}

// drop forgets the stored Node.
func (r *Reporter) drop() {
	r.registration.drop()
	r.writer.reset()
	r.view.drop()
	if r.o.Lost != nil {
		r.o.Lost()
	}
	r.reportTaints(nil)
}

// reread reads the Node after a change by another client.
func (r *Reporter) reread(ctx context.Context, node *corev1.Node) error {
	stored, err := r.o.Client.Node(ctx, node.Name)
	if errors.Is(err, controlplane.ErrNotFound) || err == nil && stored.UID != r.registration.known.UID {
		r.gone(node.Name)
		return nil
	}
	if err != nil {
		return err
	}
	r.view.contact(nil)
	if other, taken := errors.AsType[*controlplane.IdentityError](controlplane.CheckOwner(stored, node)); taken {
		r.taken(other)
		return nil
	}
	err = r.applyAndSettle(ctx, stored, node)
	if err == nil {
		r.registration.to(Registered)
	}
	return err
}

// applyAndSettle applies the stored Node after a write or a read, and reconciles an operator's
// cordon with it.
func (r *Reporter) applyAndSettle(ctx context.Context, stored, node *corev1.Node) error {
	r.reportCordon(stored)
	stored, err := r.settle(ctx, stored)
	r.apply(stored, node)
	return err
}

// apply applies the stored Node.
func (r *Reporter) apply(stored, node *corev1.Node) {
	if r.registration.known == nil || r.registration.known.UID != stored.UID { // a new Node, created by anybody
		r.o.Named(stored.UID)
	}
	if r.o.Requested != nil {
		r.o.Requested(stored.Annotations[controlplane.AnnotationLeaseDuration])
	}
	r.registration.drifted = r.drift(stored, node)
	r.registration.addressed = len(stored.Status.Addresses) > 0
	r.noteOverwritten(stored, node)
	r.adopt(stored)
	r.noteTaints(stored)
	r.noteRemains(stored)
	r.noteClones(stored)
}

// adopt takes over the stored metadata and spec.
func (r *Reporter) adopt(stored *corev1.Node) {
	r.registration.known = r.view.adopt(stored, r.options().ExternalCloud)
	r.reportStored(stored)
	r.reportTaints(stored.Spec.Taints)
}

func (r *Reporter) reportStored(stored *corev1.Node) {
	if r.o.Stored != nil {
		r.o.Stored(stored)
	}
}

func (r *Reporter) reportTaints(taints []corev1.Taint) {
	if r.o.Taints != nil {
		r.o.Taints(taints)
	}
}
