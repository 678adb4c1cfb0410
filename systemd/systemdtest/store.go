package systemdtest

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ServiceManager is the receiver of sd_notify messages. It stores descriptors like systemd for a
// unit with a descriptor store.
type ServiceManager struct {
	path     string
	conn     *net.UnixConn
	messages chan string

	mu    sync.Mutex
	max   int
	store []*os.File // each has its name in the store
}

// NewServiceManager listens until the test ends. It stores up to max descriptors
// (FileDescriptorStoreMax=).
func NewServiceManager(t testing.TB, max int) *ServiceManager {
	t.Helper()
	m := &ServiceManager{path: filepath.Join(folder(t), "notify"), max: max, messages: make(chan string, 1024)}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"})
	if err != nil {
		t.Fatalf("listen for notifications: %v", err)
	}
	m.conn = conn
	go m.read()
	t.Cleanup(func() {
		conn.Close()
		m.Drop()
	})
	return m
}

// Getenv returns variables of the service's environment.
func (m *ServiceManager) Getenv(name string) string {
	if name == "NOTIFY_SOCKET" {
		return m.path
	}
	return ""
}

// Next returns the next notification that the service sent.
func (m *ServiceManager) Next(t testing.TB) string {
	t.Helper()
	select {
	case message := <-m.messages:
		return message
	case <-time.After(patience):
		t.Fatalf("no notification after %v", patience)
		return ""
	}
}

// Busy makes the service's messages fail until back is called.
func (m *ServiceManager) Busy(t testing.TB) (back func()) {
	t.Helper()
	away := m.path + ".away"
	if err := os.Rename(m.path, away); err != nil {
		t.Fatalf("take the manager's socket away: %v", err)
	}
	return func() {
		t.Helper()
		if err := os.Rename(away, m.path); err != nil {
			t.Fatalf("put the manager's socket back: %v", err)
		}
	}
}

// Stored returns the names of the descriptors in the store, in order.
func (m *ServiceManager) Stored() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := []string{}
	for _, file := range m.store {
		names = append(names, file.Name())
	}
	return names
}

// Pass returns the descriptors for a new process of the service: duplicates of those in the store.
func (m *ServiceManager) Pass(t testing.TB) []*os.File {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	var files []*os.File
	for _, file := range m.store {
		var fd int
		var err error
		if control(file, func(raw int) { fd, err = unix.FcntlInt(uintptr(raw), unix.F_DUPFD_CLOEXEC, 3) }) != nil || err != nil {
			t.Fatalf("duplicate %s: %v", file.Name(), err)
		}
		files = append(files, os.NewFile(uintptr(fd), file.Name()))
	}
	return files
}

// Drop empties the store, like a stop of the unit.
func (m *ServiceManager) Drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, file := range m.store {
		file.Close()
	}
	m.store = nil
}

func (m *ServiceManager) read() {
	data, rights := make([]byte, 4096), make([]byte, 4096)
	for {
		n, oob, _, _, err := m.conn.ReadMsgUnix(data, rights)
		if err != nil {
			return // the socket was closed
		}
		message := string(data[:n])
		m.keep(message, descriptors(rights[:oob]))
		m.messages <- message
	}
}

// keep updates the store according to a message. It closes descriptors that it does not store.
func (m *ServiceManager) keep(message string, fds []int) {
	fields := map[string]string{}
	for line := range strings.SplitSeq(message, "\n") {
		key, value, _ := strings.Cut(line, "=")
		fields[key] = value
	}
	name := fields["FDNAME"]
	if name == "" {
		name = "stored"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if fields["FDSTOREREMOVE"] == "1" {
		m.store = slices.DeleteFunc(m.store, func(file *os.File) bool {
			if file.Name() != name {
				return false
			}
			file.Close()
			return true
		})
	}
	for _, fd := range fds {
		file := os.NewFile(uintptr(fd), name)
		if fields["FDSTORE"] != "1" || len(m.store) >= m.max || slices.ContainsFunc(m.store, func(other *os.File) bool { return same(file, other) }) {
			file.Close()
			continue
		}
		m.store = append(m.store, file)
	}
}

func descriptors(oob []byte) []int {
	var fds []int
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, message := range messages {
		if some, err := unix.ParseUnixRights(&message); err == nil {
			fds = append(fds, some...)
		}
	}
	return fds
}

// same reports whether two descriptors refer to the same fifo or file.
func same(a, b *os.File) bool {
	var x, y unix.Stat_t
	var errA, errB error
	if control(a, func(fd int) { errA = unix.Fstat(fd, &x) }) != nil || control(b, func(fd int) { errB = unix.Fstat(fd, &y) }) != nil {
		return false
	}
	return errA == nil && errB == nil && x.Dev == y.Dev && x.Ino == y.Ino
}

// control calls f with the descriptor of file, which stays open during the call.
func control(file *os.File, f func(fd int)) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { f(int(fd)) })
}
