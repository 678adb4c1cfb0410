package logindconf_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/systemd/logindconf"
)

const (
	dropIn  = "/run/systemd/logind.conf.d/zz-hostler.conf"
	earlier = "/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf"
	later   = "/etc/systemd/logind.conf.d/zzz.conf"
	mask    = "/etc/systemd/logind.conf.d/zz-hostler.conf"
)

// lay writes files below a new root; "mask" is a link to /dev/null.
func lay(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for path, text := range files {
		path = filepath.Join(root, path)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if text == "mask" {
			err = errors.Join(err, os.Symlink("/dev/null", path))
		} else {
			err = errors.Join(err, os.WriteFile(path, []byte(text), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestReadDelay(t *testing.T) {
	set := func(d string) string { return "[Login]\nInhibitDelayMaxSec=" + d + "\n" }
	setting := func(d time.Duration, source string) logindconf.Setting {
		return logindconf.Setting{Max: d, Source: source}
	}
	byDefault := setting(logindconf.DefaultDelay, "")
	for _, c := range []struct {
		name     string
		files    map[string]string
		want     logindconf.Delay // without the fields below
		obstacle string           // part of Obstacle(36s)
	}{
		{"nothing", nil, logindconf.Delay{Effective: byDefault, Others: byDefault}, dropIn + " does not set it"},
		{"ours alone", map[string]string{dropIn: set("36")}, logindconf.Delay{
			Effective: setting(36*time.Second, dropIn), Others: byDefault, DropIn: true,
		}, "has not read them yet; run `systemctl restart systemd-logind`"},
		{"one before ours", map[string]string{dropIn: set("36"), earlier: set("30")}, logindconf.Delay{
			Effective: setting(36*time.Second, dropIn), Others: setting(30*time.Second, earlier), DropIn: true,
		}, "has not read them yet"},
		{"one after ours", map[string]string{dropIn: set("36"), later: set("8")}, logindconf.Delay{
			Effective: setting(8*time.Second, later), Others: setting(8*time.Second, later), After: setting(8*time.Second, later), DropIn: true,
		}, later + " sets InhibitDelayMaxSec= to 8s and is read after " + dropIn + "; raise it there to 36s or more, or remove it"},
		{"a mask of ours", map[string]string{dropIn: set("36"), mask: "mask", earlier: set("30")}, logindconf.Delay{
			Effective: setting(30*time.Second, earlier), Others: setting(30*time.Second, earlier), DropIn: true, MaskedBy: mask,
		}, mask + " masks " + dropIn + "; remove it"},
		{"a value that is none", map[string]string{dropIn: set("36"), later: set("soon")}, logindconf.Delay{
			Effective: setting(36*time.Second, dropIn), Others: byDefault, DropIn: true, Invalid: []logindconf.Invalid{{Path: later, Value: "soon"}},
		}, "has not read them yet"},
		{"a file that ends in null bytes, as after a power cut", map[string]string{later: "[Login]\nInhibitDelayMaxSec=8" + strings.Repeat("\x00", 512)}, logindconf.Delay{
			Effective: setting(8*time.Second, later), Others: setting(8*time.Second, later), After: setting(8*time.Second, later),
		}, later},
		{"a torn file before ours", map[string]string{dropIn: set("36"), earlier: set("30") + "[Logi"}, logindconf.Delay{
			Effective: setting(30*time.Second, earlier), Others: setting(30*time.Second, earlier), DropIn: true, Broken: earlier,
		}, earlier + " is corrupt or unreadable"},
		{"a torn file after ours", map[string]string{dropIn: set("36"), later: "[Logi"}, logindconf.Delay{
			Effective: setting(36*time.Second, dropIn), Others: byDefault, DropIn: true, Broken: later,
		}, "has not read them yet"},
		{"a file with a byte order mark", map[string]string{later: "\ufeff" + set("8")}, logindconf.Delay{
			Effective: setting(8*time.Second, later), Others: setting(8*time.Second, later), After: setting(8*time.Second, later),
		}, later},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := logindconf.ReadDelay(lay(t, c.files), dropIn)
			if got.Effective != c.want.Effective || got.Others != c.want.Others || got.After != c.want.After || got.DropIn != c.want.DropIn ||
				got.MaskedBy != c.want.MaskedBy || got.Broken != c.want.Broken || len(got.Invalid) != len(c.want.Invalid) || len(got.Invalid) > 0 && got.Invalid[0] != c.want.Invalid[0] || got.Unreadable != nil {
				t.Errorf("ReadDelay() = %+v, want %+v", got, c.want)
			}
			if text := got.Obstacle(36 * time.Second); !strings.Contains(text, c.obstacle) {
				t.Errorf("Obstacle() = %q, want it to contain %q", text, c.obstacle)
			}
		})
	}
}

func TestNonRegularFilesAreNamedAndNotRead(t *testing.T) {
	root := lay(t, map[string]string{later: "[Login]\nInhibitDelayMaxSec=8\n"})
	fifo := filepath.Join(root, "etc/systemd/logind.conf.d/fifo.conf")
	huge := filepath.Join(root, "etc/systemd/logind.conf.d/huge.conf")
	if err := errors.Join(unix.Mkfifo(fifo, 0o644), os.WriteFile(huge, nil, 0o644), os.Truncate(huge, 1<<30)); err != nil {
		t.Fatal(err)
	}
	got := logindconf.ReadDelay(root, dropIn)
	// logind stops reading at the first of them.
	if got.Effective.Max != logindconf.DefaultDelay || !strings.HasSuffix(fifo, got.Broken) || got.Unreadable == nil || !strings.Contains(got.Unreadable.Error(), fifo) || !strings.Contains(got.Unreadable.Error(), huge) {
		t.Errorf("ReadDelay() = %+v, want the default, since logind gives up, and %s and %s named", got, fifo, huge)
	}
	if text := got.Obstacle(time.Minute); !strings.Contains(text, "some of logind's files cannot be read") {
		t.Errorf("Obstacle() = %q, want it to say that not all could be read", text)
	}
}

func TestAFileThatLogindCannotOpenEndsItsReading(t *testing.T) {
	for name, c := range map[string]struct {
		make func(path string) error
		file string
		want time.Duration
	}{
		"a folder before ours":                  {func(path string) error { return os.Mkdir(path, 0o755) }, "a.conf", logindconf.DefaultDelay},
		"a folder after ours":                   {func(path string) error { return os.Mkdir(path, 0o755) }, "zzz.conf", 36 * time.Second},
		"a link to itself before ours":          {func(path string) error { return os.Symlink(filepath.Base(path), path) }, "a.conf", logindconf.DefaultDelay},
		"a link that leads nowhere before ours": {func(path string) error { return os.Symlink("nowhere", path) }, "a.conf", 36 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			root := lay(t, map[string]string{dropIn: "[Login]\nInhibitDelayMaxSec=36\n", later + ".off": ""})
			path := filepath.Join(root, filepath.Dir(later), c.file)
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			got := logindconf.ReadDelay(root, dropIn)
			if got.Effective.Max != c.want || got.Unreadable == nil {
				t.Errorf("ReadDelay() = %+v, want %v and %s named", got, c.want, path)
			}
			if text := got.Obstacle(36 * time.Second); got.Broken != "" && (!strings.HasSuffix(path, got.Broken) || !strings.Contains(text, got.Broken)) {
				t.Errorf("Obstacle() = %q, want it to name %s", text, path)
			}
		})
	}
}
