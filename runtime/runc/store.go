package runc

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/internal/trust"
	"hostler.io/hostler/runtime"
)

const (
	// stateBytes bounds a container's file. runc's files have about 30 kB, but whoever creates a
	// container chooses its mounts and annotations. Of a larger file, only what identifies its process
	// and its bundle is read.
	stateBytes = 4 << 20
	// endBytes is how much is read at the end of a larger file: more than runc writes after the bundle.
	endBytes = 64 << 10
)

// errNotFound: the container does not exist.
var errNotFound = errors.New("no such container")

// store reads a state root, and caches the content of files until they change. It is safe for
// concurrent use.
type store struct {
	path       string
	manager    string // whose containers are included; "" for containers without a manager
	cgroupRoot string
	log        *slog.Logger

	mu    sync.Mutex
	known map[string]entry // by ID; guarded by mu
}

// entry is the content of a container's files, or why they cannot be read.
type entry struct {
	stamp stamp
	state state
	err   error
}

// stamp identifies a version of a file: runc and crun rewrite their files.
type stamp struct {
	inode uint64
	size  int64
	at    time.Time
}

func stampOf(info fs.FileInfo) stamp {
	now := stamp{size: info.Size(), at: info.ModTime()}
	if sys, known := info.Sys().(*syscall.Stat_t); known {
		now.inode = sys.Ino
	}
	return now
}

func newStore(path string, log *slog.Logger) *store {
	return &store{path: path, cgroupRoot: "/sys/fs/cgroup", log: log, known: map[string]entry{}}
}

// container is a container of a root.
type container struct {
	id     string
	folder *os.Root // the whole state root; valid during the call
	state  state
	err    error // why its files are invalid; state then has the valid part
}

// each calls visit for each container of the store's manager, until visit returns false.
func (s *store) each(visit func(container) bool) error {
	return s.all(func(c container) bool { return !s.manages(c.state, c.err) || visit(c) })
}

// manages reports whether a container is of the store's manager, or may be because its files do not
// show the manager. err is why its files are invalid.
func (s *store) manages(c state, err error) bool {
	return c.managedBy == s.manager || c.managedBy == "" && err != nil
}

// all calls visit for each container of the root, until visit returns false.
func (s *store) all(visit func(container) bool) error {
	root, err := s.open()
	if errors.Is(err, fs.ErrNotExist) {
		s.keepOnly(nil)
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // opened only to read
	list, err := ids(root)
	if err != nil {
		return fmt.Errorf("read state root %s: %w", s.path, err)
	}
	s.keepOnly(list)
	for _, id := range list {
		c := container{id: id, folder: root}
		c.state, c.err = s.load(root, id)
		if !errors.Is(c.err, errNotFound) && !visit(c) {
			break
		}
	}
	return nil
}

// one calls visit with one container whose process is known. It returns errNotFound if the container
// does not exist or has another manager.
func (s *store) one(id string, visit func(container) error) error {
	root, err := s.open()
	if errors.Is(err, fs.ErrNotExist) {
		return errNotFound
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // opened only to read
	c := container{id: id, folder: root}
	c.state, c.err = s.load(root, id)
	switch {
	case errors.Is(c.err, errNotFound) || !s.manages(c.state, c.err):
		return errNotFound
	case !c.state.identified():
		return c.err
	}
	return visit(c)
}

// is reports whether the container is the listed one: its ID may have been reused.
func (c container) is(listed runtime.Container) bool {
	return listed.CreatedAt.IsZero() || c.state.created.Equal(listed.CreatedAt)
}

// phase returns the state of a container.
func (c container) phase(procRoot string) (runtime.ContainerState, error) {
	alive, err := isAlive(procRoot, c.state.pid, c.state.start)
	if err != nil {
		return runtime.Unknown, err
	}
	if !alive {
		return runtime.Exited, nil
	}
	_, err = c.folder.Lstat(filepath.Join(c.id, execFifo))
	switch {
	case err == nil:
		return runtime.Created, nil
	case errors.Is(err, fs.ErrNotExist):
		return runtime.Running, nil
	}
	return runtime.Unknown, err
}

// open opens the root. It returns fs.ErrNotExist until a container is created there.
func (s *store) open() (*os.Root, error) {
	_, _, err := trust.Path(s.path) // else other users could choose what hostler kills
	if untrusted, ok := errors.AsType[*trust.Error](err); ok {
		return nil, fmt.Errorf("open state root %s: %w: %s", s.path, untrusted, untrusted.Hint)
	}
	root, err := os.OpenRoot(s.path)
	if err != nil {
		return nil, fmt.Errorf("open state root: %w", err)
	}
	return root, nil
}

// ids lists the possible container IDs, sorted.
func ids(root *os.Root) ([]string, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }() // opened only to read
	entries, err := dir.ReadDir(-1)
	var list []string
	for _, e := range entries {
		// crun has a folder of its own there, .empty-directory. Neither program accepts an ID that
		// begins with a dot.
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			list = append(list, e.Name())
		}
	}
	slices.Sort(list)
	return list, err
}

