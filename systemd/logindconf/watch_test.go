package logindconf_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hostler.io/hostler/systemd/logindconf"
)

// TestAWatcherSeesWhatCounts relies on the kernel, which queues an event before the call that
// causes it returns.
func TestAWatcherSeesWhatCounts(t *testing.T) {
	const file = "/etc/systemd/logind.conf.d/a.conf"
	for _, c := range []struct {
		name string
		do   func(root string) error
		want bool
	}{
		{"a file written", func(root string) error { return os.WriteFile(filepath.Join(root, file), []byte("x"), 0o644) }, true},
		{"a file opened, as logind does to read it", func(root string) error { _, err := os.ReadFile(filepath.Join(root, file)); return err }, true},
		{"a file removed", func(root string) error { return os.Remove(filepath.Join(root, file)) }, true},
		{"a file renamed over another", func(root string) error {
			folder := filepath.Join(root, "etc/systemd/logind.conf.d")
			return errors.Join(os.WriteFile(filepath.Join(folder, ".new"), nil, 0o644), os.Rename(filepath.Join(folder, ".new"), filepath.Join(root, file)))
		}, true},
		{"a mask made", func(root string) error {
			return os.Symlink("/dev/null", filepath.Join(root, "etc/systemd/logind.conf.d/b.conf"))
		}, true},
		{"a folder of drop-ins made", func(root string) error { return os.Mkdir(filepath.Join(root, "run/systemd/logind.conf.d"), 0o755) }, true},
		{"the way to such a folder made", func(root string) error { return os.MkdirAll(filepath.Join(root, "usr/local/lib/systemd"), 0o755) }, true},
		{"the main file made", func(root string) error {
			return os.WriteFile(filepath.Join(root, "run/systemd/logind.conf"), nil, 0o644)
		}, true},
		{"a file that logind does not read", func(root string) error {
			return os.WriteFile(filepath.Join(root, "etc/systemd/logind.conf.d/a.conf.bak"), nil, 0o644)
		}, false},
		{"a read of the files", func(root string) error { logindconf.Fingerprint(root); return nil }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := lay(t, map[string]string{file: "[Login]\n"})
			if err := os.MkdirAll(filepath.Join(root, "run/systemd"), 0o755); err != nil {
				t.Fatal(err)
			}
			w, err := logindconf.Watch(root)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if err := c.do(root); err != nil {
				t.Fatal(err)
			}
			if n, err := w.Counted(); err != nil || n > 0 != c.want {
				t.Errorf("%d events that count, %v, want some: %v", n, err, c.want)
			}
		})
	}
}

func TestAWatcherFollowsNewFolders(t *testing.T) {
	root := t.TempDir()
	w, err := logindconf.Watch(root)
	if err != nil {
		t.Fatal(err)
	}
	before := logindconf.Fingerprint(root)
	file := filepath.Join(root, "usr/lib/systemd/logind.conf.d/a.conf")
	for folder := filepath.Join(root, "usr"); ; folder = filepath.Join(folder, map[string]string{"usr": "lib", "lib": "systemd", "systemd": "logind.conf.d"}[filepath.Base(folder)]) {
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := w.Await(); err != nil {
			t.Fatalf("Await() = %v for the new folder %s, want nil", err, folder)
		}
		if filepath.Base(folder) == "logind.conf.d" {
			break
		}
	}
	if err := os.WriteFile(file, []byte("[Login]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := w.Await(); err != nil {
		t.Fatalf("Await() = %v for a file in a new folder, want nil", err)
	}
	if after := logindconf.Fingerprint(root); after == before {
		t.Errorf("Fingerprint() = %q as before, want another one", after)
	}
	ended := make(chan error, 1)
	go func() {
		for {
			if err := w.Await(); err != nil {
				ended <- err
				return
			}
		}
	}()
	w.Close()
	select {
	case err := <-ended:
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("Await() = %v after Close(), want %v", err, os.ErrClosed)
		}
	case <-time.After(5 * time.Minute):
		t.Error("Await() continues after Close()")
	}
}
