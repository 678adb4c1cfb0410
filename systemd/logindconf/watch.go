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

// Fingerprint returns a text that changes with the names, sizes and times of the files below root.
// It opens none of them, because a Watcher would notice that.
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

// allPaths returns the paths that logind might read, including masked ones.
func allPaths(root string) []string {
	var paths []string
	for _, folder := range folders() {
		paths = append(paths, filepath.Join(root, folder, "logind.conf"))
		entries, err := os.ReadDir(filepath.Join(root, folder, "logind.conf.d"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			paths = append(paths, filepath.Join(root, folder, "logind.conf.d")) // it changes with its entries
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

// Watcher waits for changes of logind's files.
type Watcher struct {
	root string
	file *os.File // of inotify(7), in the runtime's poller, so that Close ends a read
}

// Watch starts to watch the files below root. The caller closes the Watcher.
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

// Close closes the Watcher, and ends Await.
func (w *Watcher) Close() { _ = w.file.Close() } // it may be closed already

// add watches all existing folders. Folders that are watched already stay watched.
func (w *Watcher) add() error {
	raw, err := w.file.SyscallConn() // keeps the descriptor open meanwhile
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
		// If a folder is missing, the nearest existing parent reports its creation.
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

// Await returns when a file that logind reads was written, created, removed or opened. It may
// combine several events. Only one goroutine may call it.
func (w *Watcher) Await() error {
	buffer := make([]byte, 16<<10)
	for {
		n, err := w.file.Read(buffer)
		if err != nil {
			return fmt.Errorf("watch logind's files: %w", err)
		}
		if slices.ContainsFunc(eventNames(buffer[:n]), counts) {
			return w.add() // a folder may have been created
		}
	}
}

// counts reports whether an event's name means a change. Events without a name are about folders,
// or report lost events.
func counts(name string) bool {
	return name == "" || name == "logind.conf" || isDropIn(name)
}

// eventNames returns the names of files in events of inotify(7), "" for folders. It skips folders
// that were only opened, as a listing of their files does.
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
