package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"hostler.io/hostler/internal/field"
	"hostler.io/hostler/internal/trust"
)

// Fault is one thing that is wrong with the configuration.
type Fault struct {
	File    string // empty where the fault lies in no file
	Line    int
	Field   string // path such as imageGC.highThresholdPercent; empty for a file that is no YAML
	Problem string
}

// String writes the fault as file:line: field: problem.
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

// Faults is every fault found, in the order of files and lines.
type Faults []Fault

// Error writes one fault a line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// Loaded is a configuration and where each of its values came from.
type Loaded struct {
	Config
	Files []string // the files read, in the order in which they were applied
	// Ignored are files that somebody may believe to be read: their names end in
	// .yml, or in capitals.
	Ignored []string
	origin  origins
}

// Located is an error of the host's with where the files set the fields that it names, as
// faults of the files have it.
func (l Loaded) Located(err error) error {
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
	if _, said := l.origin[section]; !said {
		return err
	}
	at := l.origin.of(fault.Field)
	return fmt.Errorf("%s:%d: %w", at.file, at.line, err)
}

// NotRead is why an ignored file does not count.
const NotRead = "not read, as its name does not end in .yaml"

// Load reads file and then the drop-ins of folder in lexical order: maps merge,
// lists replace. An empty name is left out, and so is a file or folder that is
// missing at its default place; a file that somebody named must be there. Ignored
// is told beside faults, too. The
// error is of type Faults where the content is at fault.
//
// A file that others than root can change is a fault.
func Load(file, folder string) (Loaded, error) {
	return load(file, folder, trust.ReadFile)
}

// Draft is Load of files that no agent here reads, such as another host's. Anybody may own them.
func Draft(file, folder string) (Loaded, error) { return load(file, folder, os.ReadFile) }

func load(file, folder string, read func(name string) ([]byte, error)) (Loaded, error) {
	var files, ignored []string
	if file != "" {
		if _, err := os.Stat(file); err == nil || file != DefaultFile || !errors.Is(err, fs.ErrNotExist) {
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
			return Loaded{}, fmt.Errorf("read drop-ins: %w", err)
		}
		for _, e := range entries { // ReadDir sorts by name
			switch name := e.Name(); {
			case strings.HasPrefix(name, "."):
			case filepath.Ext(name) == ".yaml":
				files = append(files, filepath.Join(folder, name))
			case slices.Contains([]string{".yaml", ".yml"}, strings.ToLower(filepath.Ext(name))):
				ignored = append(ignored, filepath.Join(folder, name))
			}
		}
	}

	d := decoder{config: Default(), origin: origins{}}
	for _, name := range files {
		data, err := read(name)
		if untrusted, ok := errors.AsType[*trust.Error](err); ok {
			d.faults = append(d.faults, Fault{File: name, Line: 1, Problem: fmt.Sprintf("refused, since %v: %s", untrusted, untrusted.Hint)})
			data, err = os.ReadFile(name) // to report the other faults as well
		}
		if err != nil {
			return Loaded{}, fmt.Errorf("read configuration: %w", err)
		}
		d.file(name, data)
	}
	d.finish()
	if len(d.faults) > 0 {
		sort.SliceStable(d.faults, func(i, j int) bool {
			a, b := d.faults[i], d.faults[j]
			return a.File == b.File && a.Line < b.Line
		})
		return Loaded{Ignored: ignored}, d.faults
	}
	return Loaded{Config: d.config, Files: files, Ignored: ignored, origin: d.origin}, nil
}

// Parse reads one document as if it were the only file; name stands in faults.
func Parse(name string, data []byte) (Config, error) {
	d := decoder{config: Default(), origin: origins{}}
	d.file(name, data)
	d.finish()
	if len(d.faults) > 0 {
		return Config{}, d.faults
	}
	return d.config, nil
}

// documents splits data into its YAML documents, of which only the first may
// have content.
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
