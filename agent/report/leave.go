package report

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/controlplane"
)

// Leave takes the Node and its Lease off the control plane, because a person, named
// by, said so. Nothing is written there from then on until the agent starts again.
// The Lease must have come to rest before. controlplane.ErrForbidden means that
// somebody else has to delete them, and that nothing is written meanwhile;
// ErrNotOurs and any other error, that all goes on as before.
func (r *Reporter) Leave(ctx context.Context, by string) error {
	if !r.o.Mine() {
		return ErrNotOurs
	}
	if err := r.take(ctx, false); err != nil {
		return err
	}
	defer func() { r.turn <- struct{}{} }()
	ctx, end := r.round(ctx)
	defer end()
	err := r.o.Client.Leave(ctx, r.options().Name)
	if err != nil && !errors.Is(err, controlplane.ErrForbidden) {
		if errors.Is(context.Cause(ctx), errOvertaken) {
			err = errOvertaken
		}
		return err
	}
	r.left = true
	r.drop()
	why := by + " took the Node off the control plane with `hostler leave`; `systemctl restart hostler` registers it again"
	if err != nil {
		why = by + " asked with `hostler leave` to take the Node off the control plane, which somebody with the right has to do; `systemctl restart hostler` registers it again"
	}
	r.rest(why)
	r.contact(nil)
	r.o.Log.Info("the node leaves the control plane and is not written there until the agent starts again", "node", r.options().Name, "by", by, "deleted", err == nil)
	r.event(corev1.EventTypeNormal, "Left", by+" had the Node taken off the control plane with `hostler leave`")
	return err
}
