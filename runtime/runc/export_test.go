package runc

import (
	"fmt"
	"path/filepath"
	"strings"
)

// For tests of parsed states.
var (
	ParseRunc = func(text []byte) string { return sound(parseRunc(text)) }
	ParseCrun = func(status, config []byte) string { return sound(parseCrun(status, config, "/sys/fs/cgroup")) }
)

// ForeignProcesses returns the processes that do not belong to a container.
func (r *Runtime) ForeignProcesses(id string) (map[int]bool, error) {
	return r.foreignProcesses(&target{id: id})
}

// Ancestors are for tests of who is a stranger.
var Ancestors = ancestors

// sound describes a state, of a container with a name as Buildah gives it, or its error. It panics
// if the state could lead to a wrong process.
func sound(s state, err error) string {
	if err != nil {
		return err.Error()
	}
	if s.pid <= 0 || s.start == 0 || s.created.IsZero() || s.program == "" {
		panic("a state that makes no sense was taken")
	}
	return fmt.Sprintf("%s pid %d since %d, created %v, of %q, image %q, signal %q, critical %q, own PIDs %t, cgroup %s, freezer %s",
		s.program, s.pid, s.start, s.created, s.manager("buildah-"+filepath.Base(s.bundle)), s.annotations[annotationReference], s.annotations[annotationStopSignal],
		s.annotations["hostler.io/critical"], s.ownPIDs, strings.Join(s.cgroups[:min(1, len(s.cgroups))], ""), s.freezer)
}
