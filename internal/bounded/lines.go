package bounded

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// MountLine is the most bytes of a line of mountinfo that counts (proc_pid_mountinfo(5)). It has room for two paths of
// PATH_MAX bytes, escaped.
const MountLine = 60 << 10

// Lines returns a reader of the lines of r with at most that many bytes, with their line feeds. It leaves out the others,
// such as the mounts in mountinfo whose paths a user has made long: they must hide no other line. Its memory is bounded.
func Lines(r io.Reader, most int) io.Reader {
	return &lines{from: bufio.NewReaderSize(r, most)}
}

type lines struct {
	from *bufio.Reader
	rest []byte // of the current line
}

func (l *lines) Read(p []byte) (int, error) {
	for skip := false; len(l.rest) == 0; {
		line, err := l.from.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			skip = true
		case skip && err == nil: // the end of a long line
			skip = false
		case skip || len(line) == 0:
			return 0, err
		default: // the last line may have no line feed
			l.rest = bytes.Clone(line)
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}
