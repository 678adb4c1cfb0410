package report

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/status"
)

// keyForeign is where the store keeps them.
const keyForeign = "foreign-conditions"

// foreign are the types of conditions in other domains than hostler's that it has put on
// the Node, kept across restarts: of those beside it on a Node that others write as well
// nothing else tells that they are not somebody else's.
type foreign struct {
	store Store
	log   *slog.Logger

	mu    sync.Mutex // guards what follows
	types []corev1.NodeConditionType
}

func newForeign(store Store, log *slog.Logger) *foreign {
	f := &foreign{store: store, log: log}
	values, err := store.Load()
	if value, found := values[keyForeign]; err == nil && found {
		err = json.Unmarshal(value, &f.types)
	}
	if err != nil {
		log.Warn("which conditions of other domains an earlier run has published is not known", "error", err)
	}
	return f
}

// published are all of them.
func (f *foreign) published() []corev1.NodeConditionType {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.types)
}

// note keeps those of the conditions that are about to be published.
func (f *foreign) note(conditions []corev1.NodeCondition) {
	f.change(func(types []corev1.NodeConditionType) []corev1.NodeConditionType {
		for _, c := range conditions {
			if status.IsCustom(c.Type) && !status.IsOwn(c.Type) && !slices.Contains(types, c.Type) {
				types = append(types, c.Type)
			}
		}
		return types
	})
}

// forget drops those that are on the Node no more.
func (f *foreign) forget(gone []corev1.NodeConditionType) {
	f.change(func(types []corev1.NodeConditionType) []corev1.NodeConditionType {
		return slices.DeleteFunc(types, func(t corev1.NodeConditionType) bool { return slices.Contains(gone, t) })
	})
}

func (f *foreign) change(how func([]corev1.NodeConditionType) []corev1.NodeConditionType) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := how(slices.Clone(f.types))
	if slices.Equal(next, f.types) {
		return
	}
	f.types = next
	value, err := json.Marshal(next)
	if err == nil {
		err = f.store.Write(map[string][]byte{keyForeign: value}, nil)
	}
	if err != nil {
		f.log.Warn("which conditions of other domains are published is not kept", "error", err)
	}
}

// retire takes conditions of other domains off the Node whose checks are gone. Those of
// its own domain, and those that this run has published, the client knows to be
// hostler's.
func (r *Reporter) retire(ctx context.Context, stored, node *corev1.Node) error {
	has := func(n *corev1.Node, kind corev1.NodeConditionType) bool {
		return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	}
	var off, gone []corev1.NodeConditionType
	for _, kind := range r.foreign.published() {
		switch {
		case has(node, kind):
		case has(stored, kind):
			gone = append(gone, kind)
		default:
			off = append(off, kind)
		}
	}
	if writer, able := r.o.Client.(controlplane.ConditionWriter); able && len(gone) > 0 {
		mine := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}, Status: corev1.NodeStatus{NodeInfo: node.Status.NodeInfo}}
		if _, err := writer.UpdateConditions(ctx, mine, gone); err != nil {
			return err
		}
		r.o.Log.Info("conditions whose checks are gone are taken off the node", "node", node.Name, "conditions", gone)
		off = append(off, gone...)
	}
	r.foreign.forget(off)
	return nil
}
