package report

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/status"
)

// keyPublished is the key of the published types in the store.
const keyPublished = "foreign-conditions"

// published are the condition types in other domains than hostler's that it has written to the
// Node. They are stored, because on a shared Node nothing else shows that these conditions are
// hostler's. turn guards it.
type published struct {
	store Store
	log   *slog.Logger
	list  []corev1.NodeConditionType
}

func newPublished(store Store, log *slog.Logger) *published {
	p := &published{store: store, log: log}
	values, err := store.Load()
	if value, found := values[keyPublished]; err == nil && found {
		err = json.Unmarshal(value, &p.list)
	}
	if err != nil {
		log.Warn("cannot read the list of published custom conditions", "error", err)
	}
	return p
}

// types returns the published types.
func (p *published) types() []corev1.NodeConditionType { return slices.Clone(p.list) }

// note adds the types of conditions that are about to be written.
func (p *published) note(conditions []corev1.NodeCondition) {
	p.change(func(types []corev1.NodeConditionType) []corev1.NodeConditionType {
		for _, c := range conditions {
			if status.IsCustom(c.Type) && !status.IsOwn(c.Type) && !slices.Contains(types, c.Type) {
				types = append(types, c.Type)
			}
		}
		return types
	})
}

// forget removes types that are not on the Node any more.
func (p *published) forget(gone []corev1.NodeConditionType) {
	p.change(func(types []corev1.NodeConditionType) []corev1.NodeConditionType {
		return slices.DeleteFunc(types, func(t corev1.NodeConditionType) bool { return slices.Contains(gone, t) })
	})
}

func (p *published) change(how func([]corev1.NodeConditionType) []corev1.NodeConditionType) {
	next := how(slices.Clone(p.list))
	if slices.Equal(next, p.list) {
		return
	}
	p.list = next
	value, err := json.Marshal(next)
	if err == nil {
		err = p.store.Write(map[string][]byte{keyPublished: value}, nil)
	}
	if err != nil {
		p.log.Warn("cannot persist the list of published custom conditions", "error", err)
	}
}

// retire removes conditions in other domains whose checks were removed. The client itself handles
// hostler's own domain and the conditions that this process has written.
func (r *Reporter) retire(ctx context.Context, stored, node *corev1.Node) error {
	has := func(n *corev1.Node, kind corev1.NodeConditionType) bool {
		return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	}
	var off, gone []corev1.NodeConditionType
	for _, kind := range r.published.types() {
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
		r.o.Log.Info("removed conditions without a check from the node", "node", node.Name, "conditions", gone)
		off = append(off, gone...)
	}
	r.published.forget(off)
	return nil
}
