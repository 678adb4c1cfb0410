package systemd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/systemdtest"
)

const patience = 5 * time.Minute

// newLogind returns a Logind for a fake, closed at the end of the test.
func newLogind(t *testing.T, fake *systemdtest.Fake) *systemd.Logind {
	t.Helper()
	logind := systemd.NewLogind(systemd.LogindOptions{Address: fake.Address(), Root: fake.Root()})
	t.Cleanup(func() { logind.Close() })
	return logind
}

// raise makes a lock that nobody releases outlast the test.
func raise(t *testing.T, logind *systemd.Logind) {
	t.Helper()
	if _, err := logind.RaiseMaxDelay(t.Context(), 5*time.Minute); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, true func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !true(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after %v: %s", patience, what)
		}
	}
}

// startWatch returns once the Watch has subscribed; it ends with the test.
func startWatch(t *testing.T, logind *systemd.Logind) <-chan shutdown.Event {
	t.Helper()
	events := make(chan shutdown.Event)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- logind.Watch(ctx, events) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch() = %v, want %v", err, context.Canceled)
		}
	})
	if got := next(t, events); got.Type != shutdown.Subscribed {
		t.Fatalf("Watch() sent %+v first, want Subscribed", got)
	}
	return events
}

func next(t *testing.T, events <-chan shutdown.Event) shutdown.Event {
	t.Helper()
	select {
	case event := <-events:
		return event
	case <-time.After(patience):
		t.Fatalf("Watch() sent nothing for %v", patience)
		return shutdown.Event{}
	}
}

func TestReloadUsesTheReloadOfLogindsUnit(t *testing.T) {
	for name, c := range map[string]struct {
		options systemdtest.FakeOptions
		want    string
	}{
		"no reload":                         {systemdtest.FakeOptions{}, "KillUnit main"},
		"a reload":                          {systemdtest.FakeOptions{CanReload: true}, "ReloadUnit fail"},
		"a reload, but it is about to stop": {systemdtest.FakeOptions{CanReload: true, Stops: true}, "KillUnit main"},
	} {
		options, want := c.options, c.want
		t.Run(name, func(t *testing.T) {
			fake := systemdtest.NewFake(t, options)
			logind := newLogind(t, fake)
			for range 2 { // the second has nothing to do
				if got, err := logind.RaiseMaxDelay(t.Context(), time.Minute); got != time.Minute || err != nil {
					t.Fatalf("RaiseMaxDelay(1m) = %v, %v, want 1m", got, err)
				}
			}
			if got := fake.Reloads(); !slices.Equal(got, []string{want}) {
				t.Errorf("logind was reloaded by %q, want %q once", got, want)
			}
		})
	}
}

// SIGHUP would kill a logind that is starting; such a logind reads its files anyway.
func TestOnlyALogindWithItsBusNameIsSignalled(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{CanReload: true})
	logind := newLogind(t, fake)
	if _, err := logind.RaiseMaxDelay(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	fake.KillLogind(t)
	if err := logind.RestoreMaxDelay(t.Context()); !errors.Is(err, systemd.ErrNoLogind) {
		t.Errorf("RestoreMaxDelay() = %v, want %v", err, systemd.ErrNoLogind)
	}
	if got := fake.Reloads(); !slices.Equal(got, []string{"ReloadUnit fail"}) {
		t.Errorf("logind received a notification from %q, want none about its end", got)
	}
	if _, err := os.Stat(filepath.Join(fake.Root(), systemd.DropInPath)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the drop-in is left: %v", err)
	}
}

// Before systemd 255, the kind is not announced, but in ScheduledShutdown.
func TestWatchReportsTheKind(t *testing.T) {
	const want = "poweroff"
	for _, options := range []systemdtest.FakeOptions{{}, {Metadata: true}} {
		fake := systemdtest.NewFake(t, options)
		events := startWatch(t, newLogind(t, fake))
		for range 2 {
			call(t, fake, "PowerOff", false)
			if got := next(t, events); got != (shutdown.Event{Type: shutdown.Prepare, Kind: want}) {
				t.Errorf("Watch() sent %+v, want Prepare of kind %q", got, want)
			}
			fake.AbortShutdown(t)
			if got := next(t, events); got != (shutdown.Event{Type: shutdown.Cancel}) {
				t.Errorf("Watch() sent %+v, want Cancel", got)
			}
		}
	}
}

