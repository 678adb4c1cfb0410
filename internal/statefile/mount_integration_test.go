//go:build integration

package statefile_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/internal/statefile"
)

// The filesystems are mounted in the mount namespace of the test's process.
func TestUnwritableFilesystems(t *testing.T) {
	if os.Getenv(child) == "" {
		if out, err := inChild(t, "mounts", private); err != nil || !strings.Contains(out, "--- PASS: TestUnwritableFilesystems") {
			t.Errorf("in a process of its own: %v\n%s", err, out)
		}
		return
	}
	const options = "size=256k"
	for name, tc := range map[string]struct {
		stop, start func(t *testing.T, path string)
		message     string
	}{
		"read-only": {
			func(t *testing.T, path string) {
				check(t, unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_RDONLY, options))
			},
			func(t *testing.T, path string) { check(t, unix.Mount("", path, "", unix.MS_REMOUNT, options)) },
			"read-only file system",
		},
		"full": {
			func(t *testing.T, path string) {
				filler, err := os.Create(filepath.Join(path, "filler"))
				for check(t, err); err == nil; {
					_, err = filler.Write(make([]byte, 4096))
				}
				check(t, filler.Close())
			},
			func(t *testing.T, path string) { check(t, os.Remove(filepath.Join(path, "filler"))) },
			"no space left on device",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			check(t, unix.Mount("tmpfs", path, "tmpfs", 0, options))
			defer func() { check(t, unix.Unmount(path, unix.MNT_DETACH)) }()
			folder := open(t, path)
			save(folder.File("a"), map[string]string{"before": "1"})
			closed(t, folder)
			tc.stop(t, path)

			folder = open(t, path)
			want(t, "where nothing can be written", folder.File("a"), map[string]string{"before": "1"})
			if early := folder.Health(); name == "read-only" && early.Persisted {
				t.Errorf("Health() right after Open() = %+v, want not persisted", early)
			}
			if _, err := statefile.Open(path, quiet()); err == nil {
				t.Error("Open() by a second one = nil, want it locked out")
			}
			save(folder.File("a"), map[string]string{"after": strings.Repeat("x", 8<<10)})
			if err := folder.Flush(); err == nil || !strings.HasSuffix(folder.Health().Message, tc.message) {
				t.Errorf("Flush() = %v, Health() = %+v, want %s", err, folder.Health(), tc.message)
			}
			tc.start(t, path)
			if err := folder.Flush(); err != nil || !folder.Health().Persisted {
				t.Errorf("Flush() where it can be written again = %v, Health() = %+v, want it persisted", err, folder.Health())
			}
			closed(t, folder)
			folder = open(t, path)
			defer closed(t, folder)
			want(t, "after all", folder.File("a"), map[string]string{"after": strings.Repeat("x", 8<<10)})
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// private gives a child its own mount namespace.
func private(child *exec.Cmd) {
	child.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
}
