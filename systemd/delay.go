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

// DropInPath is the drop-in with which hostler raises logind's InhibitDelayMaxSec while it runs. It
// is in /run, so that it disappears with a reboot. Its name sorts after those of packages:
// unattended-upgrades-logind-maxdelay.conf allows 30 s, and wins over kubelet's 99-kubelet.conf
// (kubernetes#102818).
const DropInPath = "/run/systemd/logind.conf.d/zz-hostler.conf"

const (
	systemdManager = bus.Systemd + ".Manager"
	systemdUnit    = bus.Systemd + ".Unit"
	logindUnit     = "systemd-logind.service"
)

// longestDelay is logind's InhibitDelayMaxSec, and the drop-in that raises it.
type longestDelay struct {
	bus  *bus.Connection
	root string // folder in which logind's configuration is

	raising sync.Mutex   // allows one change of the drop-in at a time
	seen    atomic.Int64 // last delay that RaiseMaxDelay found, in nanoseconds; 0 if none. follow reads it during a change
}

// MaxDelay returns logind's InhibitDelayMaxUSec, 5 s by default.
func (m *longestDelay) MaxDelay(ctx context.Context) (time.Duration, error) {
	ctx, cancel := m.bus.Bounded(ctx)
	defer cancel()
	var microseconds uint64
	if err := get(ctx, m.bus, "InhibitDelayMaxUSec", &microseconds); err != nil {
		return 0, err
	}
	return fromMicroseconds(microseconds), nil
}

// Files returns what logind's files currently set; logind may have read an older version.
func (m *longestDelay) Files() logindconf.Delay { return logindconf.ReadDelay(m.root, DropInPath) }

// RaiseMaxDelay makes logind grant d, now and after it reads its files again. It writes the drop-in
// DropInPath, unless another file sets as much, makes logind read its files, and waits for the
// result. If another file overrides the drop-in, it returns the granted delay and an error that
// names that file. It is idempotent. It lowers the delay only if another client removed the file
// that had set it.
func (m *longestDelay) RaiseMaxDelay(ctx context.Context, d time.Duration) (granted time.Duration, err error) {
	ctx, cancel := m.bus.Bounded(ctx)
	defer cancel()
	m.raising.Lock()
	defer m.raising.Unlock()

	granted, err = m.MaxDelay(ctx)
	if err != nil {
		return granted, err
	}
	// Before the files are opened: that wakes follow, which compares this value.
	m.seen.Store(int64(granted))
	defer func() { m.seen.Store(int64(granted)) }()
	changed, err := m.arrangeDropIn(d)
	if err != nil && granted < d {
		return granted, fmt.Errorf("%s: %w; %s", shortage(granted, d), err, m.writeHint(err))
	}
	files := m.Files()
	expected := files.Effective.Max
	// If a reload would lower the delay, logind is not reloaded, except if the lower value is
	// enough. Then the file with the larger value was removed.
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

// WriteHint returns the fix if hostler's drop-in cannot be written; empty if it can.
func (m *longestDelay) WriteHint() string {
	folder := filepath.Join(m.root, filepath.Dir(DropInPath))
	err := unix.Access(folder, unix.W_OK)
	if errors.Is(err, fs.ErrNotExist) { // hostler creates the folder
		err = unix.Access(filepath.Dir(folder), unix.W_OK)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return m.writeHint(err)
}

// writeHint returns the fix for a drop-in that cannot be written. hostler.service may write only to
// its folder, and only if the folder existed when the service started. A drop-in of the service may
// forbid that, too.
func (m *longestDelay) writeHint(err error) string {
	folder := filepath.Dir(DropInPath)
	_, missing := os.Stat(filepath.Join(m.root, folder))
	switch {
	case !errors.Is(err, unix.EROFS):
		return "make " + folder + " writable"
	case missing != nil:
		return "run `systemd-tmpfiles --create hostler.conf`, then `systemctl restart hostler`"
	}
	return "see `systemctl cat hostler`, and remove the setting that makes " + folder + " read-only, such as ReadOnlyPaths=; then `systemctl daemon-reload && systemctl restart hostler`"
}

// short returns err if less than d is granted, else nil.
func short(granted, d time.Duration, err error) error {
	if granted >= d {
		return nil
	}
	return err
}

// arrangeDropIn writes the drop-in if the files set less than d. It removes it if other files set
// as much or more, because the drop-in would lower that. It lowers a larger value in an old drop-in
// to d. It reports whether it changed anything; it does not change an overridden drop-in.
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

// dropIn returns the content of the drop-in for d.
func dropIn(d time.Duration) string {
	value := "infinity"
	if d < math.MaxInt64 {
		value = strconv.FormatInt(int64(math.Ceil(d.Seconds())), 10)
	}
	return "# Written by hostler while it runs, so that pods get their grace at shutdown.\n[Login]\nInhibitDelayMaxSec=" + value + "\n"
}

// YieldMaxDelay removes the drop-in if other files set as much or more, and makes logind read them.
// Another owner of the shutdown, such as a kubelet, has written them. If the granted delay comes
// only from the drop-in, it stays. The other owner depends on it: a kubelet that finds a sufficient
// delay writes no file.
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

// settle waits until awaited returns true for the granted delay, because no reload of logind waits
// until the new configuration is effective.
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

// MaxDelaySource returns the file that sets InhibitDelayMaxSec, or "" for the default. It reads the
// current files, which logind may not have read yet.
func (m *longestDelay) MaxDelaySource(context.Context) (string, error) {
	files := m.Files()
	if files.Unreadable != nil {
		return files.Effective.Source, fmt.Errorf("find source of logind's InhibitDelayMaxSec: %w", files.Unreadable)
	}
	return files.Effective.Source, nil
}

// restoreBound is how long RestoreMaxDelay waits for logind. It is called when the service stops,
// even on a busy host.
const restoreBound = 3 * time.Second

// RestoreMaxDelay removes the drop-in, even one of a crashed process, and makes logind read its
// configuration. It waits for the result, so that a following RaiseMaxDelay does not find the old
// delay. Without a drop-in it does nothing. If it cannot reach logind, it returns an error, but the
// file is removed.
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

// reload makes logind read its configuration: by its unit's reload, if there is one
// (Type=notify-reload), else by SIGHUP, which all versions support.
//
// If logind is about to be stopped, as in `systemctl isolate rescue.target`, its unit cannot be
// reloaded. A reload with mode "replace" would replace the stop (seen on Debian 13), and logind
// would continue without a bus.
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

// sendHUP makes logind read its configuration by SIGHUP. Unlike a reload job of systemd, the signal
// does not wait until hostler has stopped, which is ordered before it. SIGHUP would kill a logind
// that is still starting; once its name is on the bus, it handles the signal.
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

// managerFault is fault for calls to the manager: its absence is not an error of logind.
func managerFault(operation string, err error) error {
	if bus.Absent(err) {
		return fmt.Errorf("%s: systemd is not on the system bus: %w; is the dbus service running?", operation, err)
	}
	return fault(operation, err)
}

// writeAtomically writes a file so that readers see all of it or nothing. It does not sync, because
// /run is in memory.
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

// fromMicroseconds converts a duration from systemd. Infinity and values beyond time.Duration
// become the maximum.
func fromMicroseconds(us uint64) time.Duration {
	if us > math.MaxInt64/uint64(time.Microsecond) {
		return math.MaxInt64
	}
	return time.Duration(us) * time.Microsecond
}
