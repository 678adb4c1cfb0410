package local_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/runtime/local"
)

func TestContainersLiveAsLongAsAProcessOfTheirsDoes(t *testing.T) {
	id := func(digit string) string { return strings.Repeat(digit, 64) }
	proc := t.TempDir()
	for pid, files := range map[string]map[string]string{
		"1":   {"cgroup": "0::/init.scope\n", "cmdline": "/sbin/init\x00"},
		"10":  {"cgroup": "0::/system.slice/docker-" + id("a") + ".scope\n"},
		"11":  {"cgroup": "12:pids:/kubepods/burstable/pod1/" + id("b") + "\n1:name=systemd:/kubepods\n"},
		"12":  {"cgroup": "0::/system.slice/containerd.service\n", "cmdline": "containerd-shim-runc-v2\x00-namespace\x00moby\x00-id\x00" + id("c") + "\x00", "status": "Uid:\t0\t0\t0\t0\n"},
		"13":  {"cgroup": "0::/web.service/libpod-payload-" + id("d") + "\n"},
		"14":  {"cmdline": id("e") + "0\x00", "status": "Uid:\t0\t0\t0\t0\n"},
		"15":  {"cmdline": "conmon\x00" + id("1") + "\x00", "status": "Uid:\t1000\t1000\t1000\t1000\n"}, // a user's process
		"17":  {"cmdline": id("3") + "\x00", "status": "Uid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\n"}, // root in a container
		"16":  {"cgroup": "0::/user.slice/user-1000.slice/user@1000.service/" + id("2") + "\n"},
		"net": {"cmdline": id("f")},
	} {
		for name, text := range files {
			folder := filepath.Join(proc, pid)
			if err := os.MkdirAll(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for link, target := range map[string]string{"1/root": "/", "12/root": "/", "14/root": "/", "17/root": t.TempDir()} {
		if err := os.Symlink(target, filepath.Join(proc, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range []string{"15", "17"} { // a read of the memory of another user's process may hang
		path := filepath.Join(proc, pid, "cmdline")
		if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := local.Living(proc)
	want := map[string]bool{id("a"): true, id("b"): true, id("c"): true, id("d"): true}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("Living() = %v, %v, want %v", got, err, want)
	}
	if _, err := local.Living(filepath.Join(proc, "none")); err == nil {
		t.Error("Living() without a proc filesystem = nil, want an error")
	}
}
