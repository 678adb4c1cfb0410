// Package mounts reads tables of mounts.
package mounts

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/moby/sys/mountinfo"
)

// Info is a mount.
type Info = mountinfo.Info

// longestLine is the most bytes of a line that counts. It has room for two paths of PATH_MAX bytes, escaped.
const longestLine = 60 << 10

// Read returns the mounts in a file such as /proc/self/mountinfo (proc_pid_mountinfo(5)) that a filter selects; all if it is
// nil. It leaves out mounts with longer paths, which any user can make: they must hide no other mount.
func Read(path string, filter mountinfo.FilterFunc) ([]*Info, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return mountinfo.GetMountsFromReader(lines(f, longestLine), filter)
}

// lines returns a reader of the lines of r with at most that many bytes, with their line feeds. Its memory is bounded.
func lines(r io.Reader, most int) io.Reader { return &reader{from: bufio.NewReaderSize(r, most)} }

type reader struct {
	from *bufio.Reader
	rest []byte // of the current line
}

func (r *reader) Read(p []byte) (int, error) {
	for skip := false; len(r.rest) == 0; {
		line, err := r.from.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			skip = true
		case skip && err == nil: // the end of a long line
			skip = false
		case skip || len(line) == 0:
			return 0, err
		default: // the last line may have no line feed
			r.rest = bytes.Clone(line)
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
