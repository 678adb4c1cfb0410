package systemd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/systemd/bus"
	"hostler.io/hostler/systemd/logindconf"
)

// DropInPath is where hostler raises logind's longest delay, while it runs: in
// /run, so that it is gone after a boot, and with a name that sorts after what
// packages ship (unattended-upgrades-logind-maxdelay.conf allows 30 s and beats
// kubelet's 99-kubelet.conf, kubernetes#102818).
const DropInPath = "/run/systemd/logind.conf.d/zz-hostler.conf"

const (
	systemdManager = bus.Systemd + ".Manager"
	systemdUnit    = bus.Systemd + ".Unit"
	logindUnit     = "systemd-logind.service"
)

// longestDelay is the longest delay that logind grants, and the drop-in that raises it.
type longestDelay struct {
	bus  *bus.Connection
	root string // the folder under which logind's configuration lies

	raising sync.Mutex   // one change of the drop-in at a time
	seen    atomic.Int64 // the delay as RaiseMaxDelay found it last, in nanoseconds; zero before. follow reads it during a change
}

// MaxDelay is logind's InhibitDelayMaxUSec: 5 s unless configured.
func (m *longestDelay) MaxDelay(ctx context.Context) (time.Duration, error) {
	ctx, cancel := m.bus.Bounded(ctx)
	defer cancel()
	var microseconds uint64
	if err := get(ctx, m.bus, "InhibitDelayMaxUSec", &microseconds); err != nil {
		return 0, err
	}
	return fromMicroseconds(microseconds), nil
}

// Files is what logind's files say of its longest delay, now; logind may run with
// an older reading.
func (m *longestDelay) Files() logindconf.Delay { return logindconf.ReadDelay(m.root, DropInPath) }

// RaiseMaxDelay makes logind grant d, now and after it reads its files again. It writes the drop-in
// DropInPath, unless another file sets as much, makes logind read its files, and waits for the
// result. If another file overrides the drop-in, the error names it, and the granted delay is
// returned with it. It is idempotent. It lowers the delay only if the file of another client that
// set it was removed.
func (m *longestDelay) RaiseMaxDelay(ctx context.Context, d time.Duration) (granted time.Duration, err error) {
	ctx, cancel := m.bus.Bounded(ctx)
	defer cancel()
	m.raising.Lock()
	defer m.raising.Unlock()

	granted, err = m.MaxDelay(ctx)
	if err != nil {
		return granted, err
	}
	// Before the files are opened, upon which follow compares it.
	m.seen.Store(int64(granted))
	defer func() { m.seen.Store(int64(granted)) }()
	changed, err := m.arrangeDropIn(d)
	if err != nil && granted < d {
		return granted, fmt.Errorf("%s: %w; %s", shortage(granted, d), err, writeHint(err))
	}
	files := m.Files()
	expected := files.Effective.Max
	// If logind would read less than it grants now, it is not reloaded, unless the lower value is
	// enough: then the file with the larger value was removed.
	if lowers := expected < granted; expected > granted || changed && expected >= min(d, granted) {
		if err := m.reload(ctx); err != nil {
			return granted, short(granted, d, fmt.Errorf("%s: %w; run `systemctl restart %s`", shortage(granted, d), err, logindUnit))
		}
		granted, err = m.settle(ctx, func(now time.Duration) bool { return now >= min(d, expected) && !(lowers && now > expected) })
		if err != nil {
			return granted, short(granted, d, fmt.Errorf("%s, and did not read %s: %w; run `systemctl restart %s`",
				shortage(granted, d), DropInPath, errors.Join(err, files.Unreadable), logindUnit))
		}
	}
	if granted < d {
		return granted, fmt.Errorf("%s, %s", shortage(granted, d), files.Obstacle(d))
	}
	return granted, nil
}

// shortage says that logind grants less than is needed.
func shortage(granted, needed time.Duration) string {
	return fmt.Sprintf("logind grants only %v of the %v needed", granted, needed)
}

// writeHint says what to do about a drop-in that cannot be written. hostler.service may write to
// its folder alone, and only if the folder was there when the service started.
func writeHint(err error) string {
	if errors.Is(err, unix.EROFS) {
		return "run `systemd-tmpfiles --create hostler.conf`, then `systemctl restart hostler`"
	}
	return "make " + filepath.Dir(DropInPath) + " writable"
}

// short is err where less than d is granted, and nothing to tell elsewhere.
func short(granted, d time.Duration, err error) error {
	if granted >= d {
		return nil
	}
	return err
}

// arrangeDropIn writes the drop-in if the files set less than d. It removes it if other files set
// as much or more, because the drop-in would lower that. A larger value in an old drop-in is
// lowered to d. It reports whether it changed anything: an overridden drop-in stays as it is.
func (m *longestDelay) arrangeDropIn(d time.Duration) (changed bool, err error) {
	path := filepath.Join(m.root, DropInPath)
	files := m.Files()
	switch {
	case files.Others.Max >= d && files.Others.Max >= files.Effective.Max:
		return removeDropIn(path)
	case files.Effective.Max >= d:
		return false, nil
	}
	text := dropIn(d)
	if old, err := os.ReadFile(path); err == nil && string(old) == text {
		return false, nil
	}
	return true, writeAtomically(path, text)
}

