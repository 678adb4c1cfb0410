package memory

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// Evict is the call of an Evicter that requests the end of a pod.
const Evict Call = "Evict"

// Evicting evicts pods, as Kubernetes does.
type Evicting struct {
	s      *Store
	blocks func(pod string) string
}

var _ store.Evicter = Evicting{}

// Evicting returns the Evicter of the store. blocks returns why a pod may not be evicted now; empty if it may.
func (s *Store) Evicting(blocks func(pod string) string) Evicting { return Evicting{s, blocks} }

// Evict implements store.Evicter.
func (e Evicting) Evict(ctx context.Context, name string, uid types.UID, term store.Term) error {
	kind := store.Pods(false)
	return e.s.write(ctx, Evict, kind, name, store.Preconditions{UID: uid, Term: term}, func(Fault) error {
		e.s.mu.Lock()
		defer e.s.mu.Unlock()
		o, err := e.s.read(kind, name)
		switch {
		case err != nil:
			return err
		case o.GetUID() != uid:
			return fmt.Errorf("%w: it has another UID", controlplane.ErrConflict)
		case o.GetDeletionTimestamp() != nil:
			return nil
		}
		if why := e.blocks(name); why != "" {
			return &store.BlockedError{Message: why}
		}
		at := metav1.NewTime(e.s.o.Now()).Rfc3339Copy()
		o.SetDeletionTimestamp(&at)
		value, err := kind.Encode(o)
		if err == nil {
			e.s.rewrite(kind.Folder()+name, value)
		}
		return err
	})
}

// PodsOn implements store.Evicter.
func (e Evicting) PodsOn(ctx context.Context, node string) (pods []metav1.Object, err error) {
	kind := store.Pods(false)
	err = e.s.do(ctx, List, kind.Name, func(Fault) error {
		e.s.mu.Lock()
		defer e.s.mu.Unlock()
		pods = nil
		for _, name := range e.s.names(kind) {
			o, err := e.s.read(kind, name)
			if err != nil {
				return err
			}
			if pod := o.(*corev1.Pod); pod.Spec.NodeName == node && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
				pods = append(pods, pod)
			}
		}
		return nil
	})
	return pods, err
}
