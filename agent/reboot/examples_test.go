package reboot_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/status/conditions"
)

// runExample runs a packaged check with fakes of the commands of its distribution.
func runExample(t *testing.T, name string, commands map[string]string) (code int, message string) {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"sh", "cat", "grep", "head", "sed", "sort", "tail", "paste"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range commands {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", filepath.Join("../../packaging/reboot.d", name))
	cmd.Env = []string{"PATH=" + folder}
	output, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	line, _, _ := bytes.Cut(output, []byte("\n"))
	return cmd.ProcessState.ExitCode(), string(line)
}

func TestTheExamplesAreChecks(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "reboot.d")
	if err := os.CopyFS(folder, os.DirFS("../../packaging/reboot.d")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"needs-restarting", "new-kernel"} {
		if err := os.Chmod(filepath.Join(folder, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	programs, faults := conditions.Read(conditions.Policy{Folder: folder, Interval: time.Minute, Timeout: time.Second, User: "daemon"})
	if len(programs) != 2 || len(faults) > 0 || programs[0].Interval != 15*time.Minute || programs[1].Interval != 15*time.Minute {
		t.Errorf("Read() = %+v, %+v, want both with their intervals", programs, faults)
	}
	for _, p := range programs { // another process of its user could write the result of a check
		if p.User != "root" {
			t.Errorf("%s runs as %s, want root, because its result reboots the host", p.Path, p.User)
		}
	}
}

// TestTheExampleOfANewKernel uses a fake of linux-version that sorts as the one of Debian.
func TestTheExampleOfANewKernel(t *testing.T) {
	for name, c := range map[string]struct {
		running   string
		installed []string
		code      int
		message   string
	}{
		"the newest runs":              {"6.12.57+deb13-amd64", []string{"6.12.57+deb13-amd64", "6.12.9+deb13-amd64"}, 0, "no newer kernel is installed than 6.12.57+deb13-amd64"},
		"a newer one is installed":     {"6.12.9+deb13-amd64", []string{"6.12.57+deb13-amd64", "6.12.9+deb13-amd64"}, 1, "kernel 6.12.57+deb13-amd64 is installed, and 6.12.9+deb13-amd64 runs"},
		"of the older scheme":          {"6.1.0-9-amd64", []string{"6.1.0-9-amd64", "6.1.0-37-amd64"}, 1, "kernel 6.1.0-37-amd64 is installed, and 6.1.0-9-amd64 runs"},
		"after an upgrade of Debian":   {"6.1.0-37-amd64", []string{"6.1.0-37-amd64", "6.12.57+deb13-amd64"}, 1, "kernel 6.12.57+deb13-amd64 is installed, and 6.1.0-37-amd64 runs"},
		"another flavour is newer":     {"6.12.9+deb13-amd64", []string{"6.12.57+deb13-cloud-amd64", "6.12.57+deb13-rt-amd64", "6.12.9+deb13-amd64"}, 0, "no newer kernel is installed than 6.12.9+deb13-amd64"},
		"a newer one of the flavour":   {"6.1.0-9-cloud-amd64", []string{"6.1.0-37-amd64", "6.1.0-37-cloud-amd64", "6.1.0-9-cloud-amd64"}, 1, "kernel 6.1.0-37-cloud-amd64 is installed, and 6.1.0-9-cloud-amd64 runs"},
		"of Ubuntu":                    {"6.8.0-60-generic", []string{"6.8.0-60-generic", "6.8.0-106-generic"}, 1, "kernel 6.8.0-106-generic is installed, and 6.8.0-60-generic runs"},
		"the running one was removed":  {"6.12.9+deb13-amd64", []string{"6.12.57+deb13-amd64"}, 1, "kernel 6.12.57+deb13-amd64 is installed, and 6.12.9+deb13-amd64 runs"},
		"the newest was removed":       {"6.12.57+deb13-amd64", []string{"6.12.9+deb13-amd64"}, 0, "no newer kernel is installed than 6.12.57+deb13-amd64"},
		"none is installed":            {"6.12.57+deb13-amd64", nil, 0, "no newer kernel is installed than 6.12.57+deb13-amd64"},
		"one without any flavour runs": {"6.12.57", []string{"6.12.57", "6.12.57+deb13-amd64"}, 0, "no newer kernel is installed than 6.12.57"},
	} {
		t.Run(name, func(t *testing.T) {
			code, message := runExample(t, "new-kernel", map[string]string{
				"uname":         `[ "$*" = -r ] && echo ` + c.running,
				"linux-version": `case "$*" in list) cat <<END` + "\n" + strings.Join(c.installed, "\n") + "\nEND\n" + `;; sort) exec sort -V;; *) exit 2;; esac`,
			})
			if code != c.code || message != c.message {
				t.Errorf("new-kernel = %d %q, want %d %q", code, message, c.code, c.message)
			}
		})
	}
	uname := "echo 6.12.57+deb13-amd64"
	for want, commands := range map[string]map[string]string{
		"linux-version is not installed: install the package linux-base": {"uname": uname},
		"linux-version list or uname -r fails":                           {"uname": uname, "linux-version": "exit 2"},
		"linux-version sort fails":                                       {"uname": uname, "linux-version": `[ "$1" = list ]`},
	} {
		if code, message := runExample(t, "new-kernel", commands); code != 2 || message != want {
			t.Errorf("new-kernel = %d %q, want 2 %q", code, message, want)
		}
	}
}

func TestTheExampleOfNeedsRestarting(t *testing.T) {
	const updated = `echo "Core libraries or services have been updated since boot-up:"; echo "  * glibc"; echo "  * kernel"; exit 1`
	for want, commands := range map[string]map[string]string{
		"0 no reboot is needed":                                              {"needs-restarting": `[ "$*" = --reboothint ]`},
		"1 updated since the boot: glibc,kernel":                             {"needs-restarting": updated},
		"2 needs-restarting fails with code 3: no such option":               {"needs-restarting": "echo no such option >&2; exit 3"},
		"2 needs-restarting is not installed: install the package dnf-utils": {},
		"1 updated since the boot: see needs-restarting --reboothint":        {"needs-restarting": "exit 1"},
	} {
		code, message := runExample(t, "needs-restarting", commands)
		if got := string(rune('0'+code)) + " " + message; got != want {
			t.Errorf("needs-restarting = %q, want %q", got, want)
		}
	}
}
