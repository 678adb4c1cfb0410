package trust

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxLinks is how many links are followed to one file, as by the kernel.
const maxLinks = 40

// maxBytes is the most that is read of a file of the configuration or of credentials.
const maxBytes = 1 << 20

// Path follows a path, link by link, and returns where it leads. It fails with an *Error if others
// than root can change the file there or put another in its place: the file itself, a folder on the
// way, or one that a link on the way lies in. Of a folder with the sticky bit, such as /tmp, others
// cannot remove what is not theirs.
//
// As long as root changes nothing, the path that is returned leads to the same file: execute a program
// by that path.
func Path(path string) (real string, info fs.FileInfo, err error) {
	f, real, err := find(path)
	if err != nil {
		return "", nil, err
	}
	info, err = f.Stat()
	return real, info, closing(f, err)
}

// Open opens a regular file that only root can change, to read it. The file that is checked, as by
// Path, is the one that is opened.
func Open(path string) (*os.File, error) {
	return open(path, isRegular)
}

// ReadRegularFile reads a file that Open opens, of up to 1 MiB.
func ReadRegularFile(path string) ([]byte, error) { return readAll(Open(path)) }

// ReadFile is ReadRegularFile of a file of any type. It blocks until a FIFO is written, or a mount
// that hangs recovers.
func ReadFile(path string) ([]byte, error) {
	return readAll(open(path, func(fs.FileInfo) error { return nil }))
}

// readAll reads an open file and closes it.
func readAll(f *os.File, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && len(text) > maxBytes {
		err = &fs.PathError{Op: "read", Path: f.Name(), Err: fmt.Errorf("it has more than %d bytes", maxBytes)}
	}
	return text, closing(f, err)
}

// ReadUntrusted reads a regular file of up to 1 MiB that anybody may change, such as to report what is
// wrong with it. It opens nothing else: a FIFO would block, and a device may do something.
func ReadUntrusted(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return readAll(reopen(os.NewFile(uintptr(fd), path), path, isRegular))
}

// isRegular refuses everything but regular files.
func isRegular(info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("it is not a regular file (%v)", info.Mode())
	}
	return nil
}

// open opens a file that only root can change and that check allows.
func open(path string, check func(fs.FileInfo) error) (*os.File, error) {
	found, _, err := find(path)
	if err != nil {
		return nil, err
	}
	return reopen(found, path, check)
}

// reopen opens to read what is open only to inspect it, if check allows it, and closes the latter.
func reopen(found *os.File, path string, check func(fs.FileInfo) error) (*os.File, error) {
	info, err := found.Stat()
	if err == nil {
		err = check(info)
	}
	if err != nil {
		return nil, closing(found, &fs.PathError{Op: "open", Path: path, Err: err})
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", found.Fd()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	_ = found.Close()
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// closing closes a file that was only read, and returns err.
func closing(f *os.File, err error) error {
	_ = f.Close()
	return err
}

// find opens what a path leads to, only to inspect it, and returns the path without links. An error
// names the path as it was given.
func find(path string) (found *os.File, real string, err error) {
	found, real, err = walk(path)
	if missing, ok := errors.AsType[*fs.PathError](err); ok {
		missing.Path = path
	}
	return found, real, err
}

// walk is find, whose errors name the file or the folder at which it failed.
func walk(path string) (found *os.File, real string, err error) {
	if !filepath.IsAbs(path) {
		here, err := os.Getwd()
		if err != nil {
			return nil, "", err
		}
		path = here + "/" + path
	}
	rest, links := elements(path), 0
	at := "/"
	f, err := openAt(nil, "", at)
	for {
		if err != nil {
			return nil, "", err
		}
		var info fs.FileInfo
		if info, err = f.Stat(); err != nil {
			return nil, "", closing(f, err)
		}
		why := openness(info, len(rest))
		switch {
		case len(rest) > 0 && !info.IsDir():
			return nil, "", closing(f, &fs.PathError{Op: "open", Path: at, Err: syscall.ENOTDIR})
		case why != "":
			return nil, "", closing(f, &Error{Subject: at, Why: why, Hint: hint(at, path, info)})
		case len(rest) == 0:
			return f, at, nil
		}
		name := rest[0]
		rest = rest[1:]
		target := filepath.Dir(at) // of ".."
		if name != ".." {
			var next *os.File
			if next, target, err = step(f, at, name); err == nil && target == "" {
				_ = f.Close()
				f, at = next, filepath.Join(at, name)
				continue
			}
			if !filepath.IsAbs(target) {
				target = at + "/" + target
			}
			links++
		}
		_ = f.Close()
		switch {
		case err != nil:
			return nil, "", err
		case links > maxLinks:
			return nil, "", &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
		}
		rest = append(elements(target), rest...)
		at = "/"
		f, err = openAt(nil, "", at)
	}
}

// hint is what a person does about a file or a folder at a place on the way to a path.
func hint(at, path string, info fs.FileInfo) string {
	if info.IsDir() && at != filepath.Clean(path) {
		return fmt.Sprintf("check its content, then move %s to a folder that only root can change, or let only root change %s", path, at)
	}
	if info.Mode()&(fs.ModeDevice|fs.ModeNamedPipe) != 0 { // others need it as it is, such as /dev/null
		return fmt.Sprintf("use a regular file instead of %s", path)
	}
	return fmt.Sprintf("check its content, then run chown root %s && chmod go-w %[1]s", at)
}

// elements are the names in a path, as the kernel takes them: what ".." is depends on the links
// before it.
func elements(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(s string) bool { return s == "" || s == "." })
}

// step opens what a folder has by a name. If that is a link, it returns where that leads instead,
// and fails if others than root can lead it elsewhere.
func step(folder *os.File, at, name string) (f *os.File, target string, err error) {
	path := filepath.Join(at, name)
	if f, err = openAt(folder, name, path); err != nil {
		return nil, "", err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, "", closing(f, err)
	}
	if info.Mode().Type() != fs.ModeSymlink {
		return f, "", nil
	}
	if why := foreign(info); why != "" {
		return nil, "", closing(f, &Error{Subject: path, Why: why, Hint: "check where it points to, then run chown -h root " + path})
	}
	text := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(f.Fd()), "", text)
	if err == nil && n == 0 {
		err = syscall.ENOENT
	}
	if err != nil {
		return nil, "", closing(f, &fs.PathError{Op: "readlink", Path: path, Err: err})
	}
	return nil, string(text[:n]), closing(f, nil)
}

// openAt opens what a folder has by a name, without following a link, only to inspect it; without a
// folder, the root of the host. path is how an error names it. A folder is opened to read it, which
// has systemd mount what is behind an automount.
func openAt(folder *os.File, name, path string) (*os.File, error) {
	at := unix.AT_FDCWD
	if folder != nil {
		at = int(folder.Fd())
	} else {
		name = "/"
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		fd, err = unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
