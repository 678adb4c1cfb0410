package logindconf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Fingerprint distinguishes states of the files below root: which there are, of
// what size and age. It opens none of them, which a Watcher would notice.
func Fingerprint(root string) string {
	var all strings.Builder
	for _, path := range allPaths(root) {
		info, err := os.Stat(path)
		if err != nil {
			fmt.Fprintf(&all, "%s: %v\n", path, err)
			continue
		}
		fmt.Fprintf(&all, "%s %v %d %d\n", path, info.Mode(), info.Size(), info.ModTime().UnixNano())
	}
	return all.String()
}

// allPaths are the paths that logind might read, masked ones included.
func allPaths(root string) []string {
	var paths []string
	for _, folder := range folders() {
		paths = append(paths, filepath.Join(root, folder, "logind.conf"))
		entries, err := os.ReadDir(filepath.Join(root, folder, "logind.conf.d"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			paths = append(paths, filepath.Join(root, folder, "logind.conf.d")) // its state shows it
		}
		for _, entry := range entries {
			if isDropIn(entry.Name()) {
				paths = append(paths, filepath.Join(root, folder, "logind.conf.d", entry.Name()))
			}
		}
	}
	return paths
}

// isDropIn reports whether logind reads a file of that name in logind.conf.d.
func isDropIn(name string) bool {
	return strings.HasSuffix(name, ".conf") && !strings.HasPrefix(name, ".")
}

// Watcher waits for what happens to logind's files.
type Watcher struct {
	root string
	file *os.File // of inotify(7), in the runtime's poller: close ends a read
}

// Watch watches the files below root from now on. Close it.
func Watch(root string) (*Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch logind's files: %w; see fs.inotify.max_user_instances", err)
	}
	w := &Watcher{root: root, file: os.NewFile(uintptr(fd), "inotify")}
	if err := w.add(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Close ends the Watcher, and an Await with it.
func (w *Watcher) Close() { _ = w.file.Close() } // it may be closed already

// add watches the folders that are there; those watched already stay so.
func (w *Watcher) add() error {
	raw, err := w.file.SyscallConn() // which keeps the descriptor open meanwhile
	if err != nil {
		return fmt.Errorf("watch logind's files: %w", err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = addWatches(int(fd), w.root) })
	return errors.Join(err, failed)
}

func addWatches(fd int, root string) error {
	const (
		coming = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ONLYDIR
		events = coming | unix.IN_CLOSE_WRITE | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_ATTRIB | unix.IN_OPEN
	)
	watch := func(path string, mask uint32) (there bool, err error) {
		_, err = unix.InotifyAddWatch(fd, path, mask)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			return false, nil
		}
		if err != nil {
			err = fmt.Errorf("watch %s: %w; see fs.inotify.max_user_watches", path, err)
		}
		return true, err
	}
	for _, folder := range folders() {
		folder = filepath.Join(root, folder)
		there, err := watch(folder, events)
		if there && err == nil {
			_, err = watch(filepath.Join(folder, "logind.conf.d"), events)
		}
		// The nearest folder above one that is missing reports when it comes.
		for above := folder; !there && err == nil && above != filepath.Dir(above); {
			above = filepath.Dir(above)
			there, err = watch(above, coming)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Await returns when a file that logind reads was written, made, removed or
// opened. Many events may be one return. One goroutine may call it.
func (w *Watcher) Await() error {
	buffer := make([]byte, 16<<10)
	for {
		n, err := w.file.Read(buffer)
		if err != nil {
			return fmt.Errorf("watch logind's files: %w", err)
		}
		if slices.ContainsFunc(eventNames(buffer[:n]), counts) {
			return w.add() // a folder may have come
		}
	}
}

// counts reports whether an event's name means a change. Events without one are
// about folders, or report that some were lost.
func counts(name string) bool {
	return name == "" || name == "logind.conf" || isDropIn(name)
}

// eventNames are the names of the files that events of inotify(7) are about,
// empty for folders; those that were merely opened, as a list of their files
// does, are left out.
func eventNames(events []byte) []string {
	var names []string
	for len(events) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(events[4:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		if end > len(events) {
			break
		}
		name := strings.TrimRight(string(events[unix.SizeofInotifyEvent:end]), "\x00")
		switch folder := mask&unix.IN_ISDIR != 0; {
		case folder && mask&unix.IN_OPEN != 0:
		case folder:
			names = append(names, "")
		default:
			names = append(names, name)
		}
		events = events[end:]
	}
	return names
}
