package discovery

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker"
	"hostler.io/hostler/runtime/local"
)

// absence is how long a runtime that was searched for, and whose service has ended, is
// expected back: longer than an upgrade of its package takes, and shorter than a cluster
// waits before it takes the pods of a NotReady Node elsewhere.
const absence = 2 * time.Minute

// Gone is a runtime that was found and is not expected any more: a person has stopped or
// removed it.
type Gone struct {
	Name, Endpoint string
	Since          time.Time
}

// Gone are those that have not return since.
func (r *Runtimes) Gone() []Gone {
	r.learned.mu.Lock()
	defer r.learned.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.learned.gone), func(g Gone) bool { return r.member(g.Name) })
}

// letGo removes runtimes from the set that were discovered, have been down for long, and have no
// running container. Otherwise the Node would stay NotReady because of a runtime that is not used
// any more. A search finds it again when it returns. The caller holds mu.
func (r *Runtimes) letGo(now time.Time) {
	if r.candidates == nil {
		return // a person has named it, and takes it out
	}
	for _, m := range r.set.Members() {
		s, known := r.learned.states[m.Name()]
		if !known || s.Ready || now.Sub(s.Since) < absence || !ended(m, kinds()[r.learned.types[m.Name()]].running) {
			continue
		}
		r.log.Info("runtime stopped, no longer expected", "name", m.Name(), "endpoint", m.Endpoint(), "since", s.Since)
		r.learned.gone = append(slices.DeleteFunc(r.learned.gone, func(g Gone) bool { return g.Name == m.Name() }), Gone{m.Name(), m.Endpoint(), s.Since})
		r.remove(m)
	}
}

// ended reports whether nobody serves a runtime's socket, and no container of it runs.
func ended(m runtime.Runtime, running []string) bool {
	if len(running) == 0 || (&local.Activation{Path: socket(m.Endpoint())}).Served() {
		return false
	}
	return !slices.ContainsFunc(running, func(pattern string) bool {
		left, err := filepath.Glob(pattern)
		return len(left) > 0 || err != nil
	})
}

// remove takes a runtime out of the set. The caller holds mu.
func (r *Runtimes) remove(m runtime.Runtime) {
	r.set.Remove(m.Name())
	delete(r.learned.states, m.Name())
	delete(r.learned.faults, m.Name())
	delete(r.learned.types, m.Name())
	_ = m.Close() // nothing is left to give back where that fails
}

// member reports whether a runtime of that name is in the set.
func (r *Runtimes) member(name string) bool {
	return slices.ContainsFunc(r.set.Members(), func(m runtime.Runtime) bool { return m.Name() == name })
}

// borrowed reports whether a socket of Docker's leads to another client's: package
// podman-docker has a link to Podman's there.
func borrowed(c local.Candidate) bool {
	return c.Type == docker.Type && filepath.Base(socket(c.Path)) != filepath.Base(c.Path)
}

// withoutRuntimeText says where deserted finds one.
func (r *Runtimes) withoutRuntimeText() string {
	if left := r.withoutRuntime(); len(left) > 0 {
		return "the runtime at " + left[0].Path + " does not exist, but its containers run"
	}
	return ""
}

// withoutRuntime are the runtimes that were stopped before they were found, while their pods run
// on: containerd leaves no socket then, but beside it a folder for each container, which
// stays where nobody sees its end.
func (r *Runtimes) withoutRuntime() []local.Candidate {
	return slices.DeleteFunc(slices.Clone(r.usual), func(c local.Candidate) bool {
		if r.at(c.Path) != nil { // which is so at nearly every look
			return true
		}
		left, _ := filepath.Glob(filepath.Join(filepath.Dir(c.Path), "io.containerd.runtime.v2.task", "k8s.io", "*"))
		return !slices.ContainsFunc(left, runs)
	})
}

// runs reports whether the process lives whose ID is in a container's folder: runc's shim has
// the container's in init.pid, Kata's its own in shim.pid, where runc's may have one, too,
// that outlives the container.
func runs(folder string) bool {
	text, err := os.ReadFile(filepath.Join(folder, "init.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		text, err = os.ReadFile(filepath.Join(folder, "shim.pid"))
	}
	if err != nil {
		return false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return err == nil && pid > 0 && unix.Kill(pid, 0) != unix.ESRCH
}
