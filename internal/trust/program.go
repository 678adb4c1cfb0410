package trust

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const (
	// maxInterpreters bounds the interpreters of a program that are scripts themselves, like the
	// kernel's limit.
	maxInterpreters = 5
	// firstLine is how much the kernel reads of a script to find its interpreter (execve(2)).
	firstLine = 256
)

// ErrNotInPath is the error of a command that no folder of a PATH has.
var ErrNotInPath = errors.New("it is not in PATH")

// Program checks a program before hostler runs it, with searchPath as its PATH. It fails with an
// *Error if users other than root can change what then runs: the file as Path checks it, the
// interpreter in the first line of a script, the interpreter of that interpreter, the program that
// env(1) finds, and the dynamic loader. It does not check what the program itself loads or starts.
//
// As long as root changes nothing, the returned path leads to the same file.
func Program(path, searchPath string) (real string, info fs.FileInfo, err error) {
	if real, info, err = Path(path); err == nil {
		err = checkInterpreter(real, searchPath, maxInterpreters)
	}
	if err != nil {
		return "", nil, err
	}
	return real, info, nil
}

// Command is Program for a command: a path, or a name that is in a folder of searchPath. It returns
// the path, with its links.
func Command(command, searchPath string) (path string, err error) {
	if path = lookPath(command, searchPath); path == "" {
		return "", ErrNotInPath
	}
	_, _, err = Program(path, searchPath)
	return path, err
}

// SearchPath returns the folders of a PATH that only root can change. Others could put programs in
// front of the host's into the rest.
func SearchPath(path string) string {
	return strings.Join(slices.DeleteFunc(filepath.SplitList(path), func(folder string) bool {
		_, info, err := Path(folder)
		return err != nil || !info.IsDir() || !filepath.IsAbs(folder)
	}), string(filepath.ListSeparator))
}

// lookPath returns the program of a command as exec.LookPath finds it; empty if there is none.
func lookPath(command, searchPath string) string {
	if strings.Contains(command, "/") {
		return command
	}
	for _, folder := range filepath.SplitList(searchPath) {
		path := filepath.Join(folder, command)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// checkInterpreter is Program for what the kernel starts instead of a file, or before it.
func checkInterpreter(path, searchPath string, depth int) error {
	if depth == 0 {
		return &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
	}
	file, err := Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // opened only to read
	start, err := io.ReadAll(io.LimitReader(file, firstLine))
	if err != nil {
		return err
	}
	var next []string
	switch line, script := bytes.CutPrefix(start, []byte("#!")); {
	case script:
		next, err = interpreters(path, line, searchPath)
	case bytes.HasPrefix(line, []byte(elf.ELFMAG)):
		next, err = loader(file)
	}
	for _, path := range next {
		if err != nil {
			break
		}
		if path, _, err = Path(path); err == nil {
			err = checkInterpreter(path, searchPath, depth-1)
		}
	}
	return err
}

// interpreters returns the interpreter in the first line of a script, after "#!". If that is env(1),
// it also returns the program that env finds.
func interpreters(script string, line []byte, searchPath string) (paths []string, err error) {
	line, _, _ = bytes.Cut(line, []byte("\n"))
	line, _, _ = bytes.Cut(line, []byte{0})
	name, argument, _ := strings.Cut(strings.Trim(strings.ReplaceAll(string(line), "\t", " "), " "), " ")
	if name == "" {
		return nil, nil
	}
	paths = []string{name}
	if filepath.Base(name) == "env" {
		argument = strings.TrimSpace(argument)
		if split, found := strings.CutPrefix(argument, "-S"); found {
			argument, _, _ = strings.Cut(strings.TrimSpace(split), " ")
		}
		switch found := lookPath(argument, searchPath); {
		case strings.HasPrefix(argument, "-") || strings.ContainsAny(argument, `='"\$`):
			paths = append(paths, "") // env changes what it finds
		case found != "":
			paths = append(paths, found)
		}
	}
	if slices.ContainsFunc(paths, func(path string) bool { return !filepath.IsAbs(path) }) {
		return nil, &Error{
			Subject: script, Why: fmt.Sprintf("has an interpreter that cannot be checked (#!%s)", line),
			Hint: "write the absolute path of the interpreter into the first line of " + script,
		}
	}
	return paths, nil
}

// loader returns the dynamic loader of an ELF file, if it has one. The kernel refuses a damaged file.
func loader(file io.ReaderAt) (paths []string, err error) {
	program, err := elf.NewFile(file)
	if err != nil {
		return nil, nil
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			text, err := io.ReadAll(io.LimitReader(p.Open(), syscall.PathMax))
			return []string{string(bytes.TrimRight(text, "\x00"))}, err
		}
	}
	return nil, nil
}