func removeDropIn(path string) (removed bool, err error) {
	err = os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// dropIn is the text that has logind grant d.
func dropIn(d time.Duration) string {
	value := "infinity"
	if d < math.MaxInt64 {
		value = strconv.FormatInt(int64(math.Ceil(d.Seconds())), 10)
	}
	return "# Written by hostler while it runs, so that pods get their grace at shutdown.\n[Login]\nInhibitDelayMaxSec=" + value + "\n"
}

// YieldMaxDelay removes the drop-in where other files set as much as it does, or
// more, and has logind read them: another owner of the shutdown, such as a
// kubelet, set them for itself. Where the drop-in alone grants what is granted
// it stays, for the other owner counts on that: a kubelet that finds enough
// granted writes no file of its own.
func (m *longestDelay) YieldMaxDelay(ctx context.Context) error {
	ctx, cancel := m.bus.Bounded(ctx)
	defer cancel()
	m.raising.Lock()
	defer m.raising.Unlock()
	if files := m.Files(); !files.DropIn || files.Others.Max < files.Effective.Max {
		return nil
	}
	if granted, err := m.MaxDelay(ctx); err != nil || m.Files().Others.Max < granted {
		return err
	}
	const operation = "leave logind's InhibitDelayMaxSec to the other owner"
	if _, err := removeDropIn(filepath.Join(m.root, DropInPath)); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	if err := m.reload(ctx); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}

// settle waits until logind grants a delay that is as awaited: neither way of
// reloading waits for the new configuration to count.
func (m *longestDelay) settle(ctx context.Context, awaited func(time.Duration) bool) (granted time.Duration, err error) {
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		latest, err := m.MaxDelay(ctx)
		if err == nil {
			granted = latest
			if awaited(granted) {
				return granted, nil
			}
		}
		if bounded.Sleep(ctx, pause) != nil {
			return granted, errors.Join(ctx.Err(), err)
		}
	}
}

// MaxDelaySource returns the file that sets the longest delay of logind; empty for the default. It
// reads the current files: logind may not have read them yet.
func (m *longestDelay) MaxDelaySource(context.Context) (string, error) {
	files := m.Files()
	if files.Unreadable != nil {
		return files.Effective.Source, fmt.Errorf("find source of logind's InhibitDelayMaxSec: %w", files.Unreadable)
	}
	return files.Effective.Source, nil
}

// restoreBound is how long RestoreMaxDelay waits for logind: it is called when the service
// stops, also on a host that is busy.
const restoreBound = 3 * time.Second

// RestoreMaxDelay removes the drop-in, also one that a crashed process left,
// has logind read its configuration again, and waits until it did: a
// RaiseMaxDelay that follows must not find the delay of before. Where there is
// no drop-in it does nothing. The file is gone even where an error reports that
// logind was not reached.
func (m *longestDelay) RestoreMaxDelay(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, restoreBound)
	defer cancel()
	m.raising.Lock()
	defer m.raising.Unlock()
	const operation = "restore logind's InhibitDelayMaxSec"
	err := os.Remove(filepath.Join(m.root, DropInPath))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	if err := m.sendHUP(ctx); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	files := m.Files()
	expected := files.Effective.Max
	if _, err := m.settle(ctx, func(now time.Duration) bool { return now == expected }); err != nil {
		return fmt.Errorf("%s to %v: %w", operation, expected, errors.Join(err, files.Unreadable))
	}
	return nil
}

// reload has logind read its configuration again: by its unit's reload where it
// has one (Type=notify-reload), else by the SIGHUP that all of them understand.
//
// Where logind is to be stopped, as in `systemctl isolate rescue.target`, there
// is no reload to be had: one of mode "replace" would take the place of the stop
// (seen on Debian 13), and logind would stay behind without a bus.
func (m *longestDelay) reload(ctx context.Context) error {
	conn, err := m.bus.Get(ctx)
	if err != nil {
		return err
	}
	const operation = "reload " + logindUnit
	var unit dbus.ObjectPath
	if err := bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".GetUnit", &unit, logindUnit); err != nil {
		return managerFault(operation, err)
	}
	var canReload bool
	if err := bus.Property(ctx, conn, bus.Systemd, unit, systemdUnit, "CanReload", &canReload); err != nil {
		return managerFault(operation, err)
	}
	if canReload {
		var job dbus.ObjectPath
		err = bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".ReloadUnit", &job, logindUnit, "fail")
	}
	if !canReload || bus.ErrorName(err) == "org.freedesktop.systemd1.TransactionIsDestructive" {
		return m.sendHUP(ctx)
	}
	if err != nil {
		return managerFault(operation, err)
	}
	return nil
}

// sendHUP has logind read its configuration again by SIGHUP. Unlike a job of systemd's that is
// not put off until hostler has stopped, which is ordered before it. One that is only starting
// would die of it: a logind that has its name on the bus heeds the signal.
func (m *longestDelay) sendHUP(ctx context.Context) error {
	conn, err := m.bus.Get(ctx)
	if err != nil {
		return err
	}
	var owner string
	if err := bus.Call(ctx, conn, bus.Name, bus.Path, bus.Name+".GetNameOwner", &owner, loginName); err != nil {
		return fault("reload "+logindUnit, err)
	}
	if err := bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".KillUnit", nil, logindUnit, "main", int32(unix.SIGHUP)); err != nil {
		return managerFault("reload "+logindUnit, err)
	}
	return nil
}

// managerFault is fault for calls to the manager, whose absence is not logind's.
func managerFault(operation string, err error) error {
	if bus.Absent(err) {
		return fmt.Errorf("%s: systemd is not on the system bus: %w; is the dbus service running?", operation, err)
	}
	return fault(operation, err)
}

// writeAtomically puts text where readers see all of it or nothing. It is not
// synced: /run is memory.
func writeAtomically(path, text string) error {
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(folder, ".hostler-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.WriteString(text)
	if err := errors.Join(err, temporary.Chmod(0o644), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

// fromMicroseconds converts a duration of systemd's, whose infinity and other
// values beyond time.Duration become the longest one.
func fromMicroseconds(us uint64) time.Duration {
	if us > math.MaxInt64/uint64(time.Microsecond) {
		return math.MaxInt64
	}
	return time.Duration(us) * time.Microsecond
}
