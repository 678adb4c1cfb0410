package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/runtime"
)

// DetectTimeout bounds how long a socket may take to say which runtime it is.
const DetectTimeout = 3 * time.Second

// Candidate is a socket behind which a runtime may be.
type Candidate struct {
	Type string // of adapter, such as "cri"
	Name string // what to call the runtime, unique among candidates
	Path string
	// Wakes tells that whoever connects starts its service, as is meant: its containers
	// run without one, so that it may have some although nobody answers yet.
	Wakes bool
}

// NameOf is the name of the runtime at an endpoint: a candidate's, or one made
// of the socket's file name.
func NameOf(candidates []Candidate, endpoint string) string {
	path := strings.TrimPrefix(endpoint, "unix://")
	for _, c := range candidates {
		if c.Path == path {
			return c.Name
		}
	}
	return strings.TrimSuffix(filepath.Base(path), ".sock")
}

// Detected is a candidate whose socket exists.
type Detected struct {
	Candidate
	// RuntimeName and Version are what answers behind it; empty if Err is set.
	RuntimeName string
	Version     string
	// Err says why it is not usable now: runtime.ErrUnsupported where something
	// else answers, runtime.ErrUnavailable where nothing does (yet).
	Err error
	// Asleep tells that its service does not run, and would be started by whoever
	// connects, which Detect does not but where that is meant.
	Asleep bool
	// Listens tells that there is somebody at the socket, who may have pods. A
	// socket file outlives who made it.
	Listens bool
}

// Silent tells that there may be a runtime that does not answer yet, or does not
// any more: containerd 1.x serves before it has loaded its pods, says that it is
// "not initialized yet" until then, and its unit counts as started.
func (d Detected) Silent() bool {
	return d.Listens && d.Err != nil && !errors.Is(d.Err, runtime.ErrUnsupported)
}

// Ask asks the runtime at a candidate's socket for its own name and its version. It is
// runtime.ErrUnsupported where something else answers.
type Ask func(ctx context.Context, c Candidate) (name, version string, err error)

// Detect finds the candidates whose socket exists and asks each, all at once,
// which runtime it is. Two paths to the same socket count once. It takes at most
// 3 s, however many of them hang. Where units tell that the host goes down, it starts
// nobody; they may be nil.
func Detect(ctx context.Context, candidates []Candidate, units Units, ask Ask) []Detected {
	return detect(ctx, "/proc", candidates, units, ask)
}

func detect(ctx context.Context, procRoot string, candidates []Candidate, units Units, ask Ask) []Detected {
	var found []Detected
	seen := map[string]bool{}
	for _, c := range candidates {
		real, err := filepath.EvalSymlinks(c.Path)
		if errors.Is(err, fs.ErrNotExist) || seen[real] {
			continue
		}
		d := Detected{Candidate: c}
		if err != nil {
			d.Err = fmt.Errorf("look for a runtime: %w", err)
		} else if info, err := os.Stat(real); err != nil {
			d.Err = fmt.Errorf("look for a runtime: %w", err)
		} else if info.Mode().Type() != fs.ModeSocket {
			continue
		}
		seen[real] = true
		found = append(found, d)
	}
	var wg sync.WaitGroup
	for i := range found {
		if found[i].Err == nil {
			wg.Go(func() { found[i].ask(ctx, procRoot, units, ask) })
		}
	}
	wg.Wait()
	return found
}

func (d *Detected) ask(ctx context.Context, procRoot string, units Units, ask Ask) {
	ctx, cancel := context.WithTimeout(ctx, DetectTimeout)
	defer cancel()
	d.Err = (&Activation{ProcRoot: procRoot, Path: d.Path}).Check()
	if d.Err != nil && d.Wakes {
		d.Err = MayWake(ctx, units)
	}
	if d.Err != nil {
		d.Asleep = true
		return
	}
	// Nobody at all is told at once, and by this alone.
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", d.Path)
	if d.Listens = !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT); err == nil {
		_ = conn.Close() // nothing was sent
	}
	if d.RuntimeName, d.Version, d.Err = ask(ctx, d.Candidate); d.Err != nil {
		d.RuntimeName, d.Version = "", ""
	}
}
