package memory

import (
	"context"
	"fmt"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// Create implements store.Store.
func (s *Store) Create(ctx context.Context, kind store.Kind, o store.Object) (store.Object, error) {
	var created store.Object
	name := kind.StoredName(o)
	err := s.call(ctx, Create, kind, name, func(Fault) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, exists := s.objects[kind.Folder()+name]; exists {
			return fmt.Errorf("%w: it exists", controlplane.ErrConflict)
		}
		o = o.DeepCopyObject().(store.Object)
		o.SetUID("")
		created = s.putObject(kind, o)
		return nil
	})
	return created, err
}
