package owner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// kubelets are the process names under which a kubelet runs.
var kubelets = []string{"kubelet", "kubelite", "k3s-server", "k3s-agent"}

// FindKubelet returns the process that is this host's kubelet, if there is one,
// by the names in proc. One in a PID namespace of its own belongs to a node in a
// container, such as kind's, and not to this host.
func FindKubelet(proc string) (evidence string, found bool) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return "", false
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		comm, err := os.ReadFile(filepath.Join(proc, e.Name(), "comm"))
		if err != nil {
			continue // it ended meanwhile
		}
		name := string(bytes.TrimSpace(comm))
		if slices.Contains(kubelets, name) && !ended(proc, e.Name()) && samePIDNamespace(proc, e.Name()) {
			return fmt.Sprintf("process %s, pid %d", name, pid), true
		}
	}
	return "", false
}

// ended reports whether pid is a zombie, which does no job any more, however long
// nobody reaps it.
func ended(proc, pid string) bool {
	stat, err := os.ReadFile(filepath.Join(proc, pid, "stat"))
	if err != nil {
		return false
	}
	// The state follows the name in parentheses, which may hold some itself.
	state := bytes.TrimSpace(stat[bytes.LastIndexByte(stat, ')')+1:])
	return len(state) > 0 && (state[0] == 'Z' || state[0] == 'X')
}

// samePIDNamespace reports whether pid lives in this process's PID namespace;
// where that cannot be read it is taken to.
func samePIDNamespace(proc, pid string) bool {
	theirs, err := os.Readlink(filepath.Join(proc, pid, "ns/pid"))
	ours, ourErr := os.Readlink(filepath.Join(proc, "self/ns/pid"))
	return err != nil || ourErr != nil || theirs == ours
}
