package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"hostler.io/hostler/internal/sanitize"
)

// Set uses the runtimes of one host as one. Lists are concatenated in the order in which the
// runtimes were added. An operation on a pod, container or image goes to its runtime. All methods
// are safe for concurrent use, also with Add, Remove and Replace.
//
// A list may return results together with an error: the results of the working runtimes, and a
// *SetError that names the others. A caller that removes objects must assume that containers of a
// failed runtime may use any object of it.
type Set struct {
	mu      sync.RWMutex
	members []Runtime // in order of addition, names unique
}

// MemberError is the failure of one runtime of a Set.
type MemberError struct {
	Runtime string // its name
	Err     error
}

// Error names the runtime and then says what failed.
func (e MemberError) Error() string {
	return sanitize.Text(fmt.Sprintf("runtime %s: %v", e.Runtime, e.Err), sanitize.MaxText)
}

// Unwrap gives the runtime's own error.
func (e MemberError) Unwrap() error { return e.Err }

// SetError says which runtimes of a Set failed. The others' results are valid.
type SetError struct {
	Failed []MemberError // in order of addition
}

// Error joins the failures in one line.
func (e *SetError) Error() string {
	parts := make([]string, len(e.Failed))
	for i, f := range e.Failed {
		parts[i] = f.Error()
	}
	return strings.Join(parts, "; ")
}

// Unwrap gives each runtime's failure, so that errors.Is finds any of them.
func (e *SetError) Unwrap() []error {
	errs := make([]error, len(e.Failed))
	for i, f := range e.Failed {
		errs[i] = f
	}
	return errs
}

// Failed lists the runtimes whose failures err wraps, in its order.
func Failed(err error) []string {
	switch e := err.(type) {
	case MemberError:
		return []string{e.Runtime}
	case interface{ Unwrap() []error }:
		var names []string
		for _, err := range e.Unwrap() {
			names = append(names, Failed(err)...)
		}
		return names
	case interface{ Unwrap() error }:
		return Failed(e.Unwrap())
	}
	return nil
}

