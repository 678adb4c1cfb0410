package host

import (
	"context"
	"fmt"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/docker"
	"hostler.io/hostler/runtime/local"
)

// kind is how runtimes of one type are found and opened.
type kind struct {
	candidates func() []local.Candidate
	ask        local.Ask
	open       func(local.Options) (runtime.Runtime, error)
	// asked tells that people build images and keep stopped containers there: nothing
	// is removed by itself unless somebody has asked for it.
	asked bool
}

// kinds are the types of runtimes, by the name that configurations give them.
func kinds() map[string]kind {
	return map[string]kind{
		cri.Type:    {candidates: cri.DefaultCandidates, ask: cri.Ask, open: func(o local.Options) (runtime.Runtime, error) { return cri.New(o) }},
		docker.Type: {candidates: docker.DefaultCandidates, ask: docker.Ask, asked: true, open: func(o local.Options) (runtime.Runtime, error) { return docker.New(o) }},
	}
}

// usualCandidates are where runtimes usually are, the likeliest to hold a Node's pods
// first.
func usualCandidates() []local.Candidate {
	return append(cri.DefaultCandidates(), docker.DefaultCandidates()...)
}

// lookedFor tells whether a runtime of that type is opened where it is found. A Docker is
// not: what is stopped through it counts as stopped by a person, and a container with
// the policy unless-stopped stays down after the boot. Whoever names it knows that.
func lookedFor(c local.Candidate) bool { return c.Type != docker.Type }

// detect looks for runtimes of all types.
func detect(ctx context.Context, candidates []local.Candidate) []local.Detected {
	known := kinds()
	return local.Detect(ctx, candidates, func(ctx context.Context, c local.Candidate) (name, version string, err error) {
		k, found := known[c.Type]
		if !found {
			return "", "", fmt.Errorf("%w: type %q", runtime.ErrUnsupported, c.Type)
		}
		return k.ask(ctx, c)
	})
}
