package discovery

import (
	"context"
	"errors"
	"slices"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runc"
)

// Guarded is the set of runtimes for the shutdown guard.
type Guarded struct {
	*runtime.Set
	runtimes *Runtimes
}

// Guarded returns the set for the shutdown guard.
func (r *Runtimes) Guarded() Guarded { return Guarded{r.set, r} }

// Pods lists the pods of all runtimes for the shutdown guard. A runtime that is still starting must
// not count as one without pods. So if an unknown runtime may exist, or runc may have its first
// container, Pods searches before it returns. The error names runtimes that do not answer.
func (g Guarded) Pods(ctx context.Context) ([]runtime.Pod, error) {
	known := len(g.Members())
	pods, err := g.Set.Pods(ctx)
	if g.runtimes.Complete() == nil && !g.runtimes.hasUnknownRoot() {
		return pods, err
	}
	g.runtimes.discover(ctx)
	if len(g.Members()) > known {
		pods, err = g.Set.Pods(ctx)
	}
	return pods, joinErrors(err, g.runtimes.Complete())
}

// hasUnknownRoot reports whether a state root that was not found yet has containers.
func (r *Runtimes) hasUnknownRoot() bool {
	return slices.ContainsFunc(r.candidates, func(c local.Candidate) bool {
		return c.Type == runc.Type && r.at(c.Path) == nil && r.roots.HasContainers(c.Path)
	})
}

// joinErrors joins two errors. If both name runtimes, the result names them all.
func joinErrors(a, b error) error {
	failed, unlisted := (*runtime.SetError)(nil), (*runtime.SetError)(nil)
	if errors.As(a, &failed) && errors.As(b, &unlisted) {
		return &runtime.SetError{Failed: slices.Concat(failed.Failed, unlisted.Failed)}
	}
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return errors.Join(a, b) // a joined error would name only some
}