// Seen on Debian 13, with an agent that had just started: a shutdown that is announced while the
// agent subscribes is reported with its kind, too.
func TestWatchReportsTheKindOfAnAnnouncementDuringSubscription(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{Metadata: true})
	var once sync.Once
	fake.OnSubscribe(func(member string) {
		if strings.HasPrefix(member, "PrepareForShutdown") {
			once.Do(func() {
				if err := request(fake, "PowerOff", false); err != nil {
					t.Error(err)
				}
			})
		}
	})
	events := startWatch(t, newLogind(t, fake))
	if got := next(t, events); got != (shutdown.Event{Type: shutdown.Prepare, Kind: "poweroff"}) {
		t.Errorf("Watch() sent %+v, want Prepare of kind %q", got, "poweroff")
	}
}

func TestPreparingKind(t *testing.T) {
	for _, options := range []systemdtest.FakeOptions{{}, {Metadata: true}} {
		fake := systemdtest.NewFake(t, options)
		logind := newLogind(t, fake)
		ask := func() (string, error) { return logind.PreparingKind(t.Context()) }
		if got, err := ask(); got != "" || err != nil {
			t.Errorf("PreparingKind() = %q, %v without a shutdown, want none", got, err)
		}
		call(t, fake, "PowerOff", false)
		if got, err := ask(); got != "poweroff" || err != nil {
			t.Errorf("PreparingKind() = %q, %v, want poweroff", got, err)
		}
		fake.AbortShutdown(t)
	}
}

// Seen on Debian 13: an announcement after an unannounced cancellation is not a repetition.
func TestWatchReportsAnAnnouncementAfterAnUnannouncedCancellation(t *testing.T) {
	for _, options := range []systemdtest.FakeOptions{{}, {Metadata: true}} {
		fake := systemdtest.NewFake(t, options)
		events := startWatch(t, newLogind(t, fake))
		for range 3 {
			call(t, fake, "PowerOff", false)
			if got := next(t, events); got != (shutdown.Event{Type: shutdown.Prepare, Kind: "poweroff"}) {
				t.Errorf("Watch() sent %+v, want Prepare of kind poweroff", got)
			}
			fake.CancelShutdown(t)
		}
	}
}

// A scheduled shutdown may have another kind than the announced one.
func TestTheKindOfAScheduledShutdownIsNotUsed(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	call(t, fake, "ScheduleShutdown", "poweroff", uint64(time.Now().Add(time.Hour).UnixMicro()))
	logind := newLogind(t, fake)
	events := startWatch(t, logind)
	call(t, fake, "Reboot", false)
	if got := next(t, events); got != (shutdown.Event{Type: shutdown.Prepare}) {
		t.Errorf("Watch() sent %+v, want Prepare of no kind", got)
	}
	if got, err := logind.PreparingKind(t.Context()); got != "" || err != nil {
		t.Errorf("PreparingKind() = %q, %v, want none", got, err)
	}
}

// call calls a method of logind, as another client on the bus.
func call(t *testing.T, fake *systemdtest.Fake, method string, args ...any) {
	t.Helper()
	if err := request(fake, method, args...); err != nil {
		t.Fatal(err)
	}
}

