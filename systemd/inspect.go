package systemd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// DelayFiles is what the files that logind reads say of its longest delay, now;
// logind may run with an older reading.
type DelayFiles struct {
	// Effective is what they set together, and Others what they would set
	// without hostler's drop-in.
	Effective, Others DelaySetting
	// After is what files that are read after the drop-in set, which beats it; it
	// has no Source where none does.
	After DelaySetting
	// DropIn tells that hostler's drop-in is there, whether or not it counts.
	DropIn bool
	// MaskedBy is the path of a file of the drop-in's name that hides it, or empty.
	MaskedBy string
	// Broken is the path of a file that logind gives up at, with all that it would
	// read after it; empty where it reads to the end.
	Broken string
	// Invalid are the settings that logind passes over.
	Invalid []InvalidSetting
	// Unreadable names the files and folders that could not be read, or is nil.
	Unreadable error
}

// InvalidSetting is a value that logind does not understand.
type InvalidSetting struct{ Path, Value string }

// ReadDelayFiles reads them below root.
func ReadDelayFiles(root string) DelayFiles {
	files, err := LogindConfig(root)
	r := DelayFiles{Effective: EffectiveDelay(files), Unreadable: err}
	for _, file := range files {
		if filepath.Base(file.Path) == filepath.Base(DropInPath) && file.Path != DropInPath {
			r.MaskedBy = file.Path
		}
	}
	lines, broken := delayLines(files)
	r.Broken = broken
	for _, line := range lines {
		switch {
		case !line.valid:
			r.Invalid = append(r.Invalid, InvalidSetting{line.Source, line.value})
		case filepath.Base(line.Source) > filepath.Base(DropInPath):
			r.After = line.DelaySetting
		}
	}
	_, err = os.Lstat(filepath.Join(root, DropInPath))
	r.DropIn = err == nil
	r.Others = EffectiveDelay(slices.DeleteFunc(files, func(f ConfigFile) bool { return f.Path == DropInPath }))
	return r
}

// Obstacle says, with the mend, what keeps logind from granting d: a file that
// hides the drop-in or is read after it, or a logind that has not read it.
func (f DelayFiles) Obstacle(d time.Duration) string {
	var obstacle string
	switch {
	case f.Effective.Max >= d:
		return fmt.Sprintf("although the files set %v: logind runs with an older reading; try `systemctl restart %s`", f.Effective.Max, logindUnit)
	case f.Broken != "" && f.Effective.Source != DropInPath && f.After.Source == "":
		obstacle = fmt.Sprintf("because %s is torn or damaged, and logind reads nothing after it; mend or remove it", f.Broken)
	case f.MaskedBy != "":
		obstacle = fmt.Sprintf("because %s masks %s; remove it", f.MaskedBy, DropInPath)
	case f.Effective.Source != "" && f.Effective.Source != DropInPath:
		obstacle = fmt.Sprintf("because %s sets InhibitDelayMaxSec= to %v and is read after %s; raise it there to %v or more, or remove it",
			f.Effective.Source, f.Effective.Max, DropInPath, d)
	default:
		obstacle = fmt.Sprintf("because %s does not set it", DropInPath)
	}
	if f.Unreadable != nil {
		return fmt.Sprintf("%s; and not all of logind's files can be read: %v", obstacle, f.Unreadable)
	}
	return obstacle
}

// Held tells whether this process holds a lock that logind waits for, and
// whether the service manager keeps a duplicate of it.
func (l *Logind) Held() (held, stored bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil || !honoured(l.held.file) {
		return false, false
	}
	return true, l.held.stored
}

// Own returns those of locks that delay a shutdown in this service's name and
// were taken by this user. The process that took one may be an earlier one.
func (l *Logind) Own(locks []InhibitorLock) []InhibitorLock {
	return slices.DeleteFunc(slices.Clone(locks), func(k InhibitorLock) bool {
		return k.Who != l.options.Who || k.Mode != "delay" || !k.Inhibits("shutdown") || k.UID != uint32(os.Geteuid())
	})
}

// Files are ReadDelayFiles of this logind.
func (l *Logind) Files() DelayFiles { return ReadDelayFiles(l.options.Root) }
