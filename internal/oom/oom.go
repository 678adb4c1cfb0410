// Package oom protects only the agent from the OOM killer, and not the programs that it starts.
// They would inherit the agent's oom_score_adj, with which the kernel kills almost every other
// process first. hostler.service sets the agent's score.
package oom

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// Proc is the mount point of the proc file system.
const Proc = "/proc"

// file contains the adjustment of a process's OOM score (proc_pid_oom_score_adj(5)).
const file = "oom_score_adj"

// Protected reports whether this process has better protection than the default.
func Protected(proc string) bool {
	own, err := os.ReadFile(filepath.Join(proc, "self", file))
	return err == nil && bytes.HasPrefix(own, []byte("-"))
}

// Reset gives a child of this process the default score, if this process has better protection. The
// child must not have been waited for. Until the call, the child and the processes that it starts
// have the score of this process.
func Reset(proc string, child int) {
	if Protected(proc) {
		_ = os.WriteFile(filepath.Join(proc, strconv.Itoa(child), file), []byte("0"), 0o644) // the child may have ended
	}
}
