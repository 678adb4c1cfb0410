package report

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/status"
)

// added is the last status that was written to a kubelet's Node.
type added struct {
	own   *corev1.NodeStatus // nil if nothing was written
	since time.Time
}

// besideKubelet reports whether hostler writes its own conditions to a kubelet's Node.
func (r *Reporter) besideKubelet() bool {
	_, able := r.o.Client.(controlplane.ConditionWriter)
	return able && !r.o.Mine() && r.o.Beside()
}

// add writes hostler's own conditions to the Node of a kubelet on this host: on change, and
// regularly. It writes nothing else, because the kubelet reports the rest. It returns whether it
// wrote anything.
func (r *Reporter) add(ctx context.Context, node *corev1.Node) (bool, error) {
	own := &corev1.NodeStatus{Conditions: status.OwnConditions(node.Status.Conditions)}
	if r.writer.added.own != nil && time.Since(r.writer.added.since) < r.o.Rewrite && !status.Changed(r.writer.added.own, own) {
		return false, nil
	}
	mine := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name},
		Status:     corev1.NodeStatus{NodeInfo: node.Status.NodeInfo, Conditions: own.Conditions},
	}
	writer := r.o.Client.(controlplane.ConditionWriter)
	stored, err := writer.UpdateConditions(ctx, mine, nil)
	if err == nil {
		r.o.Theirs(status.IsKubelets(stored.Status.NodeInfo))
		err = r.clear(ctx, writer, mine, stored)
	}
	if errors.Is(err, controlplane.ErrNotFound) {
		r.o.Theirs(false)
		r.view.contact(nil)
		r.view.wait("no Node " + node.Name + " registered by the kubelet yet; if the kubelet uses another name, set node.name to it")
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.view.wait("")
	r.writer.added, r.observation.remembered = added{own.DeepCopy(), time.Now()}, true
	return true, nil
}

// clear removes conditions that an earlier hostler left on a Node that now belongs to a kubelet.
// Nobody updates them, and NetworkUnavailable would keep pods away forever.
func (r *Reporter) clear(ctx context.Context, writer controlplane.ConditionWriter, mine, stored *corev1.Node) error {
	gone := status.Leftovers(stored.Status, mine.Status.Conditions, r.published.types())
	if len(gone) == 0 {
		return nil
	}
	if _, err := writer.UpdateConditions(ctx, mine, gone); err != nil {
		return err
	}
	r.published.forget(gone)
	r.o.Log.Info("removed conditions that the kubelet now owns from the node", "node", mine.Name, "conditions", gone)
	return nil
}