// NewSet makes a Set of the given runtimes. It fails if two have the same name.
func NewSet(members ...Runtime) (*Set, error) {
	s := &Set{}
	for _, m := range members {
		if err := s.Add(m); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Add takes one more runtime in. It fails if the Set has one of that name,
// because objects find their runtime by its name.
func (s *Set) Add(r Runtime) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.index(r.Name()); i >= 0 {
		return fmt.Errorf("add runtime %q at %s: name is taken by the runtime at %s", r.Name(), r.Endpoint(), s.members[i].Endpoint())
	}
	s.members = append(slices.Clip(s.members), r)
	return nil
}

// Remove takes the runtime of that name out and returns it, or nil if there is
// none. Closing it is the caller's; calls in progress then fail.
func (s *Set) Remove(name string) Runtime {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.index(name)
	if i < 0 {
		return nil
	}
	old := s.members[i]
	s.members = slices.Concat(s.members[:i], s.members[i+1:])
	return old
}

// Replace puts r in the place of the runtime of the same name and returns that
// one for the caller to close, or adds r and returns nil if there is none.
func (s *Set) Replace(r Runtime) Runtime {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.index(r.Name())
	if i < 0 {
		s.members = append(slices.Clip(s.members), r)
		return nil
	}
	old := s.members[i]
	s.members = slices.Clone(s.members)
	s.members[i] = r
	return old
}

// index finds a member by name, or returns -1. The caller holds mu.
func (s *Set) index(name string) int {
	return slices.IndexFunc(s.members, func(m Runtime) bool { return m.Name() == name })
}

// Members returns the runtimes in order of addition. The slice is the caller's
// to read, and does not change when the Set does.
func (s *Set) Members() []Runtime {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.members
}

// Pods lists the pods of all runtimes. A *SetError comes with the results of
// those that did not fail.
func (s *Set) Pods(ctx context.Context) ([]Pod, error) {
	return concat(s.Members(), func(m Runtime) ([]Pod, error) { return m.Pods(ctx) })
}

// Images lists the images of all runtimes. A *SetError comes with the results
// of those that did not fail.
func (s *Set) Images(ctx context.Context) ([]Image, error) {
	return concat(s.Members(), func(m Runtime) ([]Image, error) { return m.Images(ctx) })
}

// ImageFilesystems lists the image filesystems of all runtimes: one mount may
// occur several times, once for each runtime that uses it. A *SetError comes
// with the results of those that did not fail.
func (s *Set) ImageFilesystems(ctx context.Context) ([]Filesystem, error) {
	return concat(s.Members(), func(m Runtime) ([]Filesystem, error) { return m.ImageFilesystems(ctx) })
}

// StopContainer is Stopper's, by the runtime that c names.
func (s *Set) StopContainer(ctx context.Context, c Container, grace time.Duration) error {
	m, err := s.member(c.Runtime)
	if err != nil {
		return fmt.Errorf("stop container %q: %w", c.Name, err)
	}
	return m.StopContainer(ctx, c, grace)
}

// StopPod is Stopper's, by the runtime that p names.
func (s *Set) StopPod(ctx context.Context, p Pod) error {
	m, err := s.member(p.Runtime)
	if err != nil {
		return fmt.Errorf("stop pod %q: %w", p.Name, err)
	}
	return m.StopPod(ctx, p)
}

// StartContainer is Starter's, by the runtime that c names.
func (s *Set) StartContainer(ctx context.Context, c Container) error {
	m, err := s.member(c.Runtime)
	if err == nil {
		starter, able := m.(Starter)
		if able {
			return starter.StartContainer(ctx, c)
		}
		err = ErrUnsupported
	}
	return fmt.Errorf("start container %q: %w", c.Name, err)
}

// StartNeeds is StartNeeder's, by the runtime that c names; nothing where that has none.
func (s *Set) StartNeeds(ctx context.Context, c Container) (StartNeeds, error) {
	m, err := s.member(c.Runtime)
	if err != nil {
		return StartNeeds{}, fmt.Errorf("read dependencies of container %q: %w", c.Name, err)
	}
	if needer, able := m.(StartNeeder); able {
		return needer.StartNeeds(ctx, c)
	}
	return StartNeeds{}, nil
}

// StopSignal is StopSignaler's, by the runtime of that name.
func (s *Set) StopSignal(ctx context.Context, name, imageID string) (string, error) {
	m, err := s.member(name)
	if err == nil {
		signaler, able := m.(StopSignaler)
		if able {
			return signaler.StopSignal(ctx, imageID)
		}
		err = ErrUnsupported
	}
	return "", fmt.Errorf("read stop signal of image %s: %w", imageID, err)
}

// RemoveContainer is ContainerRemover's, by the runtime that c names.
func (s *Set) RemoveContainer(ctx context.Context, c Container) error {
	m, err := s.member(c.Runtime)
	if err != nil {
		return fmt.Errorf("remove container %q: %w", c.Name, err)
	}
	return m.RemoveContainer(ctx, c)
}

// RemovePod is PodRemover's, by the runtime that p names.
func (s *Set) RemovePod(ctx context.Context, p Pod) error {
	m, err := s.member(p.Runtime)
	if err != nil {
		return fmt.Errorf("remove pod %q: %w", p.Name, err)
	}
	return m.RemovePod(ctx, p)
}

// RemoveImage is ImageRemover's, by the runtime that img names.
func (s *Set) RemoveImage(ctx context.Context, img Image) error {
	m, err := s.member(img.Runtime)
	if err != nil {
		return fmt.Errorf("remove image %q: %w", img.Names()[0], err)
	}
	return m.RemoveImage(ctx, img)
}

// Close takes all runtimes out and closes them.
func (s *Set) Close() error {
	s.mu.Lock()
	members := s.members
	s.members = nil
	s.mu.Unlock()
	var errs []error
	for _, m := range members {
		if err := m.Close(); err != nil {
			errs = append(errs, MemberError{Runtime: m.Name(), Err: err})
		}
	}
	return errors.Join(errs...)
}

func (s *Set) member(name string) (Runtime, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if i := s.index(name); i >= 0 {
		return s.members[i], nil
	}
	return nil, fmt.Errorf("%w: no runtime named %q", ErrUnavailable, name)
}

// each calls f for all members at once and waits: one hung runtime costs its
// own deadline, not the sum.
func each(members []Runtime, f func(i int, m Runtime)) {
	if len(members) == 1 {
		f(0, members[0])
		return
	}
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() { f(i, m) })
	}
	wg.Wait()
}

func concat[T any](members []Runtime, list func(Runtime) ([]T, error)) ([]T, error) {
	lists := make([][]T, len(members))
	errs := make([]error, len(members))
	each(members, func(i int, m Runtime) { lists[i], errs[i] = list(m) })
	var all []T
	var failed []MemberError
	for i, m := range members {
		if errs[i] != nil {
			failed = append(failed, MemberError{Runtime: m.Name(), Err: errs[i]})
			continue
		}
		all = append(all, lists[i]...)
	}
	if failed != nil {
		return all, &SetError{Failed: failed}
	}
	return all, nil
}
