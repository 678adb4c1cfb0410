package logindconf

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Delay is what the files that logind reads say of its longest delay, now;
// logind may run with an older reading.
type Delay struct {
	path string // of hostler's drop-in

	// Effective is what they set together, and Others what they would set
	// without hostler's drop-in.
	Effective, Others Setting
	// After is what files that are read after the drop-in set, which beats it; it
	// has no Source where none does.
	After Setting
	// DropIn reports that hostler's drop-in is there, whether or not it counts.
	DropIn bool
	// MaskedBy is the path of a file of the drop-in's name that hides it, or empty.
	MaskedBy string
	// Broken is the path of a file that logind gives up at, with all that it would
	// read after it; empty where it reads to the end.
	Broken string
	// Invalid are the settings that logind passes over.
	Invalid []Invalid
	// Unreadable names the files and folders that could not be read, or is nil.
	Unreadable error
}

// Invalid is a value that logind does not understand.
type Invalid struct{ Path, Value string }

// ReadDelay reads them below root. dropIn is the path of hostler's own, such as
// "/run/systemd/logind.conf.d/zz-hostler.conf".
func ReadDelay(root, dropIn string) Delay {
	files, err := Load(root)
	r := Delay{path: dropIn, Effective: Effective(files), Unreadable: err}
	for _, file := range files {
		if filepath.Base(file.Path) == filepath.Base(dropIn) && file.Path != dropIn {
			r.MaskedBy = file.Path
		}
	}
	lines, broken := delayLines(files)
	r.Broken = broken
	for _, line := range lines {
		switch {
		case !line.valid:
			r.Invalid = append(r.Invalid, Invalid{line.Source, line.value})
		case filepath.Base(line.Source) > filepath.Base(dropIn):
			r.After = line.Setting
		}
	}
	_, err = os.Lstat(filepath.Join(root, dropIn))
	r.DropIn = err == nil
	r.Others = Effective(slices.DeleteFunc(files, func(f File) bool { return f.Path == dropIn }))
	return r
}

// Obstacle says, with the hint, what keeps logind from granting d: a file that
// hides the drop-in or is read after it, or a logind that has not read it.
func (f Delay) Obstacle(d time.Duration) string {
	var obstacle string
	switch {
	case f.Effective.Max >= d && f.Broken != "" && f.Unreadable != nil:
		return fmt.Sprintf("because logind stops reading at %s; fix or remove it: %v", f.Broken, f.Unreadable)
	case f.Effective.Max >= d:
		return fmt.Sprintf("although the files set %v: logind has not read them yet; run `systemctl restart systemd-logind`", f.Effective.Max)
	case f.Broken != "" && f.Effective.Source != f.path && f.After.Source == "":
		obstacle = fmt.Sprintf("because %s is corrupt or unreadable, and logind reads nothing after it; fix or remove it", f.Broken)
	case f.MaskedBy != "":
		obstacle = fmt.Sprintf("because %s masks %s; remove it", f.MaskedBy, f.path)
	case f.Effective.Source != "" && f.Effective.Source != f.path:
		obstacle = fmt.Sprintf("because %s sets InhibitDelayMaxSec= to %v and is read after %s; raise it there to %v or more, or remove it",
			f.Effective.Source, f.Effective.Max, f.path, d)
	default:
		obstacle = fmt.Sprintf("because %s does not set it", f.path)
	}
	if f.Unreadable != nil {
		return fmt.Sprintf("%s; some of logind's files cannot be read: %v", obstacle, f.Unreadable)
	}
	return obstacle
}
