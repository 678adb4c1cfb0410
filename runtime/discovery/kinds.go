package discovery

import (
	"context"
	"fmt"
	"slices"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/docker"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/podman"
	"hostler.io/hostler/runtime/runc"
)

// kind says how runtimes of one type are found and opened.
type kind struct {
	candidates func() []local.Candidate
	ask        local.Ask
	open       func(local.Options) (runtime.Runtime, error)
	// asked is true if users build images and keep stopped containers in this type. Then nothing is
	// removed without a request.
	asked bool
	// running are patterns of folders that exist while containers of the type run. If a discovered
	// runtime has ended and no such folder exists, it is not expected to return. A type without
	// patterns is always expected to return.
	running []string
}

// kinds returns the types of runtimes, by their names in the configuration.
func kinds() map[string]kind {
	return map[string]kind{
		cri.Type:    {candidates: cri.DefaultCandidates, ask: cri.Ask, open: func(o local.Options) (runtime.Runtime, error) { return cri.New(o) }},
		docker.Type: {candidates: docker.DefaultCandidates, ask: docker.Ask, asked: true, running: docker.Running(), open: func(o local.Options) (runtime.Runtime, error) { return docker.New(o) }},
		podman.Type: {candidates: podman.DefaultCandidates, ask: podman.Ask, asked: true, running: podman.Running(), open: func(o local.Options) (runtime.Runtime, error) { return podman.New(o) }},
		runc.Type:   {candidates: runc.DefaultCandidates, asked: true, open: func(o local.Options) (runtime.Runtime, error) { return runc.New(o) }},
	}
}

// usualCandidates returns where runtimes usually are, the most likely to run a Node's pods first.
// Package podman-docker links Docker's socket to Podman's, which is found as Podman.
func usualCandidates() []local.Candidate {
	return slices.Concat(cri.DefaultCandidates(), podman.DefaultCandidates(), docker.DefaultCandidates(), runc.DefaultCandidates())
}

// detect searches for runtimes of all types: for runtimes behind sockets, and for state roots of
// runc and crun with containers that no other runtime manages.
func (r *Runtimes) detect(ctx context.Context, candidates []local.Candidate) []local.Detected {
	var roots []local.Detected
	sockets := slices.DeleteFunc(slices.Clone(candidates), func(c local.Candidate) bool {
		if c.Type == runc.Type && r.roots.HasContainers(c.Path) {
			roots = append(roots, local.Detected{Candidate: c})
		}
		return c.Type == runc.Type
	})
	known := kinds()
	return append(r.sockets.Detect(ctx, sockets, r.units, func(ctx context.Context, c local.Candidate) (name, version string, err error) {
		k, found := known[c.Type]
		if !found {
			return "", "", fmt.Errorf("%w: type %q", runtime.ErrUnsupported, c.Type)
		}
		return k.ask(ctx, c)
	}), roots...)
}
