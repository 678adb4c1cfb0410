package conditions

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/internal/account"
	"hostler.io/hostler/internal/trust"
	"hostler.io/hostler/status"
)

// maxPrograms bounds the custom conditions of a Node.
const maxPrograms = 100

// Read scans the folder, and returns the checks and the faults of other files. It runs nothing.
func Read(p Policy) ([]Program, []Fault) {
	_, info, err := trust.Path(p.Folder)
	if errors.Is(err, fs.ErrNotExist) && p.Optional {
		return nil, nil
	}
	var entries []fs.DirEntry
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "read", Path: p.Folder, Err: syscall.ENOTDIR}
	}
	if err == nil {
		entries, err = os.ReadDir(p.Folder)
	}
	if err != nil {
		return nil, []Fault{notRun(p.Folder, err, "create the folder, or set conditions.directory")}
	}
	r := reading{policy: p, searchPath: trust.SearchPath(searchPath), beside: map[string]bool{}}
	for _, e := range entries {
		r.beside[e.Name()] = true
	}
	for _, e := range entries { // sorted by name
		r.entry(e.Name())
	}
	r.refuseDuplicates()
	return r.programs, r.faults
}

// reading is a scan of the folder.
type reading struct {
	policy     Policy
	searchPath string          // PATH of checks
	beside     map[string]bool // names of all files
	programs   []Program
	faults     []Fault
}

// notRun returns the fault of a file that cannot be read, or is not trusted.
func notRun(path string, err error, fix string) Fault {
	if untrusted, ok := errors.AsType[*trust.Error](err); ok {
		return Fault{Path: path, Problem: fmt.Sprintf("is not run because %v", untrusted), Fix: untrusted.Hint}
	}
	if fault, ok := errors.AsType[*fs.PathError](err); ok && fault.Path == path {
		err = fault.Err
	}
	return Fault{Path: path, Problem: fmt.Sprintf("cannot be read: %v", err), Fix: fix}
}

// isIgnored reports whether a file is not meant as a check: a hidden file, a copy by an editor or
// a package manager, or a text.
func isIgnored(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "README") || strings.HasSuffix(name, "~") ||
		slices.Contains([]string{".bak", ".orig", ".rej", ".swp", ".tmp", ".dpkg-old", ".dpkg-dist", ".dpkg-new", ".dpkg-tmp", ".rpmnew", ".rpmsave", ".rpmorig", ".ucf-old", ".ucf-dist"}, filepath.Ext(name))
}

func (r *reading) entry(name string) {
	path := filepath.Join(r.policy.Folder, name)
	if isIgnored(name) {
		return
	}
	switch base, isYAML := strings.CutSuffix(name, ".yaml"); {
	case filepath.Ext(name) == ".yml":
		r.faults = append(r.faults, Fault{Path: path, Problem: "is not read because its name does not end in .yaml", Fix: "rename it"})
		return
	case isYAML && r.beside[base]:
		return // NAME.yaml is read with its binary
	case isYAML:
		r.faults = append(r.faults, Fault{Path: path, Problem: "describes " + base + ", which does not exist", Fix: "put the executable next to it, or remove it"})
		return
	}
	_, info, err := trust.Path(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, there := os.Lstat(path); there != nil {
			return // removed since the folder was read
		}
		err = errors.New("broken symbolic link")
	}
	const remove = "fix or remove it"
	switch {
	case err != nil:
		r.faults = append(r.faults, notRun(path, err, remove))
	case info.IsDir():
	case !info.Mode().IsRegular():
		r.faults = append(r.faults, Fault{Path: path, Problem: "is not run because it is not a regular file", Fix: remove})
	case info.Mode().Perm()&0o111 == 0:
		r.faults = append(r.faults, Fault{Path: path, Problem: "is not run because it is not executable", Fix: "chmod 755 " + path + " to enable it, or remove it", off: true})
	case len(r.programs) >= maxPrograms:
		r.faults = append(r.faults, Fault{Path: path, Problem: fmt.Sprintf("is not run because the limit of %d checks is reached", maxPrograms), Fix: "combine several checks in one executable"})
	default:
		r.program(name, path, info)
	}
}

