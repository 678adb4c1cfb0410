package memory

import (
	"context"
	"fmt"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// Update implements store.Store. Over a Network it is two requests, a read and a write, as with other
// stores.
func (s *Store) Update(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, edit func(store.Object) error) (store.Object, error) {
	u := update{fleet: s.fleet, kind: kind, name: name, pre: pre, change: edit}
	var err error
	if s.network == nil {
		err = s.write(ctx, Update, kind, name, pre, u.once)
	} else if err = s.call(ctx, Get, kind, name, func(Fault) error { return u.load() }); err == nil {
		if err = u.edit(); err == nil && u.value != nil {
			u.pre, err = s.confirm(ctx, kind, name, pre)
		}
		if err == nil && u.value != nil {
			err = s.write(ctx, Update, kind, name, pre, func(Fault) error { return u.replace(false) })
		}
	}
	switch {
	case u.refusal != nil:
		return nil, u.refusal
	case err != nil:
		return nil, err
	}
	return u.stored, nil
}

// update is an Update in progress.
type update struct {
	*fleet
	kind   store.Kind
	name   string
	pre    store.Preconditions
	change func(store.Object) error

	stored  store.Object // as read, and then as stored
	value   []byte       // as read, and then the next value; nil if nothing changes
	refusal error        // error of change
}

// once makes the whole update.
func (u *update) once(fault Fault) error {
	if err := u.load(); err != nil {
		return err
	}
	if err := u.edit(); err != nil || u.value == nil {
		return err
	}
	return u.replace(fault.Conflict)
}

// load reads the object.
func (u *update) load() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	stored, err := u.read(u.kind, u.name)
	if err == nil {
		err = u.pre.Check(stored)
	}
	if err != nil {
		return err
	}
	u.stored, u.value = stored, u.objects[u.kind.Folder()+u.name].value
	return nil
}

// edit computes the next value.
func (u *update) edit() (err error) {
	u.value, err = u.kind.Edit(u.stored, u.value, func(o store.Object) error {
		u.refusal = u.change(o)
		return u.refusal
	})
	return err
}

// replace stores the next value if the object has not changed since it was read. conflict makes another
// client write the object right before.
func (u *update) replace(conflict bool) error {
	path := u.kind.Folder() + u.name
	u.mu.Lock()
	defer u.mu.Unlock()
	if e := u.objects[path]; conflict && e != nil {
		u.rewrite(path, e.value)
	}
	if err := u.guard(u.stored, u.pre); err != nil {
		return err
	}
	e := u.objects[path]
	if e == nil || u.version(e.revision) != u.stored.GetResourceVersion() {
		return fmt.Errorf("%w: another client has changed or deleted it", controlplane.ErrConflict)
	}
	after, err := decode(u.kind, u.name, u.value, u.version(u.revision+1))
	if err != nil {
		return err
	}
	if store.Released(u.stored, after) {
		u.remove(path)
	} else {
		u.rewrite(path, u.value)
	}
	u.stored = after
	return nil
}
