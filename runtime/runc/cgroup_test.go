package runc

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/internal/tree"
)

// TestTheKernelKillsACgroupWhereItCan shows that no process was signalled individually, which is
// only for kernels that cannot kill a whole cgroup.
func TestTheKernelKillsACgroupWhereItCan(t *testing.T) {
	for name, can := range map[string]bool{"with cgroup.kill": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			const own = 7
			process := exec.Command("sh", "-c", "read line; exit "+strconv.Itoa(own))
			goes, err := process.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := process.Start(); err != nil {
				t.Fatal(err)
			}
			folder := t.TempDir()
			files := map[string]string{"cgroup.procs": strconv.Itoa(process.Process.Pid) + "\n"}
			if can {
				files["cgroup.kill"] = ""
			}
			for file, text := range files {
				if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			root, err := tree.Open(folder)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()

			if err := (&cgroup{folder: root}).killAll(nil); err != nil {
				t.Errorf("strike() = %v", err)
			}

			_ = goes.Close() // a process that was not killed ends by itself
			_ = process.Wait()
			code := process.ProcessState.ExitCode()
			if ended := code == own; ended != can {
				t.Errorf("the process ended with code %d, want it left to the kernel: %t", code, can)
			}
			if text, _ := os.ReadFile(filepath.Join(folder, "cgroup.kill")); (string(text) == "1") != can {
				t.Errorf("cgroup.kill has %q, want the kernel called: %t", text, can)
			}
		})
	}
}

// A cgroup that cannot be read does not count as empty, which would mean that its container has
// ended.
func TestAnUnreadableCgroupDoesNotCountAsEmpty(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := tree.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	ctx, cancel := context.WithCancel(t.Context())
	foreign := func() (map[int]bool, error) { return nil, nil }

	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	pids, whole := processes(root)
	cancel()
	err = (&cgroup{folder: root}).kill(ctx, foreign)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}

	if len(pids) > 0 || whole {
		t.Errorf("processes() without descriptors = %v, whole: %t, want none, and no claim that these are all", pids, whole)
	}
	if err == nil {
		t.Error("kill() without descriptors = nil, want an error")
	}
	if pids, whole := processes(root); len(pids) != 1 || !whole {
		t.Errorf("processes() = %v, whole: %t, want the one that is there", pids, whole)
	}
}
