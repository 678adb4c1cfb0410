package trust

import (
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func check(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Files of another user are tested as root, in the integration test.
func TestFilesThatOthersCanChangeAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		lay     func(t *testing.T, folder string) // creates "x" in the folder
		at      string                            // the path that the error names, below the folder
		message string
	}{
		"a file":                          {lay: func(*testing.T, string) {}},
		"a file that others can write":    {func(t *testing.T, f string) { check(t, os.Chmod(f+"/x", 0o646)) }, "x", "is writable by users other than root"},
		"a file that its group can write": {func(t *testing.T, f string) { check(t, os.Chmod(f+"/x", 0o664)) }, "x", "is writable by users other than root"},
		"its folder":                      {func(t *testing.T, f string) { check(t, os.Chmod(f, 0o777)) }, ".", "is writable by users other than root"},
		"its folder, with the sticky bit": {func(t *testing.T, f string) { check(t, os.Chmod(f, 0o777|os.ModeSticky)) }, ".", "is writable by users other than root"},
		"the folder above":                {func(t *testing.T, f string) { check(t, os.Chmod(filepath.Dir(f), 0o777)) }, "..", "is writable by users other than root"},
		"the sticky folder above":         {lay: func(t *testing.T, f string) { check(t, os.Chmod(filepath.Dir(f), 0o777|os.ModeSticky)) }},
		"a link":                          {lay: func(t *testing.T, f string) { check(t, os.Rename(f+"/x", f+"/y"), os.Symlink("y", f+"/x")) }},
		"a link to an absolute path":      {lay: func(t *testing.T, f string) { check(t, os.Rename(f+"/x", f+"/y"), os.Symlink(f+"/y", f+"/x")) }},
		"a link to what others can write": {func(t *testing.T, f string) {
			check(t, os.Rename(f+"/x", f+"/y"), os.Symlink("y", f+"/x"), os.Chmod(f+"/y", 0o666))
		}, "y", "is writable by users other than root"},
		"a link into an open folder": {func(t *testing.T, f string) {
			check(t, os.Mkdir(f+"/o", 0o755), os.Rename(f+"/x", f+"/o/x"), os.Symlink("o/x", f+"/x"), os.Chmod(f+"/o", 0o777))
		}, "o", "is writable by users other than root"},
		"a link through an open folder": {func(t *testing.T, f string) {
			check(t, os.Mkdir(f+"/o", 0o755), os.Rename(f+"/x", f+"/y"), os.Symlink("o/../y", f+"/x"), os.Chmod(f+"/o", 0o777))
		}, "o", "is writable by users other than root"},
		"a link in a folder that is open": {func(t *testing.T, f string) {
			check(t, os.Mkdir(f+"/o", 0o755), os.Symlink("../x", f+"/o/l"), os.Rename(f+"/x", f+"/y"), os.Symlink("o/l", f+"/x"), os.Chmod(f+"/o", 0o777))
		}, "o", "is writable by users other than root"},
		"a link that leads back to itself":     {func(t *testing.T, f string) { check(t, os.Remove(f+"/x"), os.Symlink("x", f+"/x")) }, "x", syscall.ELOOP.Error()},
		"nothing":                              {func(t *testing.T, f string) { check(t, os.Remove(f+"/x")) }, "x", syscall.ENOENT.Error()},
		"a link to nothing":                    {func(t *testing.T, f string) { check(t, os.Remove(f+"/x"), os.Symlink("y", f+"/x")) }, "x", syscall.ENOENT.Error()},
		"a file where a folder should be":      {func(t *testing.T, f string) { check(t, os.Rename(f+"/x", f+"/y"), os.Symlink("y/z", f+"/x")) }, "x", syscall.ENOTDIR.Error()},
		"a FIFO, for which Open does not wait": {func(t *testing.T, f string) { check(t, os.Remove(f+"/x"), syscall.Mkfifo(f+"/x", 0o600)) }, "x", "not a regular file"},
		"a folder":                             {func(t *testing.T, f string) { check(t, os.Remove(f+"/x"), os.Mkdir(f+"/x", 0o755)) }, "x", "not a regular file"},
		"a file that is longer":                {func(t *testing.T, f string) { check(t, os.WriteFile(f+"/x", make([]byte, maxBytes+1), 0o600)) }, "x", "more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "above", "folder")
			check(t, os.MkdirAll(folder, 0o755), os.WriteFile(folder+"/x", []byte("text"), 0o600))
			c.lay(t, folder)
			var got []byte
			var err error
			if strings.Contains(c.message, "regular") {
				_, err = Open(folder + "/x")
			} else {
				got, err = ReadFile(folder + "/x")
			}
			if c.message == "" {
				if err != nil || string(got) != "text" {
					t.Errorf("ReadFile() = %q, %v, want what is in it", got, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), filepath.Join(folder, c.at)) || !strings.Contains(err.Error(), c.message) {
				t.Errorf("ReadFile() = %q, %v, want an error that names %s and says %q", got, err, c.at, c.message)
			}
			if untrusted, ok := errors.AsType[*Error](err); ok != strings.Contains(c.message, "other than root") || ok && !strings.Contains(untrusted.Hint, untrusted.Subject) {
				t.Errorf("the error is %#v", err)
			}
			if c.message == syscall.ENOENT.Error() && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("ReadFile() = %v, want %v", err, fs.ErrNotExist)
			}
		})
	}
}