// load reads a container's files. It returns errNotFound if they do not exist (yet).
func (s *store) load(root *os.Root, id string) (state, error) {
	if id == "" || filepath.Base(id) != id || strings.HasPrefix(id, ".") {
		return state{}, errNotFound
	}
	file := filepath.Join(id, runcState)
	info, err := root.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		file = filepath.Join(id, crunStatus)
		info, err = root.Stat(file)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) { // ENOTDIR: a plain file
		s.forget(id)
		return state{}, errNotFound
	}
	if err != nil {
		return state{}, err
	}
	now := stampOf(info)
	s.mu.Lock()
	old, known := s.known[id]
	s.mu.Unlock()
	if known && old.stamp == now {
		return old.state, old.err
	}
	e := entry{stamp: now}
	e.state, e.err = s.read(root, id, filepath.Base(file))
	e.state.managedBy = e.state.manager(id)
	if !s.manages(e.state, e.err) {
		e.state.annotations = nil
	}
	e.state.annotations = sanitize.Clean(e.state.annotations) // whoever creates a container may set many
	if errors.Is(e.err, fs.ErrNotExist) {                     // the container is being deleted or created
		return state{}, errNotFound
	}
	if e.err != nil {
		s.log.Warn("cannot inspect container", "container", id, "error", e.err)
	}
	s.mu.Lock()
	s.known[id] = e
	s.mu.Unlock()
	return e.state, e.err
}

func (s *store) read(root *os.Root, id, file string) (state, error) {
	text, err := readFile(root, filepath.Join(id, file))
	if file == runcState && errors.Is(err, runtime.ErrTooLarge) {
		return parseLargeRunc(text), err
	}
	if err != nil {
		return state{}, err
	}
	if file == runcState {
		return parseRunc(text)
	}
	config, err := readFile(root, filepath.Join(id, crunConfig))
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, err
	}
	known, invalid := parseCrun(text, config, s.cgroupRoot)
	return known, cmp.Or(err, invalid)
}

// readFile reads a file. With runtime.ErrTooLarge, it returns the beginning and the end, with a zero
// byte in between, so that both together are never valid JSON.
func readFile(root *os.Root, name string) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened only to read
	text, err := io.ReadAll(io.LimitReader(f, stateBytes+1))
	if err == nil && len(text) > stateBytes {
		end := make([]byte, endBytes)
		_, err = f.Seek(-endBytes, io.SeekEnd)
		if err == nil {
			_, err = io.ReadFull(f, end)
		}
		return slices.Concat(text, []byte{0}, end), cmp.Or(err, fmt.Errorf("%w: %s has more than %d MiB", runtime.ErrTooLarge, filepath.Base(name), stateBytes>>20))
	}
	return text, err
}

func (s *store) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, id)
}

// keepOnly forgets containers that were removed; ids are sorted.
func (s *store) keepOnly(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.known, func(id string, _ entry) bool {
		_, there := slices.BinarySearch(ids, id)
		return !there
	})
}
