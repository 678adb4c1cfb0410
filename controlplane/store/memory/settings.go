package memory

import (
	"context"
	"fmt"
	"strconv"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

var _ store.Settings = (*Store)(nil)

// PutSetting stores a setting as a person does; an empty value removes it. It has no faults.
func (s *Store) PutSetting(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putSetting(name, value, false)
}

// putSetting stores a setting under the next revision. The caller holds mu.
func (s *fleet) putSetting(name, value string, own bool) {
	s.revision++
	s.settings[name] = store.Setting{Value: value, Own: own && value != "", Version: strconv.FormatInt(s.revision, 10)}
}

// Setting implements store.Settings.
func (s *Store) Setting(ctx context.Context, name string) (store.Setting, error) {
	if err := controlplane.CheckCall(ctx, "get settings", name); err != nil {
		return store.Setting{}, err
	}
	var found store.Setting
	err := s.callElection(ctx, Setting, name, func() error {
		found = s.settings[name]
		return nil
	})
	return found, err
}

// Set implements store.Settings.
func (s *Store) Set(ctx context.Context, name string, before store.Setting, value string, term store.Term) error {
	ctx, cancel, err := s.within(ctx, term)
	if err != nil {
		return fmt.Errorf("%s %s: %w", Set, name, err)
	}
	defer cancel()
	return s.callElection(ctx, Set, name, func() error {
		if before.Persons() || s.settings[name] != before {
			return fmt.Errorf("%w: another client has changed it", controlplane.ErrConflict)
		}
		if err := s.guard(nil, store.Preconditions{Term: term}); err != nil {
			return err
		}
		s.putSetting(name, value, true)
		return nil
	})
}
