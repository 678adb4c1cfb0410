package runc

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"hostler.io/hostler/runtime"
)

// Files of a container's folder in a state root.
const (
	runcState  = "state.json"
	crunStatus = "status"
	crunConfig = "config.json" // as the bundle's was when the container was created
	execFifo   = "exec.fifo"   // until the container is started
)

// state is what a container's files say of it.
type state struct {
	program     string // that keeps it: "runc" or "crun"
	pid         int    // of its first process
	start       uint64 // when that started, in ticks since the boot
	created     time.Time
	annotations map[string]string
	bundle      string // folder that it was made from
	// cgroups are the folders where its cgroup may be, the best to kill through first.
	cgroups []string
	freezer string // that of version 1's freezer, if it has one
	// ownPIDs reports that its processes are in a PID namespace that was made for it,
	// and end with the first.
	ownPIDs bool
}

// parseRunc reads state.json, as libcontainer of runc 1.0 and later writes it.
func parseRunc(text []byte) (state, error) {
	var raw struct {
		PID     int               `json:"init_process_pid"`
		Start   uint64            `json:"init_process_start"`
		Created time.Time         `json:"created"`
		Cgroups map[string]string `json:"cgroup_paths"`
		Config  struct {
			Labels     []string `json:"labels"` // KEY=VALUE
			Namespaces []struct {
				Type string `json:"type"`
				Path string `json:"path"`
			} `json:"namespaces"`
		} `json:"config"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return state{}, fmt.Errorf("%w: %s: %w", runtime.ErrInvalidAnswer, runcState, err)
	}
	s := state{program: "runc", pid: raw.PID, start: raw.Start, created: raw.Created, annotations: map[string]string{}}
	// "" is version 2, which hybrid hosts have beside version 1's controllers.
	s.freezer = raw.Cgroups["freezer"]
	for _, controller := range slices.Sorted(maps.Keys(raw.Cgroups)) {
		s.cgroups = append(s.cgroups, raw.Cgroups[controller])
	}
	for _, label := range raw.Config.Labels {
		switch key, value, found := strings.Cut(label, "="); {
		case found && key == "bundle": // runc's own
			s.bundle = value
		case found:
			s.annotations[key] = value
		}
	}
	for _, ns := range raw.Config.Namespaces {
		s.ownPIDs = s.ownPIDs || ns.Type == "NEWPID" && ns.Path == ""
	}
	return s, s.check(runcState)
}

// parseCrun reads status and config.json of crun. The path of the cgroup in it is that in
// each hierarchy which is mounted at cgroupRoot, or below it.
func parseCrun(status, config []byte, cgroupRoot string) (state, error) {
	var raw struct {
		PID     int    `json:"pid"`
		Start   uint64 `json:"process-start-time"`
		Cgroup  string `json:"cgroup-path"`
		Bundle  string `json:"bundle"`
		Created string `json:"created"`
	}
	if err := json.Unmarshal(status, &raw); err != nil {
		return state{}, fmt.Errorf("%w: %s: %w", runtime.ErrInvalidAnswer, crunStatus, err)
	}
	var spec struct {
		Annotations map[string]string `json:"annotations"`
		Linux       struct {
			Namespaces []specs.LinuxNamespace `json:"namespaces"`
		} `json:"linux"`
	}
	if err := json.Unmarshal(config, &spec); err != nil {
		return state{}, fmt.Errorf("%w: %s: %w", runtime.ErrInvalidAnswer, crunConfig, err)
	}
	s := state{program: "crun", pid: raw.PID, start: raw.Start, annotations: spec.Annotations, bundle: raw.Bundle}
	s.created, _ = time.Parse(time.RFC3339Nano, raw.Created) // check reports errors
	for _, ns := range spec.Linux.Namespaces {
		s.ownPIDs = s.ownPIDs || ns.Type == specs.PIDNamespace && ns.Path == ""
	}
	if raw.Cgroup != "" {
		s.freezer = filepath.Join(cgroupRoot, "freezer", raw.Cgroup)
		for _, hierarchy := range []string{"", "unified", "freezer", "pids", "systemd"} {
			s.cgroups = append(s.cgroups, filepath.Join(cgroupRoot, hierarchy, raw.Cgroup))
		}
	}
	return s, s.check(crunStatus)
}

// check refuses what could lead to a wrong process.
func (s state) check(file string) error {
	switch {
	case s.pid <= 0:
		return fmt.Errorf("%w: %s: its process is %d", runtime.ErrInvalidAnswer, file, s.pid)
	case s.start == 0: // versions of years ago
		return fmt.Errorf("%w: %s: start time of its process missing, so signals are not safe", runtime.ErrInvalidAnswer, file)
	case s.created.IsZero():
		return fmt.Errorf("%w: %s: creation time missing", runtime.ErrInvalidAnswer, file)
	}
	return nil
}

// Annotations by which others' containers are known in a root that they share with runc's
// own users: Podman's and CRI-O's have the first, cri-o.ContainerType is what CRI-O wrote
// before, and containerd's have the second, in whatever root it was told to keep them.
const (
	annotationManager    = "io.container.manager"
	annotationCRI        = "io.kubernetes.cri.container-type"
	annotationCRIO       = "io.kubernetes.cri-o.ContainerType"
	annotationReference  = "org.opencontainers.image.ref.name"
	annotationStopSignal = "org.opencontainers.image.stopSignal"
)

// Containerd is the manager of containers that containerd's CRI has made.
const Containerd = "containerd"

// manager returns the manager of a container; empty if it has none. Build steps have no annotation.
// They are recognized by their bundles: BuildKit, also in Docker, has them in executor/ID, and
// Buildah, also in Podman, in a temporary folder named after the ID.
func (s state) manager(id string) string {
	folder, name := filepath.Split(s.bundle)
	switch {
	case s.annotations[annotationManager] != "":
		return s.annotations[annotationManager]
	case s.annotations[annotationCRI] != "":
		return Containerd
	case s.annotations[annotationCRIO] != "":
		return "cri-o"
	case name == id && filepath.Base(folder) == "executor":
		return "buildkit"
	case strings.HasPrefix(name, "buildah") && id == "buildah-"+name:
		return "buildah"
	}
	return ""
}
