package systemdtest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/systemd/logindconf"
)

const (
	loginName    = "org.freedesktop.login1"
	loginPath    = dbus.ObjectPath("/org/freedesktop/login1")
	loginManager = "org.freedesktop.login1.Manager"
	loginError   = "org.freedesktop.login1."
)

// login1 is the fake logind. Like the real one, it loses the state of a shutdown when it stops, and
// has its inhibitors in /run/systemd/inhibit.
type login1 struct {
	root     string
	bus      *server
	service  *service
	roots    bool
	metadata bool // whether it sends the kind of a shutdown
	down     chan time.Time

	mu         sync.Mutex
	running    bool
	maxDelay   time.Duration
	inhibitors []*inhibitor
	serial     int
	preparing  string      // kind of the shutdown in progress, or empty
	deadline   *time.Timer // of the delay; nil once the job has started
	scheduled  *time.Timer
	next       scheduledShutdown // value of ScheduledShutdown; guarded by mu
}

// inhibitor is a lock: the read end of a fifo whose write end was handed out.
type inhibitor struct {
	what, who, why, mode string
	uid, pid             uint32
	path                 string
	fifo                 *os.File
}

func newLogin1(root string, bus *server, o FakeOptions) *login1 {
	l := &login1{root: root, bus: bus, metadata: o.Metadata, roots: o.Roots, down: make(chan time.Time, 16)}
	l.service = &service{name: loginName, objects: map[dbus.ObjectPath]object{loginPath: {loginManager: iface{
		methods: map[string]method{
			"Inhibit":                 {"ssss", l.inhibit},
			"ListInhibitors":          {"", l.list},
			"Reboot":                  {"b", func([]any) ([]any, *dbus.Error) { return nil, l.shutDown("reboot") }},
			"PowerOff":                {"b", func([]any) ([]any, *dbus.Error) { return nil, l.shutDown("poweroff") }},
			"ScheduleShutdown":        {"st", l.schedule},
			"CancelScheduledShutdown": {"", l.cancelSchedule},
		},
		properties: map[string]func() any{
			"DelayInhibited":       func() any { l.mu.Lock(); defer l.mu.Unlock(); return l.delaying() },
			"InhibitDelayMaxUSec":  func() any { l.mu.Lock(); defer l.mu.Unlock(); return uint64(l.maxDelay.Microseconds()) },
			"ScheduledShutdown":    func() any { l.mu.Lock(); defer l.mu.Unlock(); return l.next },
			"PreparingForShutdown": func() any { l.mu.Lock(); defer l.mu.Unlock(); return l.preparing != "" },
		},
	}}}}
	if o.Metadata {
		l.service.objects[loginPath][loginManager].properties["PreparingForShutdownWithMetadata"] = l.preparingWithMetadata
	}
	return l
}

func (l *login1) preparingWithMetadata() any {
	l.mu.Lock()
	defer l.mu.Unlock()
	output := map[string]dbus.Variant{"preparing": dbus.MakeVariant(l.preparing != "")}
	if l.preparing != "" {
		output["type"] = dbus.MakeVariant(l.preparing)
	}
	return output
}

// start reads the configuration, opens the fifos of an earlier process, and takes the bus name.
func (l *login1) start() error {
	if err := os.MkdirAll(filepath.Join(l.root, "run/systemd/inhibit"), 0o755); err != nil {
		return err
	}
	if err := l.reload(); err != nil {
		return err
	}
	l.mu.Lock()
	l.running = true
	for _, i := range slices.Clone(l.inhibitors) {
		if err := l.open(i); err != nil {
			l.mu.Unlock()
			return err
		}
		go l.await(i, i.fifo)
	}
	l.mu.Unlock()
	l.bus.own(l.service)
	return nil
}

// stop imitates a kill: it closes the read ends, and forgets the shutdown.
func (l *login1) stop() {
	l.bus.disown(l.service)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = false
	for _, i := range l.inhibitors {
		i.fifo.Close()
	}
	l.forget()
	if l.scheduled != nil {
		l.scheduled.Stop()
	}
}

// forget drops the shutdown in progress. The caller holds mu.
func (l *login1) forget() {
	l.preparing = ""
	if l.deadline != nil {
		l.deadline.Stop()
		l.deadline = nil
	}
}

func (l *login1) reload() error {
	files, err := logindconf.Load(l.root)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maxDelay = logindconf.Effective(files).Max
	return nil
}

// open opens the read end. The caller holds mu.
func (l *login1) open(i *inhibitor) error {
	fd, err := unix.Open(i.path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", i.path, err)
	}
	i.fifo = os.NewFile(uintptr(fd), i.path)
	return nil
}

// await removes the inhibitor when its last holder closes it. It ignores a read end that stop has
// closed.
func (l *login1) await(i *inhibitor, fifo *os.File) {
	_, err := io.Copy(io.Discard, fifo)
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, fs.ErrClosed) || i.fifo != fifo || !l.running {
		return
	}
	fifo.Close()
	os.Remove(i.path)
	l.inhibitors = slices.DeleteFunc(l.inhibitors, func(other *inhibitor) bool { return other == i })
	l.sendInhibitors()
	if l.deadline != nil && !l.delayed() {
		l.proceed()
	}
}

// sendInhibitors signals the delayed operations, as logind does when an inhibitor is added or
// removed. The caller holds mu.
func (l *login1) sendInhibitors() {
	l.bus.emit(l.service, loginPath, "org.freedesktop.DBus.Properties", "PropertiesChanged",
		loginManager, map[string]dbus.Variant{"DelayInhibited": dbus.MakeVariant(l.delaying())}, []string{})
}