func TestPathReturnsWhereLinksLead(t *testing.T) {
	folder := t.TempDir()
	check(t, os.MkdirAll(folder+"/real/deep", 0o755), os.WriteFile(folder+"/real/deep/x", nil, 0o600), os.Symlink("real/deep", folder+"/short"), os.Symlink("short/../deep/x", folder+"/x"))
	real, info, err := Path(folder + "/x")
	if err != nil || real != folder+"/real/deep/x" || !info.Mode().IsRegular() {
		t.Errorf("Path() = %q, %v, %v, want the file itself", real, info, err)
	}
}

// A check must not leak descriptors, whatever its result.
func TestChecksLeakNoDescriptors(t *testing.T) {
	folder := t.TempDir()
	check(t, os.WriteFile(folder+"/x", nil, 0o666), os.Chmod(folder+"/x", 0o666), os.WriteFile(folder+"/ok", nil, 0o600), os.Symlink("l", folder+"/l"), os.Symlink("ok", folder+"/link"))
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		check(t, err)
		return len(entries)
	}
	before := count()
	for range 100 {
		for _, name := range []string{"x", "ok", "l", "link", "none", "ok/x", "."} {
			_, _ = ReadFile(filepath.Join(folder, name))
			_, _, _ = Path(filepath.Join(folder, name))
		}
	}
	if after := count(); after > before+5 {
		t.Errorf("there were %d descriptors, and are %d", before, after)
	}
}

// Changing the permissions of a device would break the host.
func TestTheHintForADeviceIsAnotherFile(t *testing.T) {
	_, err := ReadRegularFile("/dev/null")
	if refused, ok := errors.AsType[*Error](err); !ok || refused.Hint != "use a regular file instead of /dev/null" {
		t.Errorf("ReadRegularFile(/dev/null) = %v, want it refused with a hint that harms nothing", err)
	}
}

// A user could have a script of theirs, or a link in its place, hold up whoever reads it.
func TestAFileOfAnotherUserHoldsNoReaderUp(t *testing.T) {
	dir := t.TempDir()
	kernels, leased := filepath.Join(dir, "kernels"), filepath.Join(dir, "leased")
	check(t, os.Symlink("/proc/self/cmdline", kernels), os.WriteFile(leased, []byte("#!/bin/sh\n"), 0o600))
	if text, err := ReadUntrusted(kernels); err == nil || !strings.Contains(err.Error(), "file of the kernel") {
		t.Errorf("ReadUntrusted() = %q, %v, want that it refuses a file of proc", text, err)
	}

	f, err := os.OpenFile(leased, os.O_RDWR, 0)
	check(t, err)
	defer f.Close()
	signal.Ignore(syscall.SIGIO) // asks the holder of a lease to end it
	defer signal.Reset(syscall.SIGIO)
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	check(t, err)
	for name, read := range map[string]func(string) ([]byte, error){"ReadUntrusted": ReadUntrusted, "ReadOwn": ReadOwn} {
		if text, err := read(leased); err == nil || !strings.Contains(err.Error(), "lease") {
			t.Errorf("%s() = %q, %v, want that it does not wait for the end of a lease", name, text, err)
		}
	}
}
