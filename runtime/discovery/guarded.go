package discovery

import (
	"context"
	"errors"
	"slices"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runc"
)

// Guarded is the set as the shutdown guard sees it.
type Guarded struct {
	*runtime.Set
	runtimes *Runtimes
}

// Guarded is the set for the shutdown guard.
func (r *Runtimes) Guarded() Guarded { return Guarded{r.set, r} }

// Pods lists the pods of all runtimes for the shutdown guard. A runtime that is still starting must
// not count as one without pods: while an unknown runtime may exist, or runc may have its first
// container, it searches first, and the error names runtimes that do not answer.
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
	return pods, together(err, g.runtimes.Complete())
}

// hasUnknownRoot reports whether a state root that was not found yet has containers.
func (r *Runtimes) hasUnknownRoot() bool {
	return slices.ContainsFunc(r.candidates, func(c local.Candidate) bool {
		return c.Type == runc.Type && r.at(c.Path) == nil && r.roots.HasContainers(c.Path)
	})
}

// together is both errors, and one that names all runtimes where both name some.
func together(a, b error) error {
	failed, deserted := (*runtime.SetError)(nil), (*runtime.SetError)(nil)
	if errors.As(a, &failed) && errors.As(b, &deserted) {
		return &runtime.SetError{Failed: slices.Concat(failed.Failed, deserted.Failed)}
	}
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return errors.Join(a, b) // which names not all
}
