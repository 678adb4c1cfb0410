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

// Set combines the runtimes of one host. Lists are concatenated in the order in which the runtimes
// were added. An operation on a pod, container or image is passed to its runtime. All methods are
// safe for concurrent use, including Add, Remove and Replace.
//
// A list may return results together with an error: the results of the working runtimes, and a
// *SetError that names the others. Containers of a failed runtime may use any of its objects, so
// callers must not remove these.
type Set struct {
	mu      sync.RWMutex
	members []Runtime // in order of addition, names unique
}

// MemberError is the error of one runtime of a Set.
type MemberError struct {
	Runtime string // its name
	Err     error
}

// Error returns the runtime's name and its error.
func (e MemberError) Error() string {
	return sanitize.Text(fmt.Sprintf("runtime %s: %v", e.Runtime, e.Err), sanitize.MaxText)
}

// Unwrap returns the runtime's own error.
func (e MemberError) Unwrap() error { return e.Err }

// SetError says which runtimes of a Set failed. The others' results are valid.
type SetError struct {
	Failed []MemberError // in order of addition
}

// Error joins the errors in one line.
func (e *SetError) Error() string {
	parts := make([]string, len(e.Failed))
	for i, f := range e.Failed {
		parts[i] = f.Error()
	}
	return strings.Join(parts, "; ")
}

// Unwrap returns each runtime's error for errors.Is.
func (e *SetError) Unwrap() []error {
	errs := make([]error, len(e.Failed))
	for i, f := range e.Failed {
		errs[i] = f
	}
	return errs
}

// Failed returns the names of the runtimes whose errors err wraps, in its order.
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

// NewSet returns a Set of the given runtimes. It fails if two have the same name.
func NewSet(members ...Runtime) (*Set, error) {
	s := &Set{}
	for _, m := range members {
		if err := s.Add(m); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Add adds a runtime. It fails if the Set has a runtime of that name, because an object refers to
// its runtime by name.
func (s *Set) Add(r Runtime) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.index(r.Name()); i >= 0 {
		return fmt.Errorf("add runtime %q at %s: name is taken by the runtime at %s", r.Name(), r.Endpoint(), s.members[i].Endpoint())
	}
	s.members = append(slices.Clip(s.members), r)
	return nil
}

// Remove removes the runtime of that name and returns it, or nil if there is none. The caller
// closes it; calls in progress then fail.
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

// Replace replaces the runtime of the same name by r, and returns the old one, which the caller
// closes. If there is none, it adds r and returns nil.
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

// index returns the index of a member, or -1. The caller holds mu.
func (s *Set) index(name string) int {
	return slices.IndexFunc(s.members, func(m Runtime) bool { return m.Name() == name })
}

// Members returns the runtimes in order of addition. The slice must not be modified, and does not
// change with the Set.
func (s *Set) Members() []Runtime {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.members
}

// Pods lists the pods of all runtimes. If some fail, it returns the results of the others with a
// *SetError.
func (s *Set) Pods(ctx context.Context) ([]Pod, error) {
	return concat(s.Members(), func(m Runtime) ([]Pod, error) { return m.Pods(ctx) })
}

// Images lists the images of all runtimes. If some fail, it returns the results of the others with
// a *SetError.
func (s *Set) Images(ctx context.Context) ([]Image, error) {
	return concat(s.Members(), func(m Runtime) ([]Image, error) { return m.Images(ctx) })
}

// ImageFilesystems lists the image filesystems of all runtimes. A mount occurs once for each
// runtime that uses it. If some fail, it returns the results of the others with a *SetError.
func (s *Set) ImageFilesystems(ctx context.Context) ([]Filesystem, error) {
	return concat(s.Members(), func(m Runtime) ([]Filesystem, error) { return m.ImageFilesystems(ctx) })
}

// StopContainer implements Stopper with the runtime of c.
func (s *Set) StopContainer(ctx context.Context, c Container, grace time.Duration) error {
	m, err := s.member(c.Runtime)
	if err != nil {
		return fmt.Errorf("stop container %q: %w", c.Name, err)
	}
	return m.StopContainer(ctx, c, grace)
}

// StopPod implements Stopper with the runtime of p.
func (s *Set) StopPod(ctx context.Context, p Pod) error {
	m, err := s.member(p.Runtime)
	if err != nil {
		return fmt.Errorf("stop pod %q: %w", p.Name, err)
	}
	return m.StopPod(ctx, p)
}

// StartContainer implements Starter with the runtime of c.
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

// StartNeeds implements StartNeeder with the runtime of c. It returns nothing if the runtime does
// not have that role.
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

// StopSignal implements StopSignaler with the runtime of that name.
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

// RemoveContainer implements ContainerRemover with the runtime of c.
func (s *Set) RemoveContainer(ctx context.Context, c Container) error {
	m, err := s.member(c.Runtime)
	if err != nil {
		return fmt.Errorf("remove container %q: %w", c.Name, err)
	}
	return m.RemoveContainer(ctx, c)
}

// RemovePod implements PodRemover with the runtime of p.
func (s *Set) RemovePod(ctx context.Context, p Pod) error {
	m, err := s.member(p.Runtime)
	if err != nil {
		return fmt.Errorf("remove pod %q: %w", p.Name, err)
	}
	return m.RemovePod(ctx, p)
}

// RemoveImage implements ImageRemover with the runtime of img.
func (s *Set) RemoveImage(ctx context.Context, img Image) error {
	m, err := s.member(img.Runtime)
	if err != nil {
		return fmt.Errorf("remove image %q: %w", img.Names()[0], err)
	}
	return m.RemoveImage(ctx, img)
}

// Close removes all runtimes and closes them.
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

// each calls f for all members concurrently and waits: a runtime that hangs costs only its own
// deadline.
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
