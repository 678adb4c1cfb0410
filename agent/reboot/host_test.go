package reboot_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/reboot"
)

func TestAFileThatOthersCanCreateRequestsNoReboot(t *testing.T) {
	for _, mode := range []os.FileMode{0o777, 0o777 | os.ModeSticky, 0o775} {
		folder := filepath.Join(t.TempDir(), "open")
		file := filepath.Join(folder, "reboot-required")
		if err := errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(file, nil, 0o644), os.Chmod(folder, mode)); err != nil {
			t.Fatal(err)
		}
		wanted, undecided := reboot.Sentinels([]string{file}, time.Now())
		if len(wanted) != 0 || len(undecided) != 1 || !strings.Contains(undecided[0].Message, folder+" is writable by users other than root") {
			t.Errorf("Sentinels() in a folder of mode %v = %+v, %+v, want that it is not believed", mode, wanted, undecided)
		}
	}
}

func TestACommandThatOthersCanChangeIsNotRun(t *testing.T) {
	folder := t.TempDir()
	shell, ran := filepath.Join(folder, "shell"), filepath.Join(folder, "ran")
	if err := errors.Join(os.WriteFile(shell, []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o755), os.WriteFile(folder+"/down", []byte("#!"+shell+"\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(reboot.Runnable([]string{folder + "/down", "now"}), reboot.Run(t.Context(), []string{folder + "/down", "now"})); err != nil {
		t.Fatalf("Run() = %v", err)
	}
	if err := errors.Join(os.Remove(ran), os.Chmod(shell, 0o757)); err != nil {
		t.Fatal(err)
	}
	err := reboot.Run(t.Context(), []string{folder + "/down", "now"})
	if _, missing := os.Stat(ran); missing == nil || err == nil || !strings.Contains(err.Error(), shell+" is writable by users other than root") || !strings.Contains(err.Error(), "check its content") {
		t.Errorf("Run() = %v, ran: %v, want the command not to be run", err, missing == nil)
	}
	for _, program := range []string{folder + "/down", folder + "/none", "hostler-none"} {
		if err := reboot.Runnable([]string{program}); err == nil {
			t.Errorf("Runnable() of %s = nil, want an error", program)
		}
	}
}
