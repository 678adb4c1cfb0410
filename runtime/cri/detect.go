package cri

import (
	"context"
	"errors"
	"fmt"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

// Type is the type of this adapter's candidates.
const Type = "cri"

// DefaultCandidates returns the default sockets of the runtimes that hostler knows, the most likely
// first.
func DefaultCandidates() []local.Candidate {
	return []local.Candidate{
		{Type: Type, Name: "containerd", Path: "/run/containerd/containerd.sock"},
		{Type: Type, Name: "cri-o", Path: "/run/crio/crio.sock"},
		{Type: Type, Name: "k3s", Path: "/run/k3s/containerd/containerd.sock"}, // and RKE2
		{Type: Type, Name: "k0s", Path: "/run/k0s/containerd.sock"},
		{Type: Type, Name: "microk8s", Path: "/var/snap/microk8s/common/run/containerd.sock"},
		{Type: Type, Name: "cri-dockerd", Path: "/run/cri-dockerd.sock"},
		{Type: Type, Name: "cri-dockerd", Path: "/var/run/cri-dockerd.sock"},
	}
}

// NameOf returns the name of the runtime at an endpoint.
func NameOf(endpoint string) string { return local.NameOf(DefaultCandidates(), endpoint) }

// ErrSwitchedOff means that the socket is served by a containerd without CRI, such as the one of
// Docker's packages. It has no pods. The error also wraps runtime.ErrUnsupported.
var ErrSwitchedOff = errors.New("CRI of containerd is disabled")

// Ask is a local.Ask for runtimes that speak CRI.
func Ask(ctx context.Context, c local.Candidate) (name, version string, err error) {
	r, err := New(Options{Endpoint: c.Path, Name: c.Name, Timeouts: local.Timeouts{Query: local.AnswerTimeout}})
	if err != nil {
		return "", "", err
	}
	defer r.Close()
	a, err := r.version(ctx)
	if errors.Is(err, runtime.ErrUnsupported) {
		if serves, unknown := r.containerd().HasCRI(ctx); unknown == nil && !serves {
			err = fmt.Errorf("%w: %w", ErrSwitchedOff, err)
		}
	}
	return a.name, a.version, err
}
