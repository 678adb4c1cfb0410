package runc

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"hostler.io/hostler/internal/tree"
)

// TestTheKernelKillsACgroupWhereItCan tells by how a process ends whether it was signalled by
// itself, which is for kernels that cannot kill a whole cgroup.
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

			if err := (&cgroup{folder: root}).strike(nil); err != nil {
				t.Errorf("strike() = %v", err)
			}

			_ = goes.Close() // whoever was not killed ends by itself
			_ = process.Wait()
			code := process.ProcessState.ExitCode()
			if ended := code == own; ended != can {
				t.Errorf("the process ended with code %d, want it left to the kernel: %t", code, can)
			}
			if said, _ := os.ReadFile(filepath.Join(folder, "cgroup.kill")); (string(said) == "1") != can {
				t.Errorf("cgroup.kill has %q, want the kernel told: %t", said, can)
			}
		})
	}
}
