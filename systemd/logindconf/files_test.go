package logindconf_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/systemd/logindconf"
)

func TestEffectiveReadsTimeSpans(t *testing.T) {
	const byDefault = logindconf.DefaultDelay
	cases := []struct {
		name, value string
		want        time.Duration
	}{
		{"a number is seconds", "90", 90 * time.Second},
		{"a fraction", "1.5", 1500 * time.Millisecond},
		{"a unit", "2min", 2 * time.Minute},
		{"m is minutes, ms is not", "1m 1ms", time.Minute + time.Millisecond},
		{"several units without a space", "1h30min5s", time.Hour + 30*time.Minute + 5*time.Second},
		{"a space before the unit", "3 seconds", 3 * time.Second},
		{"microseconds", "1500us", 1500 * time.Microsecond},
		{"microseconds in greek", "5µs", 5 * time.Microsecond},
		{"a day and a week", "1d 1w", 8 * 24 * time.Hour},
		{"zero", "0", 0},
		{"infinity", "infinity", math.MaxInt64},
		{"more than fits", "999999years", math.MaxInt64},
		{"nothing is passed over", "", byDefault},
		{"a negative one is passed over", "-5", byDefault},
		{"an unknown unit is passed over", "5 fortnights", byDefault},
		{"two points are passed over", "1.2.3", byDefault},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			text := "[Login]\nInhibitDelayMaxSec=" + c.value + "\n"
			got := logindconf.Effective([]logindconf.File{{Path: "/a", Content: []byte(text)}})
			if got.Max != c.want {
				t.Errorf("Effective(%q) = %v, want %v", c.value, got.Max, c.want)
			}
		})
	}
}

