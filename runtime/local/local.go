// Package local has what adapters of runtimes on this host share: their unix sockets, options and
// timeouts, and the mounts and contents of the folders that runtimes report.
//
// It does not know any runtime by name.
package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// maxSocketPathBytes is sun_path less its final zero, see unix(7).
const maxSocketPathBytes = 107

// ParseEndpoint returns the path of the socket that an endpoint names, which is
// unix:///path or an absolute path. It refuses all else.
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

// Timeouts bound each kind of call where the caller's context does not bound it
// more narrowly.
type Timeouts struct {
	// Query bounds each list, status and version call: 10 s.
	Query time.Duration
	// StopMargin is added to a container's grace for the kill that follows it
	// and for the runtime's own work: 15 s.
	StopMargin time.Duration
	// Teardown bounds StopPod, which runs network plugins: 30 s.
	Teardown time.Duration
	// Start bounds the start of a container, for which a runtime may have to mount and
	// to set up networks: 2 min.
	Start time.Duration
	// Remove bounds each removal, in which the runtime deletes files: 2 min.
	Remove time.Duration
}

// WithDefaults fills in what is zero, and refuses what is negative.
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

// Named is how errors call an object: its name, or its ID where it has none.
func Named(kind, name, id string) string {
	if name == "" {
		name = id
	}
	return fmt.Sprintf("%s %q", kind, name)
}

// Existing is the folder, or the nearest one above it that is there.
func Existing(folder string) string {
	for {
		if _, err := os.Stat(folder); err == nil || folder == filepath.Dir(folder) {
			return folder
		}
		folder = filepath.Dir(folder)
	}
}
