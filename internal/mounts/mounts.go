// Package mounts reads tables of mounts.
package mounts

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/moby/sys/mountinfo"

	"hostler.io/hostler/internal/oom"
	"hostler.io/hostler/internal/trust"
)

// Info is a mount.
type Info = mountinfo.Info

// longestLine is the most bytes of a line that counts. It has room for two paths of PATH_MAX bytes, escaped.
const longestLine = 60 << 10

// readTime bounds a read.
const readTime = 30 * time.Second

// Read returns the mounts in a file such as /proc/self/mountinfo (proc_pid_mountinfo(5)) that a filter selects; all if it is
// nil. It leaves out mounts with longer paths, which any user can make: they must hide no other mount. If the cgroup has not
// enough memory for the longest line, the mounts that were made after that one are missing, too.
func Read(path string, filter mountinfo.FilterFunc) ([]*Info, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	_ = f.Close() // only opened for the error
	list, err := read(path, filter)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return list, nil
}

// read reads the file in another process. The kernel makes a line in memory of the cgroup of its reader, and may
// end that process for it.
func read(path string, filter mountinfo.FilterFunc) ([]*Info, error) {
	searchPath := trust.SearchPath(os.Getenv("PATH"))
	program, err := trust.Command("cat", searchPath)
	if err != nil {
		return nil, fmt.Errorf("cat: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--", "-", path) // reads the file once its input has ended
	cmd.WaitDelay = readTime
	start, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	err = oom.First(cmd.Process.Pid)
	if err != nil {
		cancel()
	}
	_ = start.Close()
	list, failed := mountinfo.GetMountsFromReader(lines(out, longestLine), filter)
	_ = out.Close() // the filter may have seen enough
	_ = cmd.Wait()
	return list, errors.Join(err, failed, ctx.Err())
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
