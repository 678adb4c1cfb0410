package conditions_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runExample runs a packaged check with another proc filesystem, and with a command that prints a
// text. It returns the check's output.
func runExample(t *testing.T, name, proc, command, prints string) string {
	t.Helper()
	script, err := os.ReadFile(filepath.Join("../../packaging/conditions.d", name))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, command), []byte("#!/bin/sh\ncat <<'END'\n"+prints+"\nEND\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", strings.ReplaceAll(string(script), "/proc/", proc+"/"))
	cmd.Env = []string{"PATH=" + folder + ":/usr/bin:/bin"}
	output, err := cmd.Output()
	if err != nil && cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("%s: %v", name, err)
	}
	return strings.TrimSpace(string(output))
}

// The stat of an earlier run is still in the cgroup of the service. Another process may have the
// same command line.
func TestTheExampleOfAStaleMountBelievesOnlyItsOwnProcess(t *testing.T) {
	mount := t.TempDir()
	const own, other = "1:name=systemd:/x\n0::/system.slice/hostler.service\n", "0::/system.slice/hostler.service/x\n"
	for want, cgroup := range map[string]string{
		"all 1 network mounts answer":           other,
		"does not answer: " + mount + " (nfs4)": own,
	} {
		proc := t.TempDir()
		for path, text := range map[string]string{
			"self/mounts": "server:/ " + mount + " nfs4 rw 0 0\n",
			"self/cgroup": own,
			"71/cgroup":   cgroup,
			"71/cmdline":  "stat\x00--file-system\x00--format\x00%T\x00--\x00" + mount + "\x00",
			"72/cgroup":   own,
			"72/cmdline":  "hostler\x00agent\x00",
		} {
			path := filepath.Join(proc, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := runExample(t, "stale-mount", proc, "stat", ""); got != want {
			t.Errorf("stale-mount beside a stat in cgroup %q prints %q, want %q", cgroup, got, want)
		}
	}
}

// A user chooses the name of a program, which the kernel prints when it crashes.
func TestTheExampleOfKernelProblemsBelievesNoName(t *testing.T) {
	const none = "no such kernel message within 90s"
	for message, want := range map[string]string{
		"mce: [Hardware Error]: Machine check events logged":                                        "",
		"Out of memory: Killed process 7 (Oops: ) total-vm:1kB":                                     "",
		"EXT4-fs error (device sda1): ext4_find_entry:1463: inode #2: comm ls: reading directory":   "",
		`EXT4-fs error (device sda1): comm "C:\new": reading directory`:                             "",
		"Hardware Error[71]: segfault at 0 ip 0000000000401106 sp 00007ffe error 6 in x[401000+1]":  none,
		"process 'x' launched '/tmp/BUG: x' with NULL argv: empty string added":                     none,
		"show_signal_msg: 3 callbacks suppressed":                                                   none,
		"traps: Kernel panic[71] general protection fault ip:401106 sp:7ffe error:0 in x[401000+1]": none,
		"Oops: \nx[71]: segfault at 0 ip 0000000000401106 sp 00007ffe error 6 in x[401000+1]":       none,
		"x\nMESSAGE=Oops: [71]: segfault at 0 ip 0000000000401106 sp 00007ffe error 6":              none,
		`BUG: a","MESSAGE":"b`: "",
		"traps: x\nOops: x[71] trap invalid opcode ip:401106 sp:7ffe error:0 in x[401000+1]": none,
	} {
		if want == "" {
			want = message
		}
		record, err := json.Marshal(map[string]string{"MESSAGE": message, "_BOOT_ID": "2d3d64ef"}) // as journalctl prints it
		if err != nil {
			t.Fatal(err)
		}
		if got := runExample(t, "kernel-problem", t.TempDir(), "journalctl", string(record)); got != want {
			t.Errorf("kernel-problem of %q prints %q, want %q", message, got, want)
		}
	}
}