func request(fake *systemdtest.Fake, method string, args ...any) error {
	conn, err := dbus.Connect(fake.Address())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Object("org.freedesktop.login1", "/org/freedesktop/login1").Call("org.freedesktop.login1.Manager."+method, 0, args...).Err; err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

func TestWatchReportsACancellationOfAnEarlierAnnouncement(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	call(t, fake, "Reboot", false)
	events := startWatch(t, newLogind(t, fake))
	fake.AbortShutdown(t)
	if got := next(t, events); got.Type != shutdown.Cancel {
		t.Errorf("Watch() sent %+v, want Cancel", got)
	}
}

func TestWatchBelievesNobodyButLogind(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	events := startWatch(t, newLogind(t, fake))
	tamperer, err := dbus.Connect(fake.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer tamperer.Close()
	for _, body := range [][]any{{true}, {"yes"}, {}} {
		for serial := range 20 { // one of these is the watch's unique name
			msg := &dbus.Message{Type: dbus.TypeSignal, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
				dbus.FieldDestination: dbus.MakeVariant(fmt.Sprintf(":1.%d", serial)),
				dbus.FieldPath:        dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/login1")),
				dbus.FieldInterface:   dbus.MakeVariant("org.freedesktop.login1.Manager"),
				dbus.FieldMember:      dbus.MakeVariant("PrepareForShutdown"),
			}}
			if len(body) > 0 {
				msg.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
			}
			tamperer.Send(msg, nil)
		}
	}
	if err := tamperer.BusObject().Call("org.freedesktop.DBus.GetNameOwner", 0, "org.freedesktop.login1").Err; err != nil {
		t.Fatal(err) // answers are in order, so all forged signals were delivered
	}
	fake.Announce(false)
	if got := next(t, events); got.Type != shutdown.Cancel {
		t.Errorf("Watch() sent %+v, want Cancel, which alone is logind's", got)
	}
}

func TestALockThatComesTooLateIsClosed(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	logind := newLogind(t, fake)
	raise(t, logind)
	release := fake.Hold("Inhibit")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if lock, err := logind.Inhibit(ctx, "too slow"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Inhibit() = %v, %v, want %v", lock, err, context.DeadlineExceeded)
	}
	release()
	call(t, fake, "Reboot", false) // proceeds when nobody holds a lock
	fake.AwaitDown(t)
}

func TestEveryCallIsBounded(t *testing.T) {
	// After dbus-daemon has died, systemd's socket for it accepts connections, and nothing more.
	path := filepath.Join(t.TempDir(), "bus")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	logind := systemd.NewLogind(systemd.LogindOptions{Address: "unix:path=" + path, Root: t.TempDir(), Timeout: 10 * time.Millisecond})
	defer logind.Close()
	for name, ask := range map[string]func() error{
		"MaxDelay":       func() error { _, err := logind.MaxDelay(t.Context()); return err },
		"RaiseMaxDelay":  func() error { _, err := logind.RaiseMaxDelay(t.Context(), time.Hour); return err },
		"Inhibit":        func() error { _, err := logind.Inhibit(t.Context(), "in vain"); return err },
		"Preparing":      func() error { _, err := logind.Preparing(t.Context()); return err },
		"Watch":          func() error { return logind.Watch(t.Context(), nil) },
		"ListInhibitors": func() error { _, err := logind.ListInhibitors(t.Context()); return err },
	} {
		if err := ask(); !errors.Is(err, systemd.ErrNoBus) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s() = %v on a bus that hangs, want %v and %v", name, err, systemd.ErrNoBus, context.DeadlineExceeded)
		}
	}
}

func TestCloseLeavesNothingRunning(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	logind := systemd.NewLogind(systemd.LogindOptions{Address: fake.Address(), Root: fake.Root()})
	lock, err := logind.Inhibit(t.Context(), "to close it")
	if err != nil {
		t.Fatal(err)
	}
	watched := make(chan error, 1)
	events := make(chan shutdown.Event, 1)
	go func() { watched <- logind.Watch(context.Background(), events) }()
	next(t, events)
	for range 2 {
		if err := errors.Join(logind.Close(), lock.Close()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	}
	if err := <-watched; !errors.Is(err, systemd.ErrNoBus) {
		t.Errorf("Watch() = %v after Close, want %v", err, systemd.ErrNoBus)
	}
	if _, err := logind.Inhibit(t.Context(), "after the end"); !errors.Is(err, systemd.ErrNoBus) {
		t.Errorf("Inhibit() = %v after Close, want %v", err, systemd.ErrNoBus)
	}
	eventually(t, "no goroutine of the connection is left", func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:goruntime.Stack(stacks, true)]
		return !strings.Contains(string(stacks), "godbus/dbus/v5.(*Conn)") && !strings.Contains(string(stacks), "systemd.(*Logind)")
	})
}

