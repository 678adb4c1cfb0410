// Package local has what the adapters of local runtimes share: unix sockets, options and timeouts,
// and the mounts and contents of folders that runtimes report.
//
// It does not depend on any particular runtime.
package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// maxSocketPathBytes is the size of sun_path without its final zero, see unix(7).
const maxSocketPathBytes = 107

// ParseEndpoint returns the socket path of an endpoint, which is unix:///path or an absolute path.
// It refuses all others.
func ParseEndpoint(endpoint string) (string, error) {
	path, isURL := strings.CutPrefix(endpoint, "unix://")
	switch {
	case endpoint == "":
		return "", fmt.Errorf("endpoint is empty: set a socket, such as unix:///run/containerd/containerd.sock")
	case !isURL && strings.Contains(endpoint, "://"):
		return "", fmt.Errorf("endpoint %q: only unix sockets are supported, such as unix:///path or /path", endpoint)
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("endpoint %q: the path must be absolute, such as unix:///run/containerd/containerd.sock", endpoint)
	case strings.HasSuffix(path, "/"):
		return "", fmt.Errorf("endpoint %q: names a folder, not a socket", endpoint)
	case len(path) > maxSocketPathBytes:
		return "", fmt.Errorf("endpoint %q: a socket path has at most %d bytes, this one has %d", endpoint, maxSocketPathBytes, len(path))
	}
	return filepath.Clean(path), nil
}

// Timeouts bound calls. The caller's context may have an earlier deadline.
type Timeouts struct {
	// Query bounds each list, status and version call: 10 s.
	Query time.Duration
	// StopMargin is added to a container's grace, for the kill after it and for the runtime's own
	// work: 15 s.
	StopMargin time.Duration
	// Teardown bounds StopPod, which calls network plugins: 30 s.
	Teardown time.Duration
	// Start bounds the start of a container, for which a runtime may have to mount filesystems and
	// set up networks: 2 min.
	Start time.Duration
	// Remove bounds each removal, because the runtime deletes files: 2 min.
	Remove time.Duration
}

// WithDefaults replaces zero values by defaults, and refuses negative ones.
func (t Timeouts) WithDefaults() (Timeouts, error) {
	for _, f := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"query", &t.Query, 10 * time.Second},
		{"stop margin", &t.StopMargin, 15 * time.Second},
		{"teardown", &t.Teardown, 30 * time.Second},
		{"start", &t.Start, 2 * time.Minute},
		{"remove", &t.Remove, 2 * time.Minute},
	} {
		switch {
		case *f.value < 0:
			return t, fmt.Errorf("%s timeout %v: must not be negative", f.name, *f.value)
		case *f.value == 0:
			*f.value = f.def
		}
	}
	return t, nil
}

// Named returns how errors refer to an object: by its name or, if it has none, its ID.
func Named(kind, name, id string) string {
	if name == "" {
		name = id
	}
	return fmt.Sprintf("%s %q", kind, name)
}

// Existing returns the folder, or its nearest ancestor that exists.
func Existing(folder string) string {
	for {
		if _, err := os.Stat(folder); err == nil || folder == filepath.Dir(folder) {
			return folder
		}
		folder = filepath.Dir(folder)
	}
}
