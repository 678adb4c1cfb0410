// Package root checks the configured state roots of runc and crun: their syntax, and whether
// another runtime manages the folder.
//
// It manages no containers, and reads no files.
package root

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Example is runc's default state root.
const Example = "/run/runc"

// owned are folders in which other programs keep the state of their own runc, with what to
// configure instead.
var owned = [...]struct{ folder, by string }{
	{"/run/containerd", "used by containerd; use type: cri with its socket"},
	{"/run/docker", "used by Docker; use type: docker with its socket"},
	{"/run/user", "used by a user session, which hostler does not manage"},
}

// Parse returns the absolute path of an endpoint. It refuses all else, and roots that belong to
// other programs.
func Parse(endpoint string) (string, error) {
	switch {
	case endpoint == "":
		return "", fmt.Errorf("no folder given: set the state root, such as %s", Example)
	case strings.HasPrefix(endpoint, "unix://"):
		return "", fmt.Errorf("%q is a socket, but runc has none: set its state root, such as %s", endpoint, Example)
	case !filepath.IsAbs(endpoint):
		return "", fmt.Errorf("%q is not an absolute path, such as %s", endpoint, Example)
	}
	path := filepath.Clean(endpoint)
	// Both names of one root would be two runtimes: /var/run is a link on nearly every host.
	if rest, found := strings.CutPrefix(path, "/var/run/"); found {
		path = "/run/" + rest
	}
	if path == "/" || path == "/run" || path == "/var/run" {
		return "", fmt.Errorf("%q is not a state root: set the folder with one folder per container, such as %s", endpoint, Example)
	}
	for _, o := range owned {
		if path == o.folder || strings.HasPrefix(path, o.folder+"/") {
			return "", fmt.Errorf("%q: %s is %s", endpoint, o.folder, o.by)
		}
	}
	return path, nil
}
