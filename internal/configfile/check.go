package configfile

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"hostler.io/hostler/internal/field"
)

// Checker collects what is wrong with values that are well-typed. Each fault points at the line that
// set the value, or the nearest section around it; at none where the fault lies in what was left out.
type Checker struct {
	origin origins
	faults Faults
}

// Faults returns the number of faults so far.
func (k *Checker) Faults() int { return len(k.faults) }

// Require records a fault at a field unless ok.
func (k *Checker) Require(ok bool, field, format string, args ...any) {
	if ok {
		return
	}
	at := k.origin.of(field)
	k.faults = append(k.faults, Fault{File: at.file, Line: at.line, Field: field, Problem: fmt.Sprintf(format, args...)})
}

// Accept records what a package refuses: each fault at the field that its error names, or else at path.
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

// AtLeast records a duration that is too short.
func (k *Checker) AtLeast(d Duration, least time.Duration, field string) {
	k.Require(time.Duration(d) >= least, field, "%s is shorter than %s", d, Duration(least))
}

// Given reports whether a file sets the field.
func (k *Checker) Given(field string) bool {
	_, set := k.origin[field]
	return set
}

// Own is a field's value as text, which says if it is the default.
func (k *Checker) Own(field string, value any) string {
	if k.Given(field) {
		return fmt.Sprint(value)
	}
	return fmt.Sprintf("%v, its default,", value)
}

// Other is the same for another field, with its name.
func (k *Checker) Other(field string, value any) string {
	return fmt.Sprintf("%s (%s)", field, strings.TrimSuffix(k.Own(field, value), ","))
}

// parent cuts the last element off a field path.
func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}
