// Package podlog reads a container's output from the log file of its CRI runtime. It owns the format,
// and which files are read: only regular files in the folder of pod logs. It does not follow a
// file while it grows, and reads no rotated files.
package podlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Folder is where runtimes write the logs of pods, as kubelets configure them.
const Folder = "/var/log/pods"

// ErrElsewhere is a log that is not in the folder, or no file.
var ErrElsewhere = errors.New("not a regular file in the folder of pod logs")

// Tail returns the last lines that were written, not more than so many, of so many bytes:
// of what is longer, the end.
func Tail(folder, path string, lines, maxBytes int) ([]byte, error) {
	name, within := strings.CutPrefix(filepath.Clean(path), filepath.Clean(folder)+"/")
	if !within {
		return nil, fmt.Errorf("%s: %w, %s", path, ErrElsewhere, folder)
	}
	root, err := os.OpenRoot(folder) // out of which no link leads
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO would be waited for
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w, %s", path, ErrElsewhere, folder)
	}
	// What stands before the text of a line is seldom longer than that.
	window := min(info.Size(), 2*int64(maxBytes)+64<<10)
	raw := make([]byte, window)
	n, err := f.ReadAt(raw, info.Size()-window)
	if err != nil && !errors.Is(err, io.EOF) { // it was truncated meanwhile
		return nil, err
	}
	raw = raw[:n]
	if window < info.Size() { // its first line is cut
		_, raw, _ = bytes.Cut(raw, []byte("\n"))
	}
	return last(decode(raw), lines, maxBytes), nil
}

// decode makes lines of a log's: each is TIME STREAM TAG TEXT, where a TAG with P continues
// in the next one of its stream (kubelet's "CRI log format").
func decode(raw []byte) [][]byte {
	var whole [][]byte
	started := map[string][]byte{} // by stream
	for line := range bytes.Lines(raw) {
		fields := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(" "), 4)
		if len(fields) < 4 {
			continue // it is being written
		}
		stream := string(fields[1])
		text := append(started[stream], fields[3]...)
		if tag, _, _ := strings.Cut(string(fields[2]), ":"); tag == "P" {
			started[stream] = text
			continue
		}
		delete(started, stream)
		whole = append(whole, text)
	}
	return whole
}

// last are the last of the lines, joined.
func last(all [][]byte, lines, maxBytes int) []byte {
	all = all[max(0, len(all)-lines):]
	var text []byte
	for _, line := range all {
		text = append(append(text, line...), '\n')
	}
	return slices.Clone(text[max(0, len(text)-maxBytes):])
}