// program reads the header of a check.
func (r *reading) program(name, path string, info fs.FileInfo) {
	text, err := beginning(path)
	if err != nil {
		r.faults = append(r.faults, notRun(path, err, fmt.Sprintf("let user %d, which runs hostler, read it: its header may be in it", os.Geteuid())))
		return
	}
	if _, _, err := trust.Program(path, r.searchPath); err != nil {
		if _, refused := errors.AsType[*trust.Error](err); refused { // else its run reports the error
			r.faults = append(r.faults, notRun(path, err, ""))
			return
		}
	}
	var h header
	var found bool
	var faults []Fault
	at := path // path of the header
	if bytes.HasPrefix(text, []byte("#!")) {
		h, found, faults = parseScript(path, text)
	}
	stamp := stampOf(info)
	if r.beside[name+".yaml"] {
		at = path + ".yaml"
		_, info, err := trust.Path(at)
		if err == nil && info.Mode().IsRegular() {
			text, err = beginning(at)
			stamp += " " + stampOf(info)
		}
		switch {
		case err != nil:
			faults = append(faults, notRun(at, err, "fix or remove it"))
		case found:
			faults = append(faults, Fault{Path: at, Problem: "is not read because " + name + " has a header of its own", Fix: "keep one of them"})
		default:
			h, faults = parseFile(at, text)
		}
	}
	p := Program{Path: path, Reason: h.reason, Interval: cmp.Or(h.interval, r.policy.Interval), Timeout: cmp.Or(h.timeout, r.policy.Timeout), Temporary: h.temporary, stamp: stamp}
	if p.User, err = userOf(h.user, cmp.Or(r.policy.User, account.Unprivileged)); err != nil {
		fix := "name a user of /etc/passwd, or leave the key out"
		if missing, ok := errors.AsType[*account.Error](err); ok && h.user == "" {
			fix = missing.Hint
		}
		faults = append(faults, Fault{Path: at, Problem: fmt.Sprintf("is not run because of its user: %v", err), Fix: fix})
	}
	kind := cmp.Or(h.kind, typeOf(name))
	if err := status.CheckCustomType(kind); err != nil && h.kind == "" {
		faults = append(faults, Fault{Path: path, Problem: fmt.Sprintf("cannot derive the condition type from its name: %v", err), Fix: "set `type` in its header"})
	}
	p.Type = corev1.NodeConditionType(kind)
	if p.Reason == "" {
		p.Reason = kind[strings.LastIndexByte(kind, '/')+1:]
		if len(faults) == 0 && !reasons.MatchString(p.Reason) {
			faults = append(faults, Fault{Path: at, Problem: fmt.Sprintf("reason %q is not one word of letters and digits", p.Reason), Fix: "set `reason` in its header"})
		}
	}
	if len(faults) > 0 {
		r.faults = append(r.faults, faults...)
		return
	}
	r.programs = append(r.programs, p)
}

// beginning returns the part of a file that may contain a header.
func beginning(path string) ([]byte, error) {
	file, err := trust.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, headerBytes))
}

// stampOf returns a text that changes with the file.
func stampOf(info fs.FileInfo) string {
	s := info.Sys().(*syscall.Stat_t) // from trust.Path
	return fmt.Sprint(s.Dev, s.Ino, s.Size, s.Mode, s.Uid, s.Gid, s.Mtim, s.Ctim)
}

// refuseDuplicates rejects programs with the same condition type.
func (r *reading) refuseDuplicates() {
	paths := map[corev1.NodeConditionType][]string{}
	for _, p := range r.programs {
		paths[p.Type] = append(paths[p.Type], p.Path)
	}
	r.programs = slices.DeleteFunc(r.programs, func(p Program) bool {
		same := paths[p.Type]
		if len(same) == 1 {
			return false
		}
		r.faults = append(r.faults, Fault{Path: p.Path, Problem: fmt.Sprintf("is not run because %s have the same type %s", strings.Join(same, " and "), p.Type), Fix: "give each check its own type"})
		return true
	})
	slices.SortFunc(r.programs, func(a, b Program) int { return strings.Compare(string(a.Type), string(b.Type)) })
}
