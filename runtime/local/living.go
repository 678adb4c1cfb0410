package local

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"hostler.io/hostler/internal/tree"
	"hostler.io/hostler/internal/trust"
)

// Living returns the IDs of containers that have a running process, from the proc filesystem
// procRoot. The process is the container's own, whose cgroup contains the ID, or its monitor, whose
// command line does, such as containerd's shims and conmon. It calls no runtime.
func Living(procRoot string) (map[string]bool, error) {
	living := map[string]bool{}
	for name, err := range tree.Names(procRoot) {
		if err != nil {
			return nil, fmt.Errorf("find processes of containers: %w", err)
		}
		if pid, err := strconv.Atoi(name); err == nil {
			addOf(living, procRoot, pid)
		}
	}
	return living, nil
}

// Runs reports whether a process is one of a container, as in Living.
func Runs(procRoot string, pid int, id string) bool {
	ids := map[string]bool{}
	addOf(ids, procRoot, pid)
	return ids[id]
}

// addOf adds the IDs of the containers of a process. A process that cannot be read has ended.
func addOf(ids map[string]bool, procRoot string, pid int) {
	folder := filepath.Join(procRoot, strconv.Itoa(pid))
	// Users can create cgroups with any name below user.slice, and write any command line, as can
	// containers.
	if text, err := os.ReadFile(filepath.Join(folder, "cgroup")); err == nil && !bytes.Contains(text, []byte("/user.slice/")) {
		addIDs(ids, text)
	}
	if !trust.IsOnHost(procRoot, pid) { // the read of another user's memory may hang
		return
	}
	if text, err := os.ReadFile(filepath.Join(folder, "cmdline")); err == nil {
		addIDs(ids, text)
	}
}

// idLength is the length of an ID in hexadecimal digits.
const idLength = 64

// addIDs adds all IDs in a text.
func addIDs(ids map[string]bool, text []byte) {
	for from := 0; from < len(text); {
		to := from
		for to < len(text) && (text[to] >= '0' && text[to] <= '9' || text[to] >= 'a' && text[to] <= 'f') {
			to++
		}
		if to-from == idLength {
			ids[string(text[from:to])] = true
		}
		from = to + 1
	}
}
