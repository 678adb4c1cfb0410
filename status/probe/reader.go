package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/procfs"
)

// Reader reads one host below one root folder. It is safe for concurrent use.
type Reader struct {
	root string
	proc procfs.FS
	// cgroupVersion is determined once: it does not change while the host runs.
	cgroupVersion func() int

	// mu guards the fields below.
	mu     sync.Mutex
	asked  map[string]*question // statfs calls in progress, by folder
	mounts map[string]mount     // the last known mount of each folder
}

// New returns a Reader for the host whose files are below root: "/" for this host. It fails if
// there is no /proc below root.
func New(root string) (*Reader, error) {
	root = filepath.Clean(root)
	proc, err := procfs.NewFS(filepath.Join(root, "proc"))
	if err != nil {
		return nil, fmt.Errorf("read host below %s: %w; mount /proc, or set the folder where it is mounted", root, err)
	}
	r := &Reader{
		root:   root,
		proc:   proc,
		asked:  map[string]*question{},
		mounts: map[string]mount{},
	}
	r.cgroupVersion = sync.OnceValue(r.findCgroupVersion)
	return r, nil
}

// path returns the path below the root for an absolute path of the host.
func (r *Reader) path(host string) string { return filepath.Join(r.root, host) }

// text returns the content of the first of the host's files that can be read, or "". It removes
// surrounding white space, and the NUL bytes of device-tree files.
func (r *Reader) text(hostPaths ...string) string {
	for _, p := range hostPaths {
		if p == "" {
			continue
		}
		data, err := os.ReadFile(r.path(p))
		if err == nil {
			return strings.TrimSpace(strings.TrimRight(string(data), "\x00"))
		}
	}
	return ""
}

// number returns the unsigned number in one of the host's files. found is false if the file does
// not exist, or contains "max": no limit.
func (r *Reader) number(hostPath string) (value uint64, found bool, err error) {
	if hostPath == "" {
		return 0, false, nil
	}
	data, err := os.ReadFile(r.path(hostPath))
	if os.IsNotExist(err) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	text := strings.TrimSpace(string(data))
	if text == "max" {
		return 0, false, nil
	}
	value, err = strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("read %s: %q is not a number", hostPath, text)
	}
	return value, true, nil
}
