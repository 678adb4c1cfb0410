// Package podlog reads a container's output from the log file of its CRI runtime. It owns the
// format, and decides which files are read: only regular files in the folder of pod logs. It does
// not follow a growing file, and reads no rotated files.
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

// Folder is where runtimes write the logs of pods, as kubelets configure it.
const Folder = "/var/log/pods"

// ErrElsewhere means that a log is not in the folder, or is not a regular file.
var ErrElsewhere = errors.New("not a regular file in the folder of pod logs")

// Tail returns the last lines of a log: at most that many lines, and at most that many bytes. A
// longer text loses its beginning.
func Tail(folder, path string, lines, maxBytes int) ([]byte, error) {
	name, within := strings.CutPrefix(filepath.Clean(path), filepath.Clean(folder)+"/")
	if !within {
		return nil, fmt.Errorf("%s: %w, %s", path, ErrElsewhere, folder)
	}
	root, err := os.OpenRoot(folder) // a link cannot lead out of it
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a FIFO would block
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
	// The metadata before the text of a line is seldom longer than that.
	window := min(info.Size(), 2*int64(maxBytes)+64<<10)
	raw := make([]byte, window)
	n, err := f.ReadAt(raw, info.Size()-window)
	if err != nil && !errors.Is(err, io.EOF) { // the file was truncated meanwhile
		return nil, err
	}
	raw = raw[:n]
	if window < info.Size() { // the first line is incomplete
		_, raw, _ = bytes.Cut(raw, []byte("\n"))
	}
	return last(decode(raw), lines, maxBytes), nil
}

// decode converts the lines of a log. Each is TIME STREAM TAG TEXT, where the TAG P means that the
// text continues in the stream's next line (kubelet's "CRI log format").
func decode(raw []byte) [][]byte {
	var whole [][]byte
	started := map[string][]byte{} // incomplete texts by stream
	for line := range bytes.Lines(raw) {
		fields := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(" "), 4)
		if len(fields) < 4 {
			continue // the line is still being written
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

// last joins the last lines.
func last(all [][]byte, lines, maxBytes int) []byte {
	all = all[max(0, len(all)-lines):]
	var text []byte
	for _, line := range all {
		text = append(append(text, line...), '\n')
	}
	return slices.Clone(text[max(0, len(text)-maxBytes):])
}
