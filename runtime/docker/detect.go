package docker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
)

// DefaultCandidates returns the default sockets of Docker. Sockets of rootless dockerds, in the
// runtime folders of users, are not included.
func DefaultCandidates() []local.Candidate {
	return []local.Candidate{
		{Type: Type, Name: "docker", Path: "/run/docker.sock"},
		{Type: Type, Name: "docker", Path: "/var/run/docker.sock"},
		{Type: Type, Name: "docker-snap", Path: "/run/snap.docker/docker.sock"},
	}
}

// Running returns patterns of the folders that exist while Docker's containers run, even if dockerd
// does not run (live restore). They are for Debian's containerd and for Docker's own. Docker before
// 20.10 used another shim.
func Running() []string {
	var patterns []string
	for _, state := range []string{"/run/containerd", "/run/docker/containerd/daemon", "/run/snap.docker/containerd/daemon"} {
		for _, shim := range []string{"io.containerd.runtime.v2.task", "io.containerd.runtime.v1.linux"} {
			patterns = append(patterns, state+"/"+shim+"/moby/*")
		}
	}
	return patterns
}

// NameOf returns the name of the Docker at an endpoint.
func NameOf(endpoint string) string { return local.NameOf(DefaultCandidates(), endpoint) }

// Ask is a local.Ask for Docker.
func Ask(ctx context.Context, c local.Candidate) (name, version string, err error) {
	conn := engine.New(c.Path, func(string, time.Duration, error) {})
	defer conn.Close()
	v, err := queryVersion(ctx, conn, local.AnswerTimeout)
	return "docker", v.Version, err
}

// queryVersion returns an error if the daemon is not Docker: package podman-docker links Docker's
// socket to Podman's.
func queryVersion(ctx context.Context, conn *engine.Conn, timeout time.Duration) (client.ServerVersionResult, error) {
	const what = "get runtime version"
	v, err := engine.Get(ctx, conn, "ServerVersion", what, timeout, func(ctx context.Context, c *client.Client) (client.ServerVersionResult, error) {
		return c.ServerVersion(ctx, client.ServerVersionOptions{})
	})
	if err != nil {
		return v, err
	}
	if v.Version == "" {
		return v, fmt.Errorf("%s: %w: no version in it", what, runtime.ErrInvalidAnswer)
	}
	if slices.ContainsFunc(v.Components, func(c system.ComponentVersion) bool { return c.Name == "Podman Engine" }) {
		return v, fmt.Errorf("%s: %w: Podman %s answers, not Docker", what, runtime.ErrUnsupported, v.Version)
	}
	return v, nil
}
