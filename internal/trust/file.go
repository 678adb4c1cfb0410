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

// maxLinks bounds the links that are followed to one file, like the kernel's limit.
const maxLinks = 40

// maxBytes bounds the size of configuration and credential files.
const maxBytes = 1 << 20

// Path resolves all links of a path, and returns the real path. It fails with an *Error if users
// other than root can change the file or replace it. It checks the file, every folder on the path,
// and every folder that contains a link on the path. In a folder with the sticky bit, such as /tmp,
// users can only remove their own files.
//
// As long as root changes nothing, the returned path leads to the same file. Use it to execute a
// program.
func Path(path string) (real string, info fs.FileInfo, err error) {
	f, real, err := find(path)
	if err != nil {
		return "", nil, err
	}
	info, err = f.Stat()
	return real, info, closing(f, err)
}

// Open opens a regular file that only root can change, for reading. It checks the file as Path
// does, and opens exactly the file that it checked.
func Open(path string) (*os.File, error) {
	return open(path, isRegular)
}

// ReadRegularFile reads a file as Open opens it, of up to 1 MiB.
func ReadRegularFile(path string) ([]byte, error) { return readAll(Open(path)) }

// ReadFile is ReadRegularFile for files of any type. It blocks until a FIFO is written, or until a
// mount that hangs recovers.
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

// ReadUntrusted reads a regular file of up to 1 MiB that any user may change, for example to report
// its faults. It opens no other type of file: a FIFO would block, and opening a device may have
// side effects. It also opens no file of the kernel, such as /proc/kmsg, to which a user's link may
// lead. It blocks while the file system does not answer: see bounded.Files.
func ReadUntrusted(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	found := os.NewFile(uintptr(fd), path)
	return readAll(reopen(found, path, func(info fs.FileInfo) error {
		if err := isRegular(info); err != nil {
			return err
		}
		return isStored(fd)
	}))
}

// isStored returns an error if an open file is on a file system whose files the kernel generates.
// Reads of these may block, or have side effects.
func isStored(fd int) error {
	var of unix.Statfs_t
	if err := unix.Fstatfs(fd, &of); err != nil {
		return err
	}
	switch uint32(of.Type) {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.TRACEFS_MAGIC, unix.DEBUGFS_MAGIC, unix.SECURITYFS_MAGIC,
		unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.SELINUX_MAGIC, unix.SMACK_MAGIC, unix.EFIVARFS_MAGIC,
		unix.BPF_FS_MAGIC, unix.BINFMTFS_MAGIC, unix.PSTOREFS_MAGIC, unix.RDTGROUP_SUPER_MAGIC, unix.NSFS_MAGIC,
		0x62656570, 0x67596969, 0x6e667364, 0x65735543: // configfs, rpc_pipefs, nfsd, fusectl
		return errors.New("it is a file of the kernel")
	}
	return nil
}

// ReadOwn reads a regular file of up to 1 MiB that only root and the user that runs hostler can change. It does not
// check the folders on the path: whoever can change these can remove the file, or put an older one back.
func ReadOwn(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return readAll(reopen(os.NewFile(uintptr(fd), path), path, func(info fs.FileInfo) error {
		if err := isRegular(info); err != nil {
			return err
		}
		if why := openness(info, 0); why != "" {
			return &Error{Subject: path, Why: why}
		}
		return nil
	}))
}

// isRegular returns an error if a file is not a regular file.
func isRegular(info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("it is not a regular file (%v)", info.Mode())
	}
	return nil
}

// open opens a file that only root can change and that check accepts.
func open(path string, check func(fs.FileInfo) error) (*os.File, error) {
	found, _, err := find(path)
	if err != nil {
		return nil, err
	}
	return reopen(found, path, check)
}

// reopen opens a file for reading that is open with O_PATH, if check accepts it. It closes found.
func reopen(found *os.File, path string, check func(fs.FileInfo) error) (*os.File, error) {
	info, err := found.Stat()
	if err == nil {
		err = check(info)
	}
	if err != nil {
		return nil, closing(found, &fs.PathError{Op: "open", Path: path, Err: err})
	}
	flags := unix.O_RDONLY | unix.O_CLOEXEC
	if info.Mode().IsRegular() {
		flags |= unix.O_NONBLOCK // else open waits for the end of a lease, up to 45 s
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", found.Fd()), flags, 0)
	_ = found.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errors.New("another process has a lease on it (F_SETLEASE in fcntl(2))")
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// closing closes a file that was opened only to read, and returns err.
func closing(f *os.File, err error) error {
	_ = f.Close()
	return err
}

// find opens a path with O_PATH, and returns the path without links. Errors name the path that was
// passed.
func find(path string) (found *os.File, real string, err error) {
	found, real, err = walk(path)
	if missing, ok := errors.AsType[*fs.PathError](err); ok {
		missing.Path = path
	}
	return found, real, err
}

// walk is find with errors that name the file or folder at which it failed.
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
		target := filepath.Dir(at) // for ".."
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

// hint returns the fix for a file or a folder at the path at, which was found while resolving path.
func hint(at, path string, info fs.FileInfo) string {
	if info.IsDir() && at != filepath.Clean(path) {
		return fmt.Sprintf("check its content, then move %s to a folder that only root can change, or let only root change %s", path, at)
	}
	if info.Mode()&(fs.ModeDevice|fs.ModeNamedPipe) != 0 { // such as /dev/null: others need its permissions as they are
		return fmt.Sprintf("use a regular file instead of %s", path)
	}
	return fmt.Sprintf("check its content, then run chown root %s && chmod go-w %[1]s", at)
}

// elements splits a path without resolving "..", whose meaning depends on the links before it.
func elements(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(s string) bool { return s == "" || s == "." })
}

// step opens an entry of a folder. If it is a link, step returns its target instead, or an error if
// users other than root can change the link.
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

// openAt opens an entry of a folder with O_PATH, without following a link. If folder is nil, it
// opens the root of the host. Errors name path. It opens folders for reading, because that makes
// systemd mount an automount.
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
