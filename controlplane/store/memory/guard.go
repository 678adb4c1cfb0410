package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// confirm checks the Preconditions about other objects before a write over a Network, if the store cannot compare them
// in the write, as on Kubernetes. It returns those that the write compares.
func (s *Store) confirm(ctx context.Context, kind store.Kind, name string, pre store.Preconditions) (store.Preconditions, error) {
	if s.network == nil || !s.o.LocalTerms || len(pre.Others)+len(pre.Unchanged)+len(pre.Unlisted) == 0 {
		return pre, nil
	}
	err := s.call(ctx, Get, kind, name, func(Fault) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		stored, err := s.read(kind, name)
		if err != nil {
			return err
		}
		return s.guard(stored, pre)
	})
	pre.Others, pre.Unchanged, pre.Unlisted = nil, nil, nil
	return pre, err
}

// guard returns an error if a precondition that is not about the object itself refuses a write. The
// caller holds mu.
func (s *fleet) guard(o store.Object, pre store.Preconditions) error {
	if pre.Term != (store.Term{}) && !s.o.LocalTerms && s.holds(pre.Term) == nil {
		return store.ErrDeposed
	}
	for _, other := range pre.Others {
		if err := other.Check(s.read(other.Kind.Metadata(), other.Name)); err != nil {
			return fmt.Errorf("%s: %w", other.Kind.Key(other.Name), err)
		}
	}
	for _, p := range pre.Unchanged {
		at, err := s.since(p.Version)
		if err != nil {
			return err
		}
		for path, e := range s.objects {
			if e.revision > at && slices.ContainsFunc(p.Ranges(), func(r store.Range) bool { return r.Has(path) }) {
				return fmt.Errorf("%w: %s has changed", controlplane.ErrConflict, path)
			}
		}
	}
	for _, kind := range pre.Unlisted {
		for _, name := range s.names(kind) {
			if !strings.HasPrefix(name, o.GetNamespace()+"/") {
				continue
			}
			found, err := s.read(kind, name)
			if err != nil {
				return fmt.Errorf("list %s: %w: %w", kind.Name, controlplane.ErrUnavailable, err)
			}
			if slices.ContainsFunc(found.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == o.GetUID() }) {
				return fmt.Errorf("list %s: %w: %s refers to it", kind.Name, controlplane.ErrUnavailable, name)
			}
		}
	}
	return nil
}
