package discovery

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker"
	"hostler.io/hostler/runtime/local"
)

// goneAfter is how long a discovered runtime whose service has ended is expected to return. It is
// longer than an upgrade of its package, and shorter than a cluster waits before it evicts the pods
// of a NotReady Node.
const goneAfter = 2 * time.Minute

// Gone is a runtime that was in the set and is not expected any more, because somebody stopped or
// removed it.
type Gone struct {
	Name, Endpoint string
	Since          time.Time
}

// Gone returns the runtimes that have not returned since.
func (r *Runtimes) Gone() []Gone {
	r.results.mu.Lock()
	defer r.results.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.results.gone), func(g Gone) bool { return r.member(g.Name) })
}

// removeGone removes discovered runtimes that have been down for long and have no running
// container. Otherwise a runtime that is not used any more would keep the Node NotReady. If it
// returns, a search finds it again. The caller holds mu.
func (r *Runtimes) removeGone(now time.Time) {
	if r.candidates == nil {
		return // configured runtimes stay until the configuration changes
	}
	for _, m := range r.set.Members() {
		s, known := r.results.states[m.Name()]
		if !known || s.Ready || now.Sub(s.Since) < goneAfter || !ended(m, kinds()[r.results.types[m.Name()]].running) {
			continue
		}
		r.log.Info("runtime stopped, no longer expected", "name", m.Name(), "endpoint", m.Endpoint(), "since", s.Since)
		r.results.gone = append(slices.DeleteFunc(r.results.gone, func(g Gone) bool { return g.Name == m.Name() }), Gone{m.Name(), m.Endpoint(), s.Since})
		r.remove(m)
	}
}

// ended reports whether no process serves a runtime's socket and none of its containers runs.
func ended(m runtime.Runtime, running []string) bool {
	if len(running) == 0 || (&local.Activation{Path: socket(m.Endpoint())}).Served() {
		return false
	}
	return !slices.ContainsFunc(running, func(pattern string) bool {
		left, err := filepath.Glob(pattern)
		return len(left) > 0 || err != nil
	})
}

// remove removes a runtime from the set. The caller holds mu.
func (r *Runtimes) remove(m runtime.Runtime) {
	r.set.Remove(m.Name())
	delete(r.results.states, m.Name())
	delete(r.results.faults, m.Name())
	delete(r.results.types, m.Name())
	_ = m.Close() // if this fails, there is nothing left to close
}

// member reports whether a runtime of that name is in the set.
func (r *Runtimes) member(name string) bool {
	return slices.ContainsFunc(r.set.Members(), func(m runtime.Runtime) bool { return m.Name() == name })
}

// isForeignSocket reports whether Docker's socket is a link to another socket: package
// podman-docker links it to Podman's.
func isForeignSocket(c local.Candidate) bool {
	return c.Type == docker.Type && filepath.Base(socket(c.Path)) != filepath.Base(c.Path)
}

// withoutRuntimeText describes the first runtime of withoutRuntime, or is "".
func (r *Runtimes) withoutRuntimeText() string {
	if left := r.withoutRuntime(); len(left) > 0 {
		return "the runtime at " + left[0].Path + " does not exist, but its containers run"
	}
	return ""
}

// withoutRuntime returns the runtimes that were stopped before they were found, while their pods
// still run. A stopped containerd leaves no socket, but a folder for each container. Without
// containerd, the folder stays even after the container ends.
func (r *Runtimes) withoutRuntime() []local.Candidate {
	return slices.DeleteFunc(slices.Clone(r.usual), func(c local.Candidate) bool {
		if r.at(c.Path) != nil { // true in nearly every call
			return true
		}
		left, _ := filepath.Glob(filepath.Join(filepath.Dir(c.Path), "io.containerd.runtime.v2.task", "k8s.io", "*"))
		return !slices.ContainsFunc(left, r.isRunning)
	})
}

// isRunning reports whether the process runs whose ID is in a container's folder, and is one of that
// container: another process may have its ID. runc's shim writes the container's process to
// init.pid. Kata's shim writes its own to shim.pid. runc's may also have a shim.pid, but that process
// outlives the container.
func (r *Runtimes) isRunning(folder string) bool {
	text, err := os.ReadFile(filepath.Join(folder, "init.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		text, err = os.ReadFile(filepath.Join(folder, "shim.pid"))
	}
	return err == nil && local.Runs(r.proc, number(text), filepath.Base(folder))
}
