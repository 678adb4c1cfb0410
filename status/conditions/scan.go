package conditions

import (
	"slices"
	"time"
)

// scanGrace bounds the wait for a scan of the folder. If a file in it is a link to a network mount
// that does not answer, the scan hangs until the mount answers.
const scanGrace = 2 * time.Second

// scan is a scan of a folder, which may hang.
type scan struct {
	policy Policy
	found  chan found // buffered, so that the sender does not block
}

type found struct {
	programs []Program
	faults   []Fault
}

// readFolder scans the folder, and returns false if the folder does not answer in time. Then the
// next call waits for the same scan. So a folder that hangs blocks one goroutine, and not the loop,
// whose heartbeat the watchdog checks.
func (r *Runner) readFolder(p Policy) (programs []Program, faults []Fault, answered bool) {
	if r.scan == nil || r.scan.policy != p { // the other scan may hang forever
		s := &scan{policy: p, found: make(chan found, 1)}
		r.scan = s
		go func() {
			programs, faults := r.read(p)
			s.found <- found{programs, faults}
		}()
	}
	limit := time.NewTimer(scanGrace)
	defer limit.Stop()
	select {
	case f := <-r.scan.found:
		r.scan = nil
		return f.programs, f.faults, true
	case <-limit.C:
		return nil, nil, false
	}
}

// unresponsive returns the fault of a folder that does not answer.
func unresponsive(folder string) Fault {
	return Fault{
		Path: folder, Problem: "does not answer, or the target of a link in it: changes of files are not noticed",
		Fix: "check whether the disk or the network mount answers; do not link checks to a mount that may hang", unresponsive: true,
	}
}

func isUnresponsive(f Fault) bool { return f.unresponsive }

// note publishes the faults of files, and logs new ones.
func (r *Runner) note(faults []Fault) {
	next := *r.published.Load()
	for _, f := range faults {
		if !slices.Contains(next.faults, f) {
			r.options.Log.Warn("invalid condition check", "problem", f.String(), "hint", f.Fix)
		}
	}
	next.faults = faults
	r.published.Store(&next)
}
