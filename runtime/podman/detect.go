package podman

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
)

// api is the version of Podman's own API that hostler uses. Later versions of Podman serve it, too.
const api = "/v4.0.0/libpod"

// DefaultCandidates returns the socket of the host's Podman. Sockets of rootless Podmans, in the
// runtime folders of users, are not included.
func DefaultCandidates() []local.Candidate {
	return []local.Candidate{{Type: Type, Name: "podman", Path: "/run/podman/podman.sock", Wakes: true}}
}

// Running returns patterns of the files that exist while Podman's containers run.
func Running() []string { return []string{Started("/run/containers/storage")} }

// Started returns the pattern of the files that identify Podman's containers below its run root.
// Each container has one from its first start until it is removed or the host shuts down. CRI-O's
// containers, which may be in the same folder, have none.
func Started(runRoot string) string {
	return filepath.Join(runRoot, "*-containers", "*", userdata, conmonPidFile)
}

// NameOf returns the name of the Podman at an endpoint.
func NameOf(endpoint string) string { return local.NameOf(DefaultCandidates(), endpoint) }

// Ask is a local.Ask for Podman. It starts the service. The caller has checked that this is
// allowed.
func Ask(ctx context.Context, c local.Candidate) (name, version string, err error) {
	conn := engine.NewWaking(&local.Activation{Path: c.Path}, func(string, time.Duration, error) {}, func(context.Context) error { return nil })
	defer conn.Close()
	version, err = queryVersion(ctx, conn, local.AnswerTimeout)
	return "podman", version, err
}

// engineComponent is the name of Podman's own component in its version.
const engineComponent = "Podman Engine"

// queryVersion returns an error if the daemon is not Podman.
func queryVersion(ctx context.Context, conn *engine.Conn, timeout time.Duration) (string, error) {
	const what = "get runtime version"
	type component struct{ Name, Version string }
	var answer struct {
		Version    string
		Components []component
	}
	if err := conn.Ask(ctx, "Version", what, timeout, engine.Request{Verb: http.MethodGet, Path: "/version"}, &answer); err != nil {
		return "", err
	}
	i := slices.IndexFunc(answer.Components, func(c component) bool { return c.Name == engineComponent })
	switch {
	case i < 0:
		return "", fmt.Errorf("%s: %w: not Podman, but another server of version %q", what, runtime.ErrUnsupported, answer.Version)
	case answer.Components[i].Version == "":
		return "", fmt.Errorf("%s: %w: no version in it", what, runtime.ErrInvalidAnswer)
	}
	return answer.Components[i].Version, nil
}

// get sends a request to Podman's own API.
func (r *Runtime) get(ctx context.Context, method, what, path string, query url.Values, answer any) error {
	return r.conn.Ask(ctx, method, what, r.timeouts.Query, engine.Request{Verb: http.MethodGet, Path: api + path, Query: query}, answer)
}
