package configfile

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"hostler.io/hostler/internal/field"
)

// Checker collects faults of values that could be read. A fault has the line that set the value or,
// if no file sets it, the line of its section. If no file sets either, it has no line.
type Checker struct {
	origin origins
	unread []string // fields that could not be read
	faults Faults
}

// Sound reports whether a section has no fault so far.
func (k *Checker) Sound(section string) bool {
	for _, f := range k.faults {
		if within(f.Field, section) {
			return false
		}
	}
	for _, field := range k.unread {
		if within(field, section) || within(section, field) {
			return false
		}
	}
	return true
}

// Require records a fault at a field unless ok. It skips a fault that may be a consequence of a
// field that could not be read.
func (k *Checker) Require(ok bool, field, format string, args ...any) {
	if ok {
		return
	}
	problem := fmt.Sprintf(format, args...)
	if k.follows(field, problem) {
		return
	}
	at := k.origin.of(field)
	k.faults = append(k.faults, Fault{File: at.file, Line: at.line, Field: field, Problem: problem})
}

// follows reports whether a fault may be a consequence of a field that could not be read. It may be
// if it is at that field, or if it names that field or one beside it. It may also be if it is at a
// value beside it that no file sets.
func (k *Checker) follows(field, problem string) bool {
	for _, unread := range k.unread {
		section := parent(unread)
		name := strings.TrimPrefix(unread[len(section):], ".")
		switch {
		case within(field, unread), within(unread, field), strings.Contains(problem, name),
			section != "" && strings.Contains(problem, section+"."),
			!k.Given(field) && within(field, section):
			return true
		}
	}
	return false
}

// within reports whether field equals outer or is inside it.
func within(field, outer string) bool {
	rest, found := strings.CutPrefix(field, outer)
	return found && (rest == "" || outer == "" || rest[0] == '.' || rest[0] == '[')
}

// Accept records the errors of a validation, each at the field that it names, or else at path.
func (k *Checker) Accept(err error, path string) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			k.Accept(e, path)
		}
		return
	}
	if fault, named := errors.AsType[*field.Error](err); named {
		path, err = fault.Field, fault.Err
	}
	k.Require(err == nil, path, "%v", err)
}

// AtLeast records a fault if a duration is too short.
func (k *Checker) AtLeast(d Duration, least time.Duration, field string) {
	k.Require(time.Duration(d) >= least, field, "%s is shorter than %s", d, Duration(least))
}

// Given reports whether a file sets the field.
func (k *Checker) Given(field string) bool {
	_, set := k.origin[field]
	return set
}

// Own returns the value of a field as text, and says if it is the default.
func (k *Checker) Own(field string, value any) string {
	if k.Given(field) {
		return fmt.Sprint(value)
	}
	return fmt.Sprintf("%v, its default,", value)
}

// Other is Own for another field, and includes the field's name.
func (k *Checker) Other(field string, value any) string {
	return fmt.Sprintf("%s (%s)", field, strings.TrimSuffix(k.Own(field, value), ","))
}

// parent removes the last element of a field path.
func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}
