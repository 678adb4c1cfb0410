package systemd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
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
// writes the drop-in DropInPath, has logind read it, and waits until logind
// says so. Where another file overrides the drop-in, the error names it, and
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
	seconds := int64(math.Ceil(d.Seconds()))
	text := fmt.Sprintf("# Written by hostler while it runs, so that pods get their grace at shutdown.\n[Login]\nInhibitDelayMaxSec=%d\n", seconds)
	if err := writeAtomically(filepath.Join(l.options.Root, DropInPath), text); err != nil {
		return granted, fmt.Errorf("%s: %w", operation, err)
	}
	// Files that cannot be read are passed over by logind as well.
	files, unreadable := LogindConfig(l.options.Root)
	expected := EffectiveDelay(files)
	if err := l.reload(ctx); err != nil {
		return granted, fmt.Errorf("%s: granted %v: %w", operation, granted, err)
	}
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		latest, err := l.MaxDelay(ctx)
		if err == nil {
			granted = latest
		}
		switch {
		case err == nil && granted >= d:
			return granted, nil
		case err == nil && expected.Max < d && granted == expected.Max:
			return granted, fmt.Errorf("%s: granted %v, because %s", operation, granted, overrider(files, expected))
		}
		select {
		case <-ctx.Done():
			return granted, fmt.Errorf("%s: granted %v, and logind did not take up %s: %w; see systemctl status %s",
				operation, granted, DropInPath, errors.Join(ctx.Err(), err, unreadable), logindUnit)
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

// RestoreMaxDelay removes the drop-in, also one that a crashed process left,
// and has logind read its configuration again. Where there is none it does
// nothing. The file is gone even where an error tells that logind was not
// reached.
func (l *Logind) RestoreMaxDelay(ctx context.Context) error {
	ctx, cancel := l.bus.bounded(ctx)
	defer cancel()
	l.raising.Lock()
	defer l.raising.Unlock()
	err := os.Remove(filepath.Join(l.options.Root, DropInPath))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("restore logind's longest delay: %w", err)
	}
	if err := l.reload(ctx); err != nil {
		return fmt.Errorf("restore logind's longest delay: %w", err)
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
