package runc_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"

	"hostler.io/hostler/runtime/runc"
)

// The test writes a state with runc's own code, so that renamed fields of a later version are
// noticed before that version is on a host.
func TestStatesAreReadAsLibcontainerWritesThem(t *testing.T) {
	for name, c := range map[string]struct {
		pids    specs.LinuxNamespace
		cgroups map[string]string
		want    string
	}{
		"version 2 of cgroups": {
			pids:    specs.LinuxNamespace{Type: specs.PIDNamespace},
			cgroups: map[string]string{"": "/sys/fs/cgroup/web"},
			want:    `own PIDs true, cgroup /sys/fs/cgroup/web, freezer `,
		},
		"version 1, and the PIDs of another container": {
			pids:    specs.LinuxNamespace{Type: specs.PIDNamespace, Path: "/proc/1/ns/pid"},
			cgroups: map[string]string{"devices": "/sys/fs/cgroup/devices/web", "freezer": "/sys/fs/cgroup/freezer/web"},
			want:    `own PIDs false, cgroup /sys/fs/cgroup/devices/web, freezer /sys/fs/cgroup/freezer/web`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bundle := filepath.Join(t.TempDir(), "buildah1")
			must(t, os.Mkdir(bundle, 0o755))
			t.Chdir(bundle) // like runc
			config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{CgroupName: "web", Spec: &specs.Spec{
				Version: specs.Version,
				Process: &specs.Process{Args: []string{"sleep"}, Cwd: "/"},
				Root:    &specs.Root{Path: "rootfs"},
				Annotations: map[string]string{
					"hostler.io/critical": "true", "org.opencontainers.image.ref.name": "registry.example/web:1", "org.opencontainers.image.stopSignal": "SIGQUIT",
				},
				Linux: &specs.Linux{CgroupsPath: "/web", Namespaces: []specs.LinuxNamespace{{Type: specs.MountNamespace}, c.pids}},
			}})
			must(t, err)
			state := libcontainer.State{
				BaseState: libcontainer.BaseState{
					ID: "web", InitProcessPid: 27, InitProcessStartTime: 1704413,
					Created: time.Date(2026, 11, 20, 12, 0, 0, 123456789, time.UTC), Config: *config,
				},
				CgroupPaths: c.cgroups,
			}
			text, err := json.Marshal(state)
			must(t, err)
			// Its bundle shows that it belongs to Buildah.
			want := `runc pid 27 since 1704413, created 2026-11-20 12:00:00.123456789 +0000 UTC, of "buildah", image "registry.example/web:1", signal "SIGQUIT", critical "true", ` + c.want
			if got := runc.ParseRunc(text); got != want {
				t.Errorf("state = %s\nwant %s", got, want)
			}
		})
	}
}
