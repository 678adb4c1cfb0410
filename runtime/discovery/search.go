package discovery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/local"
)

// Dead is a candidate whose socket exists but has no usable runtime.
type Dead struct {
	local.Candidate
	Err error
}

// at returns the runtime with the same socket as the path or endpoint, or nil.
func (r *Runtimes) at(endpoint string) runtime.Runtime {
	members := r.set.Members()
	i := slices.IndexFunc(members, func(m runtime.Runtime) bool { return socket(m.Endpoint()) == socket(endpoint) })
	if i < 0 {
		return nil
	}
	return members[i]
}

// socket returns the path of an endpoint, with links resolved if it exists.
func socket(endpoint string) string {
	path := filepath.Clean(strings.TrimPrefix(endpoint, "unix://"))
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// configured opens a configured runtime. If two have the same name, such as two containerds, the
// second is named by its socket.
func (r *Runtimes) configured(c local.Candidate) error {
	if m := r.at(c.Path); m != nil {
		return fmt.Errorf("runtimes: %s is the same socket as %s; remove one", c.Path, m.Endpoint())
	}
	if c.Name = local.NameOf(usualCandidates(), c.Path); slices.ContainsFunc(r.set.Members(), func(m runtime.Runtime) bool { return m.Name() == c.Name }) {
		c.Name = strings.TrimPrefix(c.Path, "unix://")
	}
	return r.open(c)
}

// open adds a runtime to the set. The first call connects.
func (r *Runtimes) open(c local.Candidate) error {
	k, known := kinds()[c.Type]
	if !known {
		return fmt.Errorf("runtimes: %q is not a runtime type of this version", c.Type)
	}
	adapter, err := k.open(local.Options{
		Endpoint: c.Path, Name: c.Name, Logger: r.log, Units: r.units,
		Observe: func(method string, took time.Duration, err error) { r.observe(c.Name, method, took, err) },
	})
	if err != nil {
		return err
	}
	if c, is := adapter.(*cri.Runtime); is && c.Name() == criDockerd {
		adapter = driver{c, r.hasDocker}
	}
	r.results.mu.Lock()
	r.results.types[c.Name] = c.Type
	r.results.mu.Unlock()
	if err := r.set.Add(adapter); err != nil {
		return errors.Join(err, adapter.Close())
	}
	select {
	case r.found <- struct{}{}:
	default: // a token is pending
	}
	return nil
}

// Discover searches for new runtimes, and reports whether it found any. It is for callers that
// cannot wait for the next Refresh.
func (r *Runtimes) Discover(ctx context.Context) (grown bool) {
	known := len(r.set.Members())
	r.discover(ctx)
	return len(r.set.Members()) > known
}

// Search searches between two calls of Refresh. It does not query candidates again that answered
// but are not runtimes. It reports whether Refresh is needed: for a runtime without known health,
// or a new candidate that may be one.
func (r *Runtimes) Search(ctx context.Context) (found bool) {
	r.results.mu.Lock()
	others := r.results.others
	r.results.mu.Unlock()
	complete := r.Complete() == nil
	r.discover(ctx, others...)
	return complete && r.Complete() != nil || slices.ContainsFunc(r.set.Members(), func(m runtime.Runtime) bool { return !r.known(m) })
}

// discover adds the candidates whose socket answers and that are not in the set under any path.
// It skips others, which are known not to be runtimes. It waits for another caller's search until
// ctx ends.
func (r *Runtimes) discover(ctx context.Context, others ...Dead) {
	select {
	case <-r.discovering:
		defer func() { r.discovering <- struct{}{} }()
	case <-ctx.Done():
		return
	}
	unknown := slices.DeleteFunc(slices.Clone(r.candidates), func(c local.Candidate) bool {
		is := func(d Dead) bool { return d.Path == c.Path }
		return r.at(c.Path) != nil || r.member(c.Name) || isForeignSocket(c) || slices.ContainsFunc(others, is)
	})
	dead := slices.DeleteFunc(slices.Clone(others), func(d Dead) bool { return r.at(d.Path) != nil }) // may have become a runtime
	var unresponsive []string
	for _, d := range r.detect(ctx, unknown) {
		err := d.Err
		if err == nil {
			err = r.open(d.Candidate)
		}
		if err == nil || d.NotRunning { // a runtime that is not running has no pods
			continue
		}
		dead = append(dead, Dead{d.Candidate, err})
		if d.NoAnswer() {
			unresponsive = append(unresponsive, d.Path)
		}
	}
	others = slices.DeleteFunc(slices.Clone(dead), func(d Dead) bool { return !errors.Is(d.Err, runtime.ErrUnsupported) })
	// A containerd without CRI belongs to Docker, which reports its containers.
	hasDocker := r.hasDocker()
	dead = slices.DeleteFunc(dead, func(d Dead) bool { return hasDocker && errors.Is(d.Err, cri.ErrSwitchedOff) })
	for _, d := range dead {
		if !slices.ContainsFunc(r.Dead(), func(known Dead) bool { return known.Path == d.Path }) {
			r.log.Warn("found socket without a usable runtime", "path", d.Path, "error", d.Err)
		}
	}
	unanswered := r.unanswered()
	r.results.mu.Lock()
	r.results.unreachable = unanswered
	// A cancelled search has no answers from candidates that would have answered.
	r.results.dead, r.results.unresponsive, r.results.others, r.results.searched = dead, unresponsive, others, r.results.searched || ctx.Err() == nil
	r.results.mu.Unlock()
}

// has reports whether the set has a runtime of a type.
func (r *Runtimes) has(kind string) bool {
	r.results.mu.Lock()
	defer r.results.mu.Unlock()
	return slices.Contains(slices.Collect(maps.Values(r.results.types)), kind)
}

// Dead returns the candidates without a usable runtime in the last search.
func (r *Runtimes) Dead() []Dead {
	r.results.mu.Lock()
	defer r.results.mu.Unlock()
	return r.results.dead
}

// DeadSockets returns the paths of Dead.
func (r *Runtimes) DeadSockets() []string {
	var paths []string
	for _, d := range r.Dead() {
		paths = append(paths, d.Path)
	}
	return paths
}

// Complete returns why there may be runtimes that are not in the set, or nil.
func (r *Runtimes) Complete() error {
	r.results.mu.Lock()
	defer r.results.mu.Unlock()
	switch {
	case r.candidates == nil:
		return nil
	case !r.results.searched:
		return fmt.Errorf("%w: search for runtimes has not finished yet", runtime.ErrUnavailable)
	case len(r.results.unresponsive) > 0:
		return fmt.Errorf("%w: a process listens at %s, but does not answer as a runtime yet", runtime.ErrUnavailable, strings.Join(r.results.unresponsive, ", "))
	}
	// They count like runtimes of the set that are down: another program may stop their pods.
	var failed []runtime.MemberError
	for _, c := range r.withoutRuntime() {
		failed = append(failed, runtime.MemberError{Runtime: c.Name, Err: fmt.Errorf("%w: nothing listens at %s, but its containers exist", runtime.ErrUnavailable, c.Path)})
	}
	if len(failed) == 0 {
		return nil
	}
	return &runtime.SetError{Failed: failed}
}

// Unseen returns why this host may have CRI pods that no runtime of the set lists, or "". A runtime
// may not answer, may not be searched yet, may be stopped, or may be excluded by the configuration.
func (r *Runtimes) Unseen() string {
	if r.candidates == nil {
		for _, c := range r.usual {
			if info, err := os.Stat(c.Path); err == nil && info.Mode().Type() == fs.ModeSocket && r.at(c.Path) == nil {
				return "the runtime at " + c.Path + " is not configured"
			}
		}
		return r.withoutRuntimeText()
	}
	r.results.mu.Lock()
	defer r.results.mu.Unlock()
	if !r.results.searched {
		return "search for runtimes in progress"
	}
	mayHave := func(d Dead) bool { return d.Type == cri.Type && !errors.Is(d.Err, cri.ErrSwitchedOff) }
	if i := slices.IndexFunc(r.results.dead, mayHave); i >= 0 {
		return "the runtime at " + r.results.dead[i].Path + " does not answer"
	}
	return r.withoutRuntimeText()
}
