// Package conditions runs the checks that an administrator has put into a folder. Each check is an
// executable that reports whether one condition has a problem.
//
// It owns which files are checks, as which user and how often they run, and their last results.
// It refuses to run files that users other than root can write. What a result means for the Node
// is decided by package status.
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

// DefaultFolder is where checks lie on a host.
const DefaultFolder = "/etc/hostler/conditions.d"

// The bounds of what a file may request.
const (
	MinInterval = time.Second
	MaxInterval = 7 * 24 * time.Hour
	MinTimeout  = 100 * time.Millisecond
	MaxTimeout  = time.Hour
)

// Policy is where checks lie, and how they run where they do not say it themselves.
type Policy struct {
	Folder   string        // an absolute path
	Interval time.Duration // from one start of a check to the next
	Timeout  time.Duration // of one run
	Optional bool          // it is no fault if there is no folder
}

// Validate reports what of a policy cannot be. Each fault is a *field.Error.
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

// outside says that a duration lies outside its bounds.
func outside(d, least, most time.Duration) string {
	switch {
	case d < least:
		return fmt.Sprintf("%v is shorter than %v", d, least)
	case d > most:
		return fmt.Sprintf("%v is longer than %v", d, most)
	}
	return ""
}

// Program is a file of the folder that may be run, and what it is to be run for.
type Program struct {
	Path string
	Type corev1.NodeConditionType
	// Reason is the condition's while there is a problem, and that of Events.
	Reason    string
	Interval  time.Duration
	Timeout   time.Duration
	User      string // as whom it runs
	Temporary bool   // its problems are Events, and no condition

	stamp string // differs once the file has changed
	as    identity
}

// Fault is why a file, or the whole folder, is not run.
type Fault struct {
	Path    string `json:"path"`
	Line    int    `json:"line,omitempty"` // 0 where it is about the file as a whole
	Problem string `json:"problem"`
	Fix     string `json:"hint"`

	off          bool // somebody may have switched it off so
	unresponsive bool // the folder does not answer
}

// String writes the fault as path:line: problem.
func (f Fault) String() string {
	if f.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", f.Path, f.Line, f.Problem)
	}
	return f.Path + ": " + f.Problem
}

// Check is a check and what it said last, as `hostler status -o json` shows it.
type Check struct {
	Path      string                   `json:"path"`
	Type      corev1.NodeConditionType `json:"type"`
	Temporary bool                     `json:"temporary"`
	User      string                   `json:"user"`
	Interval  metav1.Duration          `json:"interval"`
	Timeout   metav1.Duration          `json:"timeout"`
	Answer    status.Answer            `json:"answer"`
	Message   string                   `json:"message"`
	LastRun   *time.Time               `json:"lastRun"`  // its start; null before the first
	Duration  metav1.Duration          `json:"duration"` // of that
	// LocalOnly reports that the condition is not published, since the Node is a kubelet's.
	LocalOnly bool `json:"localOnly,omitempty"`
	// Faulty reports that the check is not run because of one of the faults, and Fault which.
	Faulty bool   `json:"faulty,omitempty"`
	Fault  *Fault `json:"fault,omitempty"`
}

// Result is what came of one run.
type Result struct {
	Answer  status.Answer
	Message string
	Started time.Time
	Took    time.Duration

	printed string // by the check itself, of Message
}
