package systemd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// DropInPath is where hostler raises logind's longest delay, while it runs: in
// /run, so that it is gone after a boot, and with a name that sorts after what
// packages ship (unattended-upgrades-logind-maxdelay.conf allows 30 s and beats
// kubelet's 99-kubelet.conf, kubernetes#102818).
const DropInPath = "/run/systemd/logind.conf.d/zz-hostler.conf"

const (
	systemdName    = "org.freedesktop.systemd1"
	systemdPath    = dbus.ObjectPath("/org/freedesktop/systemd1")
	systemdManager = "org.freedesktop.systemd1.Manager"
	systemdUnit    = "org.freedesktop.systemd1.Unit"
	logindUnit     = "systemd-logind.service"
)

// RaiseMaxDelay sees to it that logind grants d: where it does not yet, it
// writes the drop-in DropInPath, unless another file sets as much, has logind
// read its configuration, and waits until it says so. Where another file overrides the drop-in, the error names it, and
// what logind does grant is returned with it. Idempotent. It never lowers.
func (l *Logind) RaiseMaxDelay(ctx context.Context, d time.Duration) (time.Duration, error) {
	ctx, cancel := l.bus.bounded(ctx)
	defer cancel()
	l.raising.Lock()
	defer l.raising.Unlock()

	granted, err := l.MaxDelay(ctx)
	if err != nil || granted >= d {
		return granted, err
	}
	operation := fmt.Sprintf("raise logind's longest delay to %v", d)
	if err := l.writeDropIn(d); err != nil {
		return granted, fmt.Errorf("%s: %w", operation, err)
	}
	// Files that cannot be read are passed over by logind as well.
	files, unreadable := LogindConfig(l.options.Root)
	expected := EffectiveDelay(files)
	if err := l.reload(ctx); err != nil {
		return granted, fmt.Errorf("%s: granted %v: %w", operation, granted, err)
	}
	granted, err = l.settle(ctx, func(now time.Duration) bool {
		return now >= d || (expected.Max < d && now == expected.Max)
	})
	switch {
	case err != nil:
		return granted, fmt.Errorf("%s: granted %v, and logind did not take up %s: %w; see systemctl status %s",
			operation, granted, DropInPath, errors.Join(err, unreadable), logindUnit)
	case granted < d:
		return granted, fmt.Errorf("%s: granted %v, because %s", operation, granted, overrider(files, expected))
	}
	return granted, nil
}

// writeDropIn sets d where no other file sets as much. Where one does, which
// logind was not told of yet, ours would cut it down, and goes.
func (l *Logind) writeDropIn(d time.Duration) error {
	path := filepath.Join(l.options.Root, DropInPath)
	files, _ := LogindConfig(l.options.Root) // what cannot be read does not count
	files = slices.DeleteFunc(files, func(f ConfigFile) bool { return f.Path == DropInPath })
	if EffectiveDelay(files).Max >= d {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	seconds := int64(math.Ceil(d.Seconds()))
	text := fmt.Sprintf("# Written by hostler while it runs, so that pods get their grace at shutdown.\n[Login]\nInhibitDelayMaxSec=%d\n", seconds)
	return writeAtomically(path, text)
}

// settle waits until logind grants a delay that is as awaited: neither way of
// reloading waits for the new configuration to count.
func (l *Logind) settle(ctx context.Context, awaited func(time.Duration) bool) (granted time.Duration, err error) {
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		latest, err := l.MaxDelay(ctx)
		if err == nil {
			granted = latest
			if awaited(granted) {
				return granted, nil
			}
		}
		select {
		case <-ctx.Done():
			return granted, errors.Join(ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

// overrider names who keeps the drop-in from counting, and the mend.
func overrider(files []ConfigFile, effective DelaySetting) string {
	for _, file := range files {
		if filepath.Base(file.Path) == filepath.Base(DropInPath) && file.Path != DropInPath {
			return fmt.Sprintf("%s masks %s; remove it", file.Path, DropInPath)
		}
	}
	return fmt.Sprintf("%s sets InhibitDelayMaxSec= and is read after %s; raise it there, or remove it", effective.Source, DropInPath)
}

// MaxDelaySource is the path of the file that sets logind's longest delay, or
// empty for its own default. It reads the files as they are now; a logind that
// nobody told of a change runs with an older reading.
func (l *Logind) MaxDelaySource(context.Context) (string, error) {
	files, err := LogindConfig(l.options.Root)
	if err != nil {
		err = fmt.Errorf("find what sets logind's longest delay: %w", err)
	}
	return EffectiveDelay(files).Source, err
}

// restoreBound is how long RestoreMaxDelay waits for logind: it is called when
// the service stops.
const restoreBound = time.Second

// RestoreMaxDelay removes the drop-in, also one that a crashed process left,
// has logind read its configuration again, and waits until it did: a
// RaiseMaxDelay that follows must not find the delay of before. Where there is
// no drop-in it does nothing. The file is gone even where an error tells that
// logind was not reached.
func (l *Logind) RestoreMaxDelay(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, restoreBound)
	defer cancel()
	l.raising.Lock()
	defer l.raising.Unlock()
	const operation = "restore logind's longest delay"
	err := os.Remove(filepath.Join(l.options.Root, DropInPath))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	if err := l.reload(ctx); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	files, unreadable := LogindConfig(l.options.Root)
	expected := EffectiveDelay(files).Max
	if _, err := l.settle(ctx, func(now time.Duration) bool { return now == expected }); err != nil {
		return fmt.Errorf("%s to %v: %w", operation, expected, errors.Join(err, unreadable))
	}
	return nil
}

// reload has logind read its configuration again: by its unit's reload where it
// has one (Type=notify-reload), else by the SIGHUP that older ones understand.
func (l *Logind) reload(ctx context.Context) error {
	conn, err := l.bus.connection(ctx)
	if err != nil {
		return err
	}
	const operation = "reload " + logindUnit
	var unit dbus.ObjectPath
	if err := call(ctx, conn, systemdName, systemdPath, systemdManager+".GetUnit", &unit, logindUnit); err != nil {
		return managerFault(operation, err)
	}
	var canReload bool
	if err := property(ctx, conn, systemdName, unit, systemdUnit, "CanReload", &canReload); err != nil {
		return managerFault(operation, err)
	}
	if canReload {
		var job dbus.ObjectPath
		err = call(ctx, conn, systemdName, systemdPath, systemdManager+".ReloadUnit", &job, logindUnit, "replace")
	} else {
		err = call(ctx, conn, systemdName, systemdPath, systemdManager+".KillUnit", nil, logindUnit, "main", int32(unix.SIGHUP))
	}
	if err != nil {
		return managerFault(operation, err)
	}
	return nil
}

// managerFault is fault for calls to the manager, whose absence is not logind's.
func managerFault(operation string, err error) error {
	if absent(err) {
		return fmt.Errorf("%s: systemd is not on the system bus: %w", operation, err)
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