// delaying returns the value of DelayInhibited. The caller holds mu.
func (l *login1) delaying() string {
	if l.delayed() {
		return "shutdown"
	}
	return ""
}

// delayed reports whether a lock delays a shutdown. The caller holds mu.
func (l *login1) delayed() bool {
	return slices.ContainsFunc(l.inhibitors, func(i *inhibitor) bool {
		return i.mode == "delay" && slices.Contains(strings.Split(i.what, ":"), "shutdown")
	})
}

// proceed makes the manager start the job that shuts the system down. The caller holds mu.
func (l *login1) proceed() {
	if l.deadline != nil {
		l.deadline.Stop()
		l.deadline = nil
	}
	l.down <- time.Now()
}

func (l *login1) inhibit(args []any) ([]any, *dbus.Error) {
	what, who, why, mode := args[0].(string), args[1].(string), args[2].(string), args[3].(string)
	known := []string{"shutdown", "sleep", "idle", "handle-power-key", "handle-suspend-key", "handle-hibernate-key", "handle-lid-switch", "handle-reboot-key"}
	for part := range strings.SplitSeq(what, ":") {
		if !slices.Contains(known, part) || (mode == "delay" && part != "shutdown" && part != "sleep") {
			return nil, fault(busError+"InvalidArgs", "invalid what %q for mode %q", what, mode)
		}
	}
	if mode != "block" && mode != "delay" {
		return nil, fault(busError+"InvalidArgs", "invalid mode specification %q", mode)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.preparing != "" && slices.Contains(strings.Split(what, ":"), "shutdown") {
		return nil, fault(loginError+"OperationInProgress", "the operation inhibition has been requested for is already running")
	}
	l.serial++
	i := &inhibitor{
		what: what, who: who, why: why, mode: mode, uid: uint32(os.Getuid()), pid: uint32(os.Getpid()),
		path: filepath.Join(l.root, "run/systemd/inhibit", fmt.Sprintf("%d.ref", l.serial)),
	}
	if err := unix.Mkfifo(i.path, 0o600); err != nil {
		return nil, fault(busError+"Failed", "mkfifo %s: %v", i.path, err)
	}
	if err := l.open(i); err != nil {
		return nil, fault(busError+"Failed", "%v", err)
	}
	writer, err := unix.Open(i.path, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fault(busError+"Failed", "open %s: %v", i.path, err)
	}
	l.inhibitors = append(l.inhibitors, i)
	go l.await(i, i.fifo)
	l.sendInhibitors()
	return []any{dbus.UnixFD(writer)}, nil
}

func (l *login1) list([]any) ([]any, *dbus.Error) {
	type entry struct {
		What, Who, Why, Mode string
		UID, PID             uint32
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	entries := []entry{}
	for _, i := range l.inhibitors {
		uid := i.uid
		if l.roots {
			uid = 0
		}
		entries = append(entries, entry{i.what, i.who, i.why, i.mode, uid, i.pid})
	}
	return []any{entries}, nil
}

// shutDown announces a shutdown, and then waits for locks or proceeds at once.
func (l *login1) shutDown(kind string) *dbus.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.preparing != "" {
		return fault(loginError+"OperationInProgress", "there's already a shutdown or sleep operation in progress")
	}
	l.preparing = kind
	if l.next.Kind == "" {
		l.next = scheduledShutdown{Kind: kind} // as on Debian 12
	}
	l.announce(kind, true)
	if !l.delayed() {
		l.proceed()
		return nil
	}
	l.deadline = time.AfterFunc(l.maxDelay, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.deadline != nil {
			l.proceed()
		}
	})
	return nil
}

// abort ends a shutdown whose job was cancelled.
func (l *login1) abort() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if kind := l.preparing; kind != "" {
		l.forget()
		l.announce(kind, false)
	}
}

// cancelShutdown cancels a delayed shutdown like systemd 257: without a signal.
func (l *login1) cancelShutdown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget()
}

// announce sends the signals of this version of logind, the newer one first. The caller holds mu.
func (l *login1) announce(kind string, active bool) {
	if l.metadata {
		l.bus.emit(l.service, loginPath, loginManager, "PrepareForShutdownWithMetadata",
			active, map[string]dbus.Variant{"type": dbus.MakeVariant(kind)})
	}
	l.bus.emit(l.service, loginPath, loginManager, "PrepareForShutdown", active)
}

func (l *login1) schedule(args []any) ([]any, *dbus.Error) {
	kind := args[0].(string)
	if !slices.Contains([]string{"reboot", "poweroff", "halt", "kexec"}, kind) {
		return nil, fault(busError+"InvalidArgs", "unsupported shutdown type %q", kind)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.scheduled != nil {
		l.scheduled.Stop()
	}
	l.next = scheduledShutdown{kind, args[1].(uint64)}
	l.scheduled = time.AfterFunc(time.Until(time.UnixMicro(int64(args[1].(uint64)))), func() { l.shutDown(kind) })
	return nil, nil
}

func (l *login1) cancelSchedule([]any) ([]any, *dbus.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	cancelled := l.scheduled != nil && l.scheduled.Stop()
	l.scheduled, l.next = nil, scheduledShutdown{}
	return []any{cancelled}, nil
}

// scheduledShutdown is the value of the property ScheduledShutdown; the zero value means none.
type scheduledShutdown struct {
	Kind         string
	Microseconds uint64
}