// Any user can make the list of locks so long that logind cannot send it.
func TestALockNeedsNoListOfTheOthers(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	logind := newLogind(t, fake)
	defer fake.Hold("ListInhibitors")()
	for range 2 {
		if _, err := logind.Inhibit(t.Context(), "without a list"); err != nil || !logind.Held() {
			t.Fatalf("Inhibit() = %v, Held() = %v, want a lock", err, logind.Held())
		}
	}
}

func TestConcurrentLocksBecomeOne(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	logind := newLogind(t, fake)
	raise(t, logind)
	closers := make(chan io.Closer)
	for range 8 {
		go func() {
			lock, err := logind.Inhibit(t.Context(), "all at once")
			if err != nil {
				t.Errorf("Inhibit() = %v, want a lock", err)
			}
			closers <- lock
		}()
	}
	var all []io.Closer
	for range 8 {
		all = append(all, <-closers)
	}
	locks, err := logind.ListInhibitors(t.Context())
	if len(locks) != 1 || err != nil {
		t.Errorf("ListInhibitors() = %+v, %v, want one lock", locks, err)
	}
	for _, lock := range all {
		if err := lock.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	}
	call(t, fake, "Reboot", false)
	fake.AwaitDown(t)
}

func TestMaxDelaySourceNamesTheFileAndWhatItCannotRead(t *testing.T) {
	root := t.TempDir()
	folder := filepath.Join(root, "etc/systemd/logind.conf.d")
	dangling := filepath.Join(folder, "a.conf")
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.Symlink("nowhere", dangling), os.WriteFile(filepath.Join(folder, "b.conf"), []byte("[Login]\nInhibitDelayMaxSec=8"), 0o644)); err != nil {
		t.Fatal(err)
	}
	logind := systemd.NewLogind(systemd.LogindOptions{Root: root})
	defer logind.Close()
	if source, err := logind.MaxDelaySource(t.Context()); source != "/etc/systemd/logind.conf.d/b.conf" || err == nil || !strings.Contains(err.Error(), dangling) {
		t.Errorf("MaxDelaySource() = %q, %v, want b.conf and an error that names %s", source, err, dangling)
	}
}

func TestHeldIsTrueWhileLogindWaits(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	logind, other := newLogind(t, fake), newLogind(t, fake)
	if logind.Held() {
		t.Error("Held() = true before the first lock, want false")
	}
	lock, err := logind.Inhibit(t.Context(), "to hold it")
	if err != nil {
		t.Fatal(err)
	}
	locks, err := logind.ListInhibitors(t.Context())
	if own := logind.Own(locks); err != nil || len(own) != 1 || !logind.Held() || other.Held() {
		t.Errorf("Own() = %+v, %v, Held() = %v, another's %v, want one lock, true and false", own, err, logind.Held(), other.Held())
	}
	fake.KillLogind(t)
	if logind.Held() {
		t.Error("Held() = true without anybody who waits for it, want false")
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
}

// hostler.service may write to the folder of the drop-in only if it existed at the start. If it
// exists and is read-only all the same, a setting of the service is the cause.
func TestTheFixForAReadOnlyDropInIsThatOfItsCause(t *testing.T) {
	missing, there := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(there, filepath.Dir(systemd.DropInPath)), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		root string
		err  error
		want string
	}{
		"the folder does not exist":               {missing, unix.EROFS, "run `systemd-tmpfiles --create hostler.conf`"},
		"the folder is read-only for the service": {there, &fs.PathError{Err: unix.EROFS}, "see `systemctl cat hostler`, and remove the setting that makes /run/systemd/logind.conf.d read-only"},
		"the folder refuses writes":               {there, unix.EACCES, "make /run/systemd/logind.conf.d writable"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := systemd.WriteHint(c.root, c.err); !strings.HasPrefix(got, c.want) {
				t.Errorf("WriteHint() = %q, want it to begin with %q", got, c.want)
			}
		})
	}
	logind := systemd.NewLogind(systemd.LogindOptions{Root: there})
	defer logind.Close()
	if got := logind.WriteHint(); got != "" {
		t.Errorf("WriteHint() of a folder that can be written = %q, want none", got)
	}
}
