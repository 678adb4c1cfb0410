package probe

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Stall is the pressure stall information (PSI) of one resource: the share of time that tasks could
// not continue because they waited for it. See Documentation/accounting/psi.rst of the kernel.
type Stall struct {
	Resource string   // name of its file in /proc/pressure: "cpu", "memory" or "io"
	Some     Averages // at least one task waited
	Full     Averages // all non-idle tasks waited at the same time; always zero for cpu
	Absent   bool     // the kernel has no PSI, or it is disabled
	Problem  string   // why the measurement failed; empty if it did not
}

// Averages are percentages of the last periods of time.
type Averages struct {
	TenSeconds, Minute, FiveMinutes float64
}

// Stalls measures the named resources, in that order. It reads one small file for each.
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
	// If PSI is disabled, some kernels have no folder, and others have files that cannot be read
	// (psi_show of Linux 4.20).
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.EOPNOTSUPP):
		s.Absent = true
	case err != nil:
		if path, ok := errors.AsType[*fs.PathError](err); ok {
			err = path.Err
		}
		s.Problem = fmt.Sprintf("read %s: %v", file, err)
	case stats.Some == nil || stats.Full == nil && resource != "cpu": // cpu has "full" since Linux 5.13
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
