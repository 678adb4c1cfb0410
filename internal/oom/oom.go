// Package oom keeps programs that the agent starts from what its service has: a score by which
// the kernel, when memory runs out, kills almost everything else first. It does not decide which
// score the agent has; hostler.service does.
package oom

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// Proc is the proc file system of the process itself.
const Proc = "/proc"

// file has a process's score (proc_pid_oom_score_adj(5)).
const file = "oom_score_adj"

// Protected reports whether this process is better protected than an ordinary one.
func Protected(proc string) bool {
	own, err := os.ReadFile(filepath.Join(proc, "self", file))
	return err == nil && bytes.HasPrefix(own, []byte("-"))
}

// Reset gives a child of this process the score of an ordinary one, if this process is better
// protected than that. Nobody may have waited for the child yet. Until then it has the score of its
// parent, and so has what it starts in its first moment.
func Reset(proc string, child int) {
	if Protected(proc) {
		_ = os.WriteFile(filepath.Join(proc, strconv.Itoa(child), file), []byte("0"), 0o644) // the child may have ended
	}
}
