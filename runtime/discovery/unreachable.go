package discovery

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"hostler.io/hostler/internal/trust"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

// Unreachable returns discovered runtimes that did not answer the last search while their
// containers run: a shutdown would kill these. A leftover socket without containers does not count.
// Configured runtimes are in the set, and never here.
func (r *Runtimes) Unreachable() []runtime.Health {
	r.results.mu.Lock()
	defer r.results.mu.Unlock()
	return r.results.unreachable
}

// OutOfReach describes the runtimes of Unreachable, whose containers are unknown. It returns "" if
// there are none.
func (r *Runtimes) OutOfReach() string {
	var all []string
	for _, u := range r.Unreachable() {
		all = append(all, u.Name+": "+u.Message)
	}
	return strings.Join(all, "; ")
}

// unanswered returns the runtimes for Unreachable. Containers do not show which instance of a type
// runs them, so it is enough if one instance of the type answers.
func (r *Runtimes) unanswered() (list []runtime.Health) {
	if r.candidates == nil {
		return nil
	}
	var unresponsive []local.Candidate
	for _, c := range r.candidates {
		reported := slices.ContainsFunc(unresponsive, func(s local.Candidate) bool { return s.Type == c.Type })
		if !reported && !r.has(c.Type) && !isForeignSocket(c) && slices.ContainsFunc(kinds()[c.Type].running, hasContainers) {
			unresponsive = append(unresponsive, c)
		}
	}
	for _, c := range append(unresponsive, r.withoutRuntime()...) {
		list = append(list, runtime.Health{Info: runtime.Info{
			Name: c.Name, Endpoint: "unix://" + c.Path, Message: "its containers run, but nothing answers at " + c.Path,
		}})
	}
	return list
}

// hasContainers reports whether a container's process runs at a path of pattern: for Podman a
// conmon whose ID is in the file, else a container of runc. Files of ended containers stay until
// the containers are removed, and another process may have the ID.
func hasContainers(pattern string) bool {
	left, _ := filepath.Glob(pattern)
	return slices.ContainsFunc(left, func(path string) bool {
		if filepath.Base(path) != "conmon.pid" {
			return isRunning(path)
		}
		id, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(id)))
		if err != nil {
			return false
		}
		name, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
		return strings.HasPrefix(string(name), "conmon") && trust.IsOnHost("/proc", pid)
	})
}
