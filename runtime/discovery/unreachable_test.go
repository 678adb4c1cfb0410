package discovery

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Files of ended containers stay, and process IDs are reused.
func TestAContainerOfPodmansRunsWhileItsConmonDoes(t *testing.T) {
	root := t.TempDir()
	program := filepath.Join(root, "conmon")
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, text, 0o700); err != nil {
		t.Fatal(err)
	}
	conmon := exec.Command(program, "600")
	if err := conmon.Start(); err != nil {
		t.Fatal(err)
	}
	pid := filepath.Join(root, "conmon.pid")
	expect := func(when, id string, want bool) {
		t.Helper()
		if err := os.WriteFile(pid, []byte(id), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := hasContainers(filepath.Join(root, "*.pid")); got != want {
			t.Errorf("inhabited() of one %s = %v, want %v", when, got, want)
		}
	}
	expect("that runs", fmt.Sprint(conmon.Process.Pid), true)
	expect("whose ID another process has", fmt.Sprint(os.Getpid()), false)
	expect("without an ID", "", false)
	_ = conmon.Process.Kill()
	_ = conmon.Wait()
	expect("that has ended", fmt.Sprint(conmon.Process.Pid), false)
}

// A folder of a Docker container stays if its shim was killed with it.
func TestAContainerOfDockersRunsWhileItsProcessDoes(t *testing.T) {
	root := t.TempDir()
	folder := filepath.Join(root, "0123456789ab")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	process := exec.Command("sleep", "600")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	expect := func(when string, want bool) {
		t.Helper()
		if got := hasContainers(filepath.Join(root, "*")); got != want {
			t.Errorf("inhabited() of one %s = %v, want %v", when, got, want)
		}
	}
	expect("that has no process yet", false)
	if err := os.WriteFile(filepath.Join(folder, "init.pid"), fmt.Append(nil, process.Process.Pid), 0o600); err != nil {
		t.Fatal(err)
	}
	expect("that runs", true)
	_ = process.Process.Kill()
	_ = process.Wait()
	expect("that has ended", false)
}