func TestEffectiveReadsFiles(t *testing.T) {
	cases := []struct {
		name  string
		texts []string // of files /0, /1, ...
		want  logindconf.Setting
	}{
		{"no file at all", nil, logindconf.Setting{Max: 5 * time.Second}},
		{"comments alone", []string{"[Login]\n#InhibitDelayMaxSec=9\n;InhibitDelayMaxSec=9\n"}, logindconf.Setting{Max: 5 * time.Second}},
		{"the last file wins", []string{"[Login]\nInhibitDelayMaxSec=9", "[Login]\nInhibitDelayMaxSec=7"}, logindconf.Setting{Max: 7 * time.Second, Source: "/1"}},
		{"a later file that is silent", []string{"[Login]\nInhibitDelayMaxSec=9", "[Login]\nKillUserProcesses=no"}, logindconf.Setting{Max: 9 * time.Second, Source: "/0"}},
		{"a later file that is wrong", []string{"[Login]\nInhibitDelayMaxSec=9", "[Login]\nInhibitDelayMaxSec=soon"}, logindconf.Setting{Max: 9 * time.Second, Source: "/0"}},
		{"the last line of a file wins", []string{"[Login]\nInhibitDelayMaxSec=9\n InhibitDelayMaxSec = 8 \n"}, logindconf.Setting{Max: 8 * time.Second, Source: "/0"}},
		{"another section", []string{"[Sleep]\nInhibitDelayMaxSec=9\n"}, logindconf.Setting{Max: 5 * time.Second}},
		{"no section", []string{"InhibitDelayMaxSec=9\n"}, logindconf.Setting{Max: 5 * time.Second}},
		{"a continued line", []string{"[Login]\nInhibitDelayMaxSec=1min \\\n# why\n 30s\n"}, logindconf.Setting{Max: 90 * time.Second, Source: "/0"}},
		{"windows line ends", []string{"[Login]\r\nInhibitDelayMaxSec=9\r\n"}, logindconf.Setting{Max: 9 * time.Second, Source: "/0"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var files []logindconf.File
			for i, text := range c.texts {
				files = append(files, logindconf.File{Path: "/" + string(rune('0'+i)), Content: []byte(text)})
			}
			if got := logindconf.Effective(files); got != c.want {
				t.Errorf("Effective() = %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestLoadFollowsSystemdsPrecedence(t *testing.T) {
	set := func(d string) string { return "[Login]\nInhibitDelayMaxSec=" + d + "\n" }
	cases := []struct {
		name  string
		files map[string]string // content by path; "mask" is a link to /dev/null
		want  logindconf.Setting
	}{
		{"the main file", map[string]string{"/etc/systemd/logind.conf": set("6")}, logindconf.Setting{Max: 6 * time.Second, Source: "/etc/systemd/logind.conf"}},
		{"a main file in /etc hides the packaged one", map[string]string{
			"/etc/systemd/logind.conf": "[Login]\n", "/usr/lib/systemd/logind.conf": set("6"),
		}, logindconf.Setting{Max: 5 * time.Second}},
		{"a drop-in of a package beats the main file", map[string]string{
			"/etc/systemd/logind.conf": set("6"), "/usr/lib/systemd/logind.conf.d/a.conf": set("30"),
		}, logindconf.Setting{Max: 30 * time.Second, Source: "/usr/lib/systemd/logind.conf.d/a.conf"}},
		{"drop-ins go by name, not by folder", map[string]string{
			"/etc/systemd/logind.conf.d/99-kubelet.conf":                              set("60"),
			"/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf": set("30"),
		}, logindconf.Setting{Max: 30 * time.Second, Source: "/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf"}},
		{"ours sorts after what packages ship", map[string]string{
			dropIn: set("60"), "/etc/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf": set("30"),
		}, logindconf.Setting{Max: time.Minute, Source: dropIn}},
		{"/etc masks the same name in /run, and /run that in /usr/lib", map[string]string{
			"/etc/systemd/logind.conf.d/a.conf": set("1"), "/run/systemd/logind.conf.d/a.conf": set("2"),
			"/run/systemd/logind.conf.d/b.conf": set("3"), "/usr/lib/systemd/logind.conf.d/b.conf": set("4"),
		}, logindconf.Setting{Max: 3 * time.Second, Source: "/run/systemd/logind.conf.d/b.conf"}},
		{"a link to /dev/null masks", map[string]string{
			"/etc/systemd/logind.conf.d/a.conf": "mask", "/usr/lib/systemd/logind.conf.d/a.conf": set("30"),
		}, logindconf.Setting{Max: 5 * time.Second}},
		{"other files are none of logind's", map[string]string{
			"/etc/systemd/logind.conf.d/a.conf.bak": set("1"), "/etc/systemd/logind.conf.d/.a.conf": set("2"), "/etc/systemd/logind.conf.d/a/b.conf": set("3"),
		}, logindconf.Setting{Max: 5 * time.Second}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range c.files {
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
			files, err := logindconf.Load(root)
			if err != nil {
				t.Fatalf("Load() = %v, want nil", err)
			}
			if got := logindconf.Effective(files); got != c.want {
				t.Errorf("Effective() = %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestLoadNamesWhatItCannotRead(t *testing.T) {
	root := t.TempDir()
	folder := filepath.Join(root, "etc/systemd/logind.conf.d")
	dangling := filepath.Join(folder, "a.conf")
	good := filepath.Join(folder, "b.conf")
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.Symlink("nowhere", dangling), os.WriteFile(good, []byte("[Login]\nInhibitDelayMaxSec=8"), 0o644)); err != nil {
		t.Fatal(err)
	}
	files, err := logindconf.Load(root)
	if err == nil || !strings.Contains(err.Error(), dangling) {
		t.Errorf("Load() = %v, want an error that names %s", err, dangling)
	}
	if got := logindconf.Effective(files); got.Max != 8*time.Second {
		t.Errorf("Effective() = %+v, want 8s of what can be read", got)
	}
}

func FuzzEffective(f *testing.F) {
	f.Add("[Login]\nInhibitDelayMaxSec=1min 30s\n")
	f.Add("[Login\nInhibitDelayMaxSec=.\\\n#\n;=\n")
	f.Add("[Login]\nInhibitDelayMaxSec=1.5h1e9")
	f.Fuzz(func(t *testing.T, text string) {
		got := logindconf.Effective([]logindconf.File{{Path: "/a", Content: []byte(text)}})
		if got.Max < 0 || (got.Source == "" && got.Max != logindconf.DefaultDelay) {
			t.Errorf("Effective(%q) = %+v, want a delay that is not negative, and 5s where no file sets it", text, got)
		}
	})
}
