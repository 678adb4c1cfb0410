// Package conditions runs the custom checks in a folder. Each check is an executable that reports
// whether one condition has a problem.
//
// It decides which files are checks, as which user and how often they run, and has their last
// results. It does not run files that users other than root can write. Package status decides what
// a result means for the Node.
package conditions

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/internal/field"
	"hostler.io/hostler/status"
)

// DefaultFolder is the default folder of checks.
const DefaultFolder = "/etc/hostler/conditions.d"

// Limits of values in a header.
const (
	MinInterval = time.Second
	MaxInterval = 7 * 24 * time.Hour
	MinTimeout  = 100 * time.Millisecond
	MaxTimeout  = time.Hour
)

// Policy says where checks are, and how they run by default.
type Policy struct {
	Folder   string        // an absolute path
	Interval time.Duration // from one start of a check to the next
	Timeout  time.Duration // of one run
	Optional bool          // a missing folder is not a fault
	User     string        // runs checks that name no user; account.Unprivileged if empty
}

// Validate returns the faults of a policy. Each is a *field.Error.
func (p Policy) Validate() error {
	var errs []error
	if !filepath.IsAbs(p.Folder) {
		errs = append(errs, field.Errorf("conditions.directory", "%q is not an absolute path", p.Folder))
	}
	if problem := outside(p.Interval, MinInterval, MaxInterval); problem != "" {
		errs = append(errs, field.Errorf("conditions.interval", "%s", problem))
	}
	if problem := outside(p.Timeout, MinTimeout, MaxTimeout); problem != "" {
		errs = append(errs, field.Errorf("conditions.timeout", "%s", problem))
	}
	return errors.Join(errs...)
}

// outside says that a duration is out of range.
func outside(d, least, most time.Duration) string {
	switch {
	case d < least:
		return fmt.Sprintf("%v is shorter than %v", d, least)
	case d > most:
		return fmt.Sprintf("%v is longer than %v", d, most)
	}
	return ""
}

// Program is an executable file of the folder, with its settings.
type Program struct {
	Path string
	Type corev1.NodeConditionType
	// Reason is the reason of the condition while there is a problem, and of Events.
	Reason    string
	Interval  time.Duration
	Timeout   time.Duration
	User      string // runs the check
	Temporary bool   // a problem is an Event, not a condition

	stamp string // changes with the file
}

// Fault says why a file, or all files of the folder, are not run.
type Fault struct {
	Path    string `json:"path"`
	Line    int    `json:"line,omitempty"` // 0 if it is about the whole file
	Problem string `json:"problem"`
	Fix     string `json:"hint"`

	off          bool // somebody may have disabled it this way
	unresponsive bool // the folder does not answer
}

// String formats the fault as path:line: problem.
func (f Fault) String() string {
	if f.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", f.Path, f.Line, f.Problem)
	}
	return f.Path + ": " + f.Problem
}

// Check is a check with its last result, as `hostler status -o json` shows it.
type Check struct {
	Path      string                   `json:"path"`
	Type      corev1.NodeConditionType `json:"type"`
	Temporary bool                     `json:"temporary"`
	User      string                   `json:"user"`
	Interval  metav1.Duration          `json:"interval"`
	Timeout   metav1.Duration          `json:"timeout"`
	Answer    status.Answer            `json:"answer"`
	Message   string                   `json:"message"`
	LastRun   *time.Time               `json:"lastRun"`  // start of the last run; null before the first
	Duration  metav1.Duration          `json:"duration"` // of the last run
	// LocalOnly means that the condition is not published, because the Node belongs to a kubelet.
	LocalOnly bool `json:"localOnly,omitempty"`
	// Faulty means that the check is not run because of Fault.
	Faulty bool   `json:"faulty,omitempty"`
	Fault  *Fault `json:"fault,omitempty"`
}

// ManualCommand returns the command that runs the check manually, without the environment of the person.
func (c Check) ManualCommand() string {
	if c.User == root {
		return "setpriv --reset-env " + c.Path
	}
	return "setpriv --reset-env --reuid=" + c.User + " --regid=$(id -g " + c.User + ") --init-groups --no-new-privs " + c.Path
}

// RunHint says how to run the check manually.
func (c Check) RunHint() string { return c.Path + ": to run it manually: " + c.ManualCommand() }

// Result is the result of one run.
type Result struct {
	Answer  status.Answer
	Message string
	Started time.Time
	Took    time.Duration

	printed string // part of Message that the check printed
}
