package systemd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// quiet is the least time between two looks at the files: they may be fought
// over, and each look that finds a change costs some calls.
const quiet = time.Second

// delayView is what the longest delay depends on, as it was seen last.
type delayView struct {
	granted time.Duration
	files   string // which there are, of what size and age
}

// follow tells on changed when the longest delay may have changed: when logind's
// files were written, removed or, which logind does when it reads them anew,
// opened. logind itself announces neither. changed has room for one. follow ends
// with ctx, or says why it cannot go on; it closes watcher.
func (l *Logind) follow(ctx context.Context, watcher *configWatcher, changed chan<- struct{}) error {
	stop := context.AfterFunc(ctx, watcher.close)
	defer stop()
	defer watcher.close()
	var last delayView // of nothing: the first event counts, whatever it was
	for {
		if err := watcher.await(); err != nil {
			return err
		}
		if now := l.view(ctx); now != last {
			last = now
			select {
			case changed <- struct{}{}:
			default: // told already
			}
		}
		select {
		case <-time.After(quiet):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// view looks without opening a file, which would be noticed as a change. A
// logind that does not answer is another matter, and is told by the bus.
func (l *Logind) view(ctx context.Context) delayView {
	v := delayView{}
	v.granted, _ = l.MaxDelay(ctx)
	for _, path := range configFiles(l.options.Root) {
		info, err := os.Stat(path)
		if err != nil {
			v.files += fmt.Sprintf("%s: %v\n", path, err)
			continue
		}
		v.files += fmt.Sprintf("%s %v %d %d\n", path, info.Mode(), info.Size(), info.ModTime().UnixNano())
	}
	return v
}

// configFiles are the paths that logind might read, masked ones included.
func configFiles(root string) []string {
	var paths []string
	for _, folder := range configFolders() {
		paths = append(paths, filepath.Join(root, folder, "logind.conf"))
		entries, err := os.ReadDir(filepath.Join(root, folder, "logind.conf.d"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			paths = append(paths, filepath.Join(root, folder, "logind.conf.d")) // whose state tells
		}
		for _, entry := range entries {
			if isDropIn(entry.Name()) {
				paths = append(paths, filepath.Join(root, folder, "logind.conf.d", entry.Name()))
			}
		}
	}
	return paths
}

// isDropIn tells whether logind reads a file of that name in logind.conf.d.
func isDropIn(name string) bool {
	return strings.HasSuffix(name, ".conf") && !strings.HasPrefix(name, ".")
}

// configWatcher waits for events on the folders of logind's files.
type configWatcher struct {
	root string
	file *os.File // of inotify(7), in the runtime's poller: close ends a read
}

func watchConfig(root string) (*configWatcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch logind's files: %w; see fs.inotify.max_user_instances", err)
	}
	w := &configWatcher{root: root, file: os.NewFile(uintptr(fd), "inotify")}
	if err := w.add(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *configWatcher) close() { _ = w.file.Close() } // it may be closed already

// add watches the folders that are there; those watched already stay so.
func (w *configWatcher) add() error {
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
	for _, folder := range configFolders() {
		folder = filepath.Join(root, folder)
		there, err := watch(folder, events)
		if there && err == nil {
			_, err = watch(filepath.Join(folder, "logind.conf.d"), events)
		}
		// The nearest folder above one that is missing tells when it comes.
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

// await returns when something happened to a file that counts. Many events may
// be one return.
func (w *configWatcher) await() error {
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

// counts tells whether an event's name means a change. Events without one are
// about folders, or tell that some were lost.
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
