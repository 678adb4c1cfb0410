package probe

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Stall is the pressure stall information (PSI) of one resource: for how much of
// the time tasks could not continue for lack of it. See Documentation/accounting/psi.rst
// of the kernel.
type Stall struct {
	Resource string   // as its file below /proc/pressure is called: "cpu", "memory" or "io"
	Some     Averages // at least one task waited
	Full     Averages // all tasks that were not idle waited at once; of the CPUs always zero
	Absent   bool     // the kernel has no PSI, or it is disabled
	Problem  string   // why it was not measured although the kernel has it; empty if it was
}

// Averages are percentages of the time that has just passed.
type Averages struct {
	TenSeconds, Minute, FiveMinutes float64
}

// Stalls measures the resources of those names, in that order: one small file for
// each.
func (r *Reader) Stalls(resources []string) []Stall {
	stalls := make([]Stall, len(resources))
	for i, resource := range resources {
		stalls[i] = r.stall(resource)
	}
	return stalls
}

func (r *Reader) stall(resource string) Stall {
	stats, err := r.proc.PSIStatsForResource(resource)
	return newStall(resource, stats, err)
}

// newStall returns the values of a resource, or why they are unknown.
func newStall(resource string, stats procfs.PSIStats, err error) Stall {
	s := Stall{Resource: resource}
	file := "/proc/pressure/" + resource
	switch {
	// Where PSI is switched off some kernels have no folder, and others files that
	// cannot be read (psi_show of Linux 4.20).
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.EOPNOTSUPP):
		s.Absent = true
	case err != nil:
		if path, ok := errors.AsType[*fs.PathError](err); ok {
			err = path.Err
		}
		s.Problem = fmt.Sprintf("read %s: %v", file, err)
	case stats.Some == nil || stats.Full == nil && resource != "cpu": // which has had one since Linux 5.13
		s.Problem = file + ` has no line "some" or "full"`
	default:
		s.Some, s.Full = averages(stats.Some), averages(stats.Full)
	}
	return s
}

func averages(line *procfs.PSILine) Averages {
	if line == nil {
		return Averages{}
	}
	return Averages{TenSeconds: line.Avg10, Minute: line.Avg60, FiveMinutes: line.Avg300}
}
