package runc

import (
	"bytes"
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

// Files in a container's folder of a state root.
const (
	runcState  = "state.json"
	crunStatus = "status"
	crunConfig = "config.json" // copy of the bundle's when the container was created
	execFifo   = "exec.fifo"   // exists until the container is started
)

// state is the content of a container's files.
type state struct {
	program     string // that created it: "runc" or "crun"
	pid         int    // of the first process
	start       uint64 // start time of that process, in ticks since boot
	created     time.Time
	annotations map[string]string // bounded, and only of containers that the store manages
	managedBy   string            // as manager returns it
	bundle      string            // folder from which it was created
	// cgroups are the possible folders of its cgroup, the best one to kill through first.
	cgroups []string
	freezer string // folder of the version 1 freezer, or ""
	// ownPIDs means that it has its own PID namespace, so its processes end with the first.
	ownPIDs bool
}

// parseRunc parses state.json of libcontainer in runc 1.0 and later.
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
	// The key "" is version 2, which hybrid hosts have beside the controllers of version 1.
	s.freezer = raw.Cgroups["freezer"]
	for _, controller := range slices.Sorted(maps.Keys(raw.Cgroups)) {
		s.cgroups = append(s.cgroups, raw.Cgroups[controller])
	}
	for _, label := range raw.Config.Labels {
		switch key, value, found := strings.Cut(label, "="); {
		case found && key == "bundle": // set by runc
			s.bundle = value
		case found:
			s.annotations[strings.Clone(key)] = value // else the key keeps the text of a value that is dropped
		}
	}
	for _, ns := range raw.Config.Namespaces {
		s.ownPIDs = s.ownPIDs || ns.Type == "NEWPID" && ns.Path == ""
	}
	return s, s.check(runcState)
}

// parseLargeRunc parses the beginning and the end of a state.json. runc writes the process before the
// configuration. An ID, which is before it, has no quotes. The bundle is the last label, and no other
// text of the configuration after the labels begins like it.
func parseLargeRunc(text []byte) state {
	head, config, _ := bytes.Cut(text, []byte(`,"config":`))
	s, _ := parseRunc(append(slices.Clip(head), '}')) // it stays empty if the head is invalid
	s.annotations = nil                               // unknown
	if i := bytes.LastIndex(config, []byte(`"bundle=`)); i >= 0 {
		var label string
		_ = json.NewDecoder(bytes.NewReader(config[i:])).Decode(&label) // it stays empty if it is invalid
		s.bundle = strings.TrimPrefix(label, "bundle=")
	}
	return s
}

// parseCrun parses crun's status and config.json. The cgroup path in it applies to each hierarchy
// that is mounted at cgroupRoot, or below it. If only the config.json is invalid, the returned state
// has the content of status.
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
	s := state{program: "crun", pid: raw.PID, start: raw.Start, bundle: raw.Bundle}
	s.created, _ = time.Parse(time.RFC3339Nano, raw.Created) // check reports errors
	if raw.Cgroup != "" {
		s.freezer = filepath.Join(cgroupRoot, "freezer", raw.Cgroup)
		for _, hierarchy := range []string{"", "unified", "freezer", "pids", "systemd"} {
			s.cgroups = append(s.cgroups, filepath.Join(cgroupRoot, hierarchy, raw.Cgroup))
		}
	}
	var spec struct {
		Annotations map[string]string `json:"annotations"`
		Linux       struct {
			Namespaces []specs.LinuxNamespace `json:"namespaces"`
		} `json:"linux"`
	}
	if err := json.Unmarshal(config, &spec); err != nil {
		return s, fmt.Errorf("%w: %s: %w", runtime.ErrInvalidAnswer, crunConfig, err)
	}
	if s.annotations = spec.Annotations; s.annotations == nil {
		s.annotations = map[string]string{} // readable, and without any
	}
	for _, ns := range spec.Linux.Namespaces {
		s.ownPIDs = s.ownPIDs || ns.Type == specs.PIDNamespace && ns.Path == ""
	}
	return s, s.check(crunStatus)
}

// identified reports whether the state identifies a process, even if other parts are invalid.
func (s state) identified() bool { return s.check("") == nil }

// check refuses values that could lead to a wrong process.
func (s state) check(file string) error {
	switch {
	case s.pid <= 0:
		return fmt.Errorf("%w: %s: its process is %d", runtime.ErrInvalidAnswer, file, s.pid)
	case s.start == 0: // from versions that are years old
		return fmt.Errorf("%w: %s: start time of its process missing, so signals are not safe", runtime.ErrInvalidAnswer, file)
	case s.created.IsZero():
		return fmt.Errorf("%w: %s: creation time missing", runtime.ErrInvalidAnswer, file)
	}
	return nil
}

// Annotations of the containers of managers in a root that they share with direct users of runc.
// Podman's and CRI-O's containers have the first. Older CRI-O set cri-o.ContainerType. containerd's
// have the second, in any root.
const (
	annotationManager    = "io.container.manager"
	annotationCRI        = "io.kubernetes.cri.container-type"
	annotationCRIO       = "io.kubernetes.cri-o.ContainerType"
	annotationReference  = "org.opencontainers.image.ref.name"
	annotationStopSignal = "org.opencontainers.image.stopSignal"
)

// Containerd is the manager of containers that containerd's CRI has created.
const Containerd = "containerd"

// manager returns the manager of a container, or "". Tools such as umoci copy an image's labels to
// annotations, so only an annotation together with the manager's folder counts. Podman and CRI-O have
// bundles in ID/userdata. Build steps have no annotation, so their bundles identify them. BuildKit, also
// in Docker, has them in executor/ID. Buildah, also in Podman, has them in a temporary folder named
// after the ID.
func (s state) manager(id string) string {
	folder, name := filepath.Split(s.bundle)
	stored := name == "userdata" && filepath.Base(folder) == id
	switch {
	case stored && s.annotations[annotationManager] != "":
		return s.annotations[annotationManager]
	case name == id && strings.Contains(folder, "/io.containerd.runtime.v") && s.annotations[annotationCRI] != "":
		return Containerd
	case stored && s.annotations[annotationCRIO] != "":
		return "cri-o"
	case stored && s.annotations == nil: // they cannot be read
		return "unknown"
	case name == id && filepath.Base(folder) == "executor":
		return "buildkit"
	case strings.HasPrefix(name, "buildah") && id == "buildah-"+name:
		return "buildah"
	}
	return ""
}
