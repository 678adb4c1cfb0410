package logindconf

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Delay is what logind's files currently set; logind may have read an older version.
type Delay struct {
	path string // path of hostler's drop-in

	// Effective is the setting of all files; Others is the setting without hostler's drop-in.
	Effective, Others Setting
	// After is the setting of files that are read after the drop-in and override it; without a
	// Source if there are none.
	After Setting
	// DropIn reports whether hostler's drop-in exists, even if it has no effect.
	DropIn bool
	// MaskedBy is the path of a file with the drop-in's name that masks it, or "".
	MaskedBy string
	// Broken is the path of a file at which logind stops reading, or "".
	Broken string
	// Invalid are the settings that logind ignores.
	Invalid []Invalid
	// Unreadable is an error that names the files and folders that could not be read, or nil.
	Unreadable error
}

// Invalid is a value that logind cannot parse.
type Invalid struct{ Path, Value string }

// ReadDelay reads logind's files below root. dropIn is the path of hostler's drop-in, such as
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

// Obstacle says, with a hint, why logind does not grant d: a file masks the drop-in or is read
// after it, or logind has not read it.
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
