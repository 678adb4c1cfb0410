// Package configfile reads a configuration from a file and a folder of drop-ins, and refuses
// unknown keys. It owns the notation, the faults with file, line and field, and everything that is
// generated from the tags of keys: the documented defaults and the schema. Its callers own the keys
// and their meaning.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"hostler.io/hostler/internal/field"
	"hostler.io/hostler/internal/trust"
)

// Fault is one error in the configuration.
type Fault struct {
	File    string // empty if the fault is in no file
	Line    int
	Field   string // path such as imageGC.highThresholdPercent; empty if the file is not YAML
	Problem string
}

// String formats the fault as file:line: field: problem.
func (f Fault) String() string {
	var b strings.Builder
	if f.File != "" {
		fmt.Fprintf(&b, "%s:%d: ", f.File, f.Line)
	}
	if f.Field != "" {
		b.WriteString(f.Field + ": ")
	}
	return b.String() + f.Problem
}

// Faults are all faults, in the order of files and lines.
type Faults []Fault

// Error returns the faults, one on each line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// Spec describes a configuration. The default file, the manual page and the schema are generated from
// the tags of the fields of T:
//
//	doc     what it means
//	reload  "live" if a reload applies it and everything inside it
//	words   the valid values, separated by |; begins with | if it may be empty
//	least   the smallest valid number; most is the largest
//	shape   the notation of its text, if the type does not determine it; see shapes
//	needed  "true" if every entry of a list must have it
//	secret  "file" if it names a file with a secret, "no" if only its name suggests a secret; the
//	        configuration has no secrets, because callers who may not read the files can read it
type Spec[T any] struct {
	Title         string // of the schema
	ManualPage    string
	File, DropIns string // the default paths
	Default       func() T
	// Check validates the values that could be read, and sets values that are derived from others.
	Check func(*Checker, *T)
}

// Source says which files a configuration came from.
type Source struct {
	Files []string // the files read, in the order in which they were applied
	// Ignored are files that are not read because their names end in .yml or in uppercase.
	Ignored []string
	origin  origins
}

// Located adds to an error the file and line that set the field it names, like a Fault.
func (l Source) Located(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var located []error
		for _, e := range joined.Unwrap() {
			located = append(located, l.Located(e))
		}
		return errors.Join(located...)
	}
	fault, named := errors.AsType[*field.Error](err)
	if !named {
		return err
	}
	section, _, _ := strings.Cut(fault.Field, ".")
	if _, found := l.origin[section]; !found {
		return err
	}
	return fmt.Errorf("%s: %w", l.origin.of(fault.Field), err)
}

// Origin returns the file and line that set a key, such as "/etc/hostler/conf.d/a.yaml:3". It is
// empty if no file sets the key.
func (l Source) Origin(key string) string {
	at, set := l.origin[key]
	if !set {
		return ""
	}
	return at.String()
}

// NotRead is the reason why an ignored file is not read.
const NotRead = "not read, as its name does not end in .yaml"

// Load reads file, then the drop-ins of folder in lexical order: maps merge, lists replace. It
// skips an empty name, and a missing file or folder at its default path. Any other file must exist.
// Errors in the content have type Faults; Ignored is set even then.
//
// A file that users other than root can change is a fault.
func (s Spec[T]) Load(file, folder string) (T, Source, error) {
	return s.load(file, folder, trust.ReadFile)
}

// Draft is Load for files that no program on this host uses. Any user may own them.
func (s Spec[T]) Draft(file, folder string) (T, Source, error) {
	return s.load(file, folder, os.ReadFile)
}

func (s Spec[T]) load(file, folder string, read func(name string) ([]byte, error)) (T, Source, error) {
	var none T
	var files, ignored []string
	if file != "" {
		if _, err := os.Stat(file); err == nil || file != s.File || !errors.Is(err, fs.ErrNotExist) {
			files = append(files, file)
		}
		sibling := strings.TrimSuffix(file, filepath.Ext(file)) + ".yml"
		if _, err := os.Stat(sibling); err == nil && sibling != file {
			ignored = append(ignored, sibling)
		}
	}
	if folder != "" {
		entries, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return none, Source{}, fmt.Errorf("read drop-ins: %w", err)
		}
		for _, e := range entries { // os.ReadDir sorts by name
			switch name := e.Name(); {
			case strings.HasPrefix(name, "."):
			case filepath.Ext(name) == ".yaml":
				files = append(files, filepath.Join(folder, name))
			case slices.Contains([]string{".yaml", ".yml"}, strings.ToLower(filepath.Ext(name))):
				ignored = append(ignored, filepath.Join(folder, name))
			}
		}
	}

	config := s.Default()
	d := decoder{config: reflect.ValueOf(&config).Elem(), origin: origins{}}
	for _, name := range files {
		data, err := read(name)
		if untrusted, ok := errors.AsType[*trust.Error](err); ok {
			d.faults = append(d.faults, Fault{File: name, Line: 1, Problem: fmt.Sprintf("refused, since %v: %s", untrusted, untrusted.Hint)})
			if data, err = trust.ReadUntrusted(name); err != nil { // to report the other faults, too
				continue
			}
		}
		if err != nil {
			return none, Source{}, fmt.Errorf("read configuration: %w", err)
		}
		d.file(name, data)
	}
	d.finish(func(k *Checker) { s.Check(k, &config) })
	if len(d.faults) > 0 {
		sort.SliceStable(d.faults, func(i, j int) bool {
			a, b := d.faults[i], d.faults[j]
			return a.File == b.File && a.Line < b.Line
		})
		return none, Source{Ignored: ignored}, d.faults
	}
	return config, Source{Files: files, Ignored: ignored, origin: d.origin}, nil
}

// Parse reads one document as if it were the only file; name appears in faults.
func (s Spec[T]) Parse(name string, data []byte) (T, error) {
	config := s.Default()
	d := decoder{config: reflect.ValueOf(&config).Elem(), origin: origins{}}
	d.file(name, data)
	d.finish(func(k *Checker) { s.Check(k, &config) })
	if len(d.faults) > 0 {
		var none T
		return none, d.faults
	}
	return config, nil
}

// documents returns the only YAML document in data; nil if data has none.
func documents(data []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, err
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one YAML document in a file")
	}
	return doc.Content[0], nil
}
