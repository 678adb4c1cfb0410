package memory

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// Process is the Store of one process, which a test can kill.
type Process struct {
	*Store
	killed atomic.Bool
}

// Process returns the store for another process, which sees a restore itself and has its own terms.
func (s *Store) Process() *Process { return &Process{Store: s.Over(s.network)} }

// Kill makes all further writes of the process fail with ErrUnavailable.
func (p *Process) Kill() { p.killed.Store(true) }

// ifAlive makes a call unless the process was killed.
func (p *Process) ifAlive(call func() error) error {
	if p.killed.Load() {
		return fmt.Errorf("%w: the process was killed", controlplane.ErrUnavailable)
	}
	return call()
}

// Create implements store.Store.
func (p *Process) Create(ctx context.Context, kind store.Kind, o store.Object) (created store.Object, err error) {
	err = p.ifAlive(func() error {
		created, err = p.Store.Create(ctx, kind, o)
		return err
	})
	return created, err
}

// Update implements store.Store.
func (p *Process) Update(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, edit func(store.Object) error) (o store.Object, err error) {
	err = p.ifAlive(func() error {
		o, err = p.Store.Update(ctx, kind, name, pre, edit)
		return err
	})
	return o, err
}

// Delete implements store.Store.
func (p *Process) Delete(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, policy metav1.DeletionPropagation) error {
	return p.ifAlive(func() error { return p.Store.Delete(ctx, kind, name, pre, policy) })
}

// Set implements store.Settings.
func (p *Process) Set(ctx context.Context, name string, before store.Setting, value string, term store.Term) error {
	return p.ifAlive(func() error { return p.Store.Set(ctx, name, before, value, term) })
}

// Elect implements store.Elector.
func (p *Process) Elect(ctx context.Context, controller, candidate string, ttl time.Duration) (term store.Term, leader store.Leader, err error) {
	err = p.ifAlive(func() error {
		term, leader, err = p.Store.Elect(ctx, controller, candidate, ttl)
		return err
	})
	return term, leader, err
}

// Extend implements store.Elector.
func (p *Process) Extend(ctx context.Context, term store.Term) error {
	return p.ifAlive(func() error { return p.Store.Extend(ctx, term) })
}

// Resign implements store.Elector.
func (p *Process) Resign(ctx context.Context, term store.Term) error {
	return p.ifAlive(func() error { return p.Store.Resign(ctx, term) })
}
