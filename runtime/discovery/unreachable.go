package discovery

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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
		if !reported && !r.has(c.Type) && !isForeignSocket(c) && slices.ContainsFunc(kinds()[c.Type].running, r.hasContainers) {
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
// the containers are removed.
func (r *Runtimes) hasContainers(pattern string) bool {
	left, _ := filepath.Glob(pattern)
	return slices.ContainsFunc(left, func(path string) bool {
		if container, found := strings.CutSuffix(path, "/userdata/conmon.pid"); found {
			text, err := os.ReadFile(path)
			return err == nil && local.Runs(r.proc, number(text), filepath.Base(container))
		}
		return r.isRunning(path)
	})
}

// number returns the process ID in a file, or 0.
func number(text []byte) int {
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}
