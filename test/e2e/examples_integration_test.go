//go:build integration

package e2e_test

import (
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/status/conditions"
)

// example enables a packaged check as docs/howto/custom-condition.md says, with another interval.
func (a *agent) example(folder, name string) {
	a.t.Helper()
	text, err := os.ReadFile(filepath.Join("../../packaging/conditions.d", name))
	check(a.t, err)
	lines := slices.Collect(strings.Lines(string(text)))
	i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "#   interval: ") })
	if i < 0 || lines[0] != "#!/bin/sh\n" {
		a.t.Fatalf("%s begins %q, want a script with an interval", name, lines[:min(len(lines), 12)])
	}
	lines[i] = "#   interval: 1s\n"
	executable(a.t, filepath.Join(folder, name), strings.Join(lines[1:], ""), 0o755)
}

// standIn installs a command that precedes the host's in the PATH of the lab.
func standIn(t testing.TB, name, text string) {
	t.Helper()
	const folder = "/usr/local/sbin"
	if _, err := os.Stat(folder + "/.ours"); errors.Is(err, fs.ErrNotExist) {
		check(t, os.MkdirAll(folder, 0o755))
		check(t, syscall.Mount("tmpfs", folder, "tmpfs", 0, "mode=755"))
		check(t, os.WriteFile(folder+"/.ours", nil, 0o644))
		t.Cleanup(func() { check(t, syscall.Unmount(folder, syscall.MNT_DETACH)) })
	}
	executable(t, filepath.Join(folder, name), text, 0o755)
}

// A fake smartctl returns the given exit bits: no disk here fails on demand.
func TestTheExampleOfAFailingDisk(t *testing.T) {
	a, folder := withConditions(t)
	bits := filepath.Join(a.folder, "bits")
	standIn(t, "smartctl", `[ "$1" = --scan ] && { echo "/dev/sda -d scsi # /dev/sda, SCSI device"; echo "/dev/nvme0 -d nvme # NVMe"; exit; }
case "$*" in *"--device=nvme /dev/nvme0") exit $(cat `+bits+`);; *"--device=scsi /dev/sda") exit 64;; esac
exit 1
`)
	check(t, os.WriteFile(bits, []byte("0"), 0o644))
	a.example(folder, "disk-failing")
	a.start()
	for _, c := range [][4]string{
		{"0", "False", "CheckPassed", "all 2 disks say that they are sound"},
		{"8", "True", "DiskFailing", "/dev/nvme0 says that it is failing"},
		{"16", "True", "DiskFailing", "/dev/nvme0 has prefail attributes below their thresholds"},
		{"2", "Unknown", "CheckUnknown", "smartctl cannot ask /dev/nvme0"},
		{"192", "False", "CheckPassed", "sound"}, // old errors in its log
	} {
		check(t, os.WriteFile(bits, []byte(c[0]), 0o644))
		a.await("smartctl's "+c[0]+" is reported", func(s api.Status) bool { return says(s, "DiskFailing", c[1], c[2], c[3]) })
	}
	a.stop()
}

// gunzip unpacks a compressed test file.
func gunzip(t testing.TB, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	check(t, err)
	defer in.Close()
	unpacked, err := gzip.NewReader(in)
	check(t, err)
	out, err := os.Create(to)
	check(t, err)
	_, err = io.Copy(out, unpacked)
	check(t, errors.Join(err, out.Close()))
}

// A real journalctl reads a recorded journal, but ignores its age.
func TestTheExampleOfKernelMessages(t *testing.T) {
	a, folder := withConditions(t)
	journal := filepath.Join(a.folder, "kernel.journal")
	gunzip(t, "testdata/kernel.journal.gz", journal)
	old := filepath.Join(a.folder, "old")
	standIn(t, "journalctl", `[ -e `+old+` ] || { [ "$2" = --since ] && a=$1 && shift 3 && set -- "$a" "$@"; }
PATH=/usr/bin:/bin exec journalctl --file `+journal+` "$@"
`)
	a.example(folder, "kernel-problem")
	a.start()
	const want = "EXT4-fs error (device sda1): ext4_find_entry:1463: inode #2: comm ls: reading directory lblock 0 (the last of several)"
	answer := func(s api.Status, answer, message string) bool {
		i := slices.IndexFunc(s.CustomConditions.Checks, func(c conditions.Check) bool { return c.Type == "hostler.io/KernelProblem" })
		return i >= 0 && s.CustomConditions.Checks[i].Answer.String() == answer && s.CustomConditions.Checks[i].Message == message
	}
	s := a.await("the message is found", func(s api.Status) bool { return answer(s, "problem", want) })
	if c := condition(s, "hostler.io/KernelProblem"); c.Type != "" {
		t.Errorf("it is condition %+v, want an Event", c)
	}
	eventually(t, "it is reported", func() bool { return len(a.logLines("temporary problem", "EXT4-fs error")) > 0 })
	check(t, os.WriteFile(old, nil, 0o644))
	a.await("it is too long ago", func(s api.Status) bool { return answer(s, "passed", "no such kernel message within 90s") })
	a.stop()
}

// A filesystem in user space, whose server never answers, and then ends.
func TestTheExampleOfAStaleMount(t *testing.T) {
	a, folder := withConditions(t)
	closed := filepath.Join(a.folder, "closed") // only root may enter, as with kubelet's volumes
	check(t, os.Mkdir(closed, 0o700))
	mountpoint := filepath.Join(closed, "a mount")
	server, unmount := userspace(t, mountpoint)
	a.example(folder, "stale-mount")
	a.start()
	stale := func(s api.Status) bool {
		return says(s, "StaleMount", "True", "StaleMount", "does not answer: "+mountpoint+" (fuse)")
	}
	a.await("the server that hangs is reported", stale)
	runs := func(s api.Status) time.Time { return *s.CustomConditions.Checks[0].LastRun }
	first := runs(a.status())
	a.await("it is reported again", func(s api.Status) bool { return runs(s).After(first) && stale(s) })
	check(t, server.Close())
	second := runs(a.status())
	a.await("a server that has ended is reported", func(s api.Status) bool { return runs(s).After(second) && stale(s) })
	unmount()
	a.await("it is gone", func(s api.Status) bool {
		return says(s, "StaleMount", "False", "CheckPassed", "all 0 network mounts answer")
	})
	a.stop()
}
